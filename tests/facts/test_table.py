"""FactTable: counts, kinds, digest, redrawn worlds, and what it refuses."""

import hashlib
import struct
from typing import Any

import pytest
import torch

from geointerp.errors import FactsError, GeointerpError
from geointerp.facts import FactTable, random_bijections

# Three subjects; relation 0 a bijection, 1 many-to-one with a hole, 2 one-to-one with a hole.
ANSWERS = [[2, 0, 1], [3, 3, -1], [-1, 4, 0]]


def table(answers: list = ANSWERS, n_attributes: int = 5, **names: Any) -> FactTable:
    return FactTable(answers=torch.tensor(answers), n_attributes=n_attributes, **names)


def test_counts_and_presence() -> None:
    facts = table()
    assert (facts.n_relations, facts.n_subjects, facts.n_attributes, facts.n_facts) == (3, 3, 5, 7)
    assert facts.present.tolist() == [[True, True, True], [True, True, False], [False, True, True]]
    relation, subject = facts.fact_ids
    assert relation.tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert subject.tolist() == [0, 1, 2, 0, 1, 1, 2]


def test_relation_kinds() -> None:
    assert table().relation_kinds == ("bijection", "many-to-one", "one-to-one")


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([[0, 1], [1, 0]], "shared"),
        ([[0, 1], [2, 3]], "disjoint"),
        ([[0, 1], [1, 2]], "overlapping"),
        ([[0, 0], [0, -1]], "shared"),
        ([[0, 1]], "shared"),
    ],
)
def test_attribute_sets(answers: list[list[int]], kind: str) -> None:
    assert table(answers).attribute_sets == kind


def test_digest_is_a_hash_of_shape_attributes_and_ids() -> None:
    raw = b"(2, 2):3:" + struct.pack("<4q", 0, 1, 2, -1)
    assert table([[0, 1], [2, -1]], 3).digest == hashlib.blake2b(raw, digest_size=16).hexdigest()


def test_digest_ignores_names_and_memory_layout_and_tells_ids_apart() -> None:
    plain = table([[0, 1, 2], [2, 0, 1]], 3)
    named = table([[0, 1, 2], [2, 0, 1]], 3, subject_names=("x", "y", "z"))
    strided = FactTable(answers=torch.tensor([[0, 2], [1, 0], [2, 1]]).T, n_attributes=3)
    assert plain.digest == named.digest == strided.digest
    others = [table([[0, 1, 2], [2, 1, 0]], 3), table([[0, 1, 2], [2, 0, 1]], 4), table([[0, 1, 2, 2, 0, 1]], 3)]
    assert len({plain.digest, *(other.digest for other in others)}) == 4


def test_names_and_their_stand_ins() -> None:
    plain = table()
    assert (plain.subject_name(2), plain.relation_name(1), plain.attribute_name(4)) == ("s2", "r1", "a4")
    named = table(subject_names=("x", "y", "z"), relation_names=("p", "q", "r"), attribute_names=tuple("abcde"))
    assert (named.subject_name(2), named.relation_name(1), named.attribute_name(4)) == ("z", "q", "e")


def test_describe_says_what_was_found() -> None:
    text = table(relation_names=("capital", "continent", "code")).describe()
    assert text == (
        "7 facts: 3 subjects x 3 relations, 2 absent; 5 attributes, overlapping between relations; "
        "capital: bijection, continent: many-to-one (1 absent), code: one-to-one (1 absent)"
    )


def test_describe_stays_short() -> None:
    text = random_bijections(4, 15, 0).describe()
    assert text.count("bijection") == 12
    assert text.endswith(", and 3 more")


def test_redrawn_keeps_the_kind_of_every_relation() -> None:
    facts = table(subject_names=("x", "y", "z"))
    other = facts.redrawn(0)
    assert other.present.equal(facts.present)
    for relation in range(3):
        here = facts.present[relation]
        assert sorted(other.answers[relation, here].tolist()) == sorted(facts.answers[relation, here].tolist())
    assert (other.n_attributes, other.subject_names, other.relation_kinds) == (5, ("x", "y", "z"), facts.relation_kinds)


def test_redrawn_depends_on_seed_and_counters_alone() -> None:
    facts = random_bijections(50, 2, 0)
    before = facts.answers.clone()
    assert facts.redrawn(1, 2).digest == facts.redrawn(1, 2).digest
    assert len({facts.digest, *(facts.redrawn(*draw).digest for draw in [(0,), (1,), (1, 0), (1, 2)])}) == 5
    assert facts.answers.equal(before)


@pytest.mark.parametrize(
    ("answers", "n_attributes", "words"),
    [
        ([[0, 1], [0, 5]], 5, ["attribute id 5", "relation 1, subject 1", "0..4"]),  # cases.md 12
        ([[0, 1], [-2, 1]], 5, ["attribute id -2", "relation 1, subject 0", "0..4"]),  # cases.md 12
        ([[-1, -1]], 5, ["without a single fact"]),
    ],
)
def test_bad_answers_are_refused(answers: list, n_attributes: int, words: list[str]) -> None:
    with pytest.raises(FactsError) as caught:
        table(answers, n_attributes)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "\n" not in str(caught.value)


def test_other_integer_types_are_refused() -> None:
    with pytest.raises(FactsError, match=r"int64 attribute ids, got torch\.int32; convert with \.long\(\)"):
        FactTable(answers=torch.tensor([[0, 1]], dtype=torch.int32), n_attributes=2)


def test_empty_table_is_refused() -> None:
    with pytest.raises(FactsError, match="without a single fact"):
        FactTable(answers=torch.empty(0, 3, dtype=torch.int64), n_attributes=3)


@pytest.mark.parametrize("kind", ["subject", "relation", "attribute"])
def test_names_of_the_wrong_number_are_refused(kind: str) -> None:
    count = {"subject": 3, "relation": 3, "attribute": 5}[kind]
    names: Any = {f"{kind}_names": ("x", "y")}
    with pytest.raises(FactsError, match=f"2 {kind} names for {count} {kind}s"):
        table(**names)


def test_facts_errors_are_value_errors() -> None:
    assert issubclass(FactsError, GeointerpError)
    assert issubclass(FactsError, ValueError)


def test_answers_need_two_axes() -> None:
    with pytest.raises((FactsError, TypeError)):  # TypeError where types are checked at run time
        FactTable(answers=torch.tensor([0, 1]), n_attributes=2)


def test_a_relation_without_facts_does_not_unshare_the_others() -> None:
    facts = FactTable(answers=torch.tensor([[0, 1], [1, 0], [-1, -1]]), n_attributes=2)
    assert facts.attribute_sets == "shared"


def test_a_description_stays_on_one_line_whatever_the_names() -> None:
    facts = FactTable(answers=torch.tensor([[0, 1]]), n_attributes=2, relation_names=("a\nb " + "x" * 300,))
    assert "\n" not in facts.describe()
    assert len(facts.describe()) < 250
