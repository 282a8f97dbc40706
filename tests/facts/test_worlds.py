"""Random worlds: bijections, their independence of everything but the seed, and what is refused."""

import pytest
import torch

from geointerp.errors import ConfigError
from geointerp.facts import random_bijections


def test_every_relation_is_a_bijection_onto_one_shared_set() -> None:
    facts = random_bijections(100, 4, seed=0)
    assert facts.answers.shape == (4, 100)
    assert facts.answers.dtype == torch.int64
    assert facts.n_attributes == 100
    assert all(row.sort().values.equal(torch.arange(100)) for row in facts.answers)
    assert (facts.relation_kinds, facts.attribute_sets) == (("bijection",) * 4, "shared")
    assert facts.subject_names is facts.relation_names is facts.attribute_names is None


def test_disjoint_relations_have_blocks_of_their_own() -> None:
    facts = random_bijections(10, 3, seed=0, disjoint=True)
    assert facts.n_attributes == 30
    for relation, row in enumerate(facts.answers):
        assert row.sort().values.equal(torch.arange(10 * relation, 10 * relation + 10))
    assert (facts.relation_kinds, facts.attribute_sets) == (("bijection",) * 3, "disjoint")


def test_disjoint_draws_the_same_bijections() -> None:
    shared, disjoint = random_bijections(10, 3, 5), random_bijections(10, 3, 5, disjoint=True)
    assert (disjoint.answers - 10 * torch.arange(3)[:, None]).equal(shared.answers)


def test_the_seed_alone_decides() -> None:
    torch.manual_seed(1)
    first = random_bijections(50, 3, seed=7)
    torch.manual_seed(2)
    torch.randn(1000)
    assert random_bijections(50, 3, seed=7).answers.equal(first.answers)
    assert not random_bijections(50, 3, seed=8).answers.equal(first.answers)


def test_drawing_touches_no_global_state() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    random_bijections(50, 3, seed=7)
    assert torch.rand(3).equal(expected)


def test_more_relations_leave_the_first_ones_alone() -> None:
    assert random_bijections(50, 8, seed=3).answers[:3].equal(random_bijections(50, 3, seed=3).answers)


def test_bijections_are_uniform_and_independent() -> None:
    # All 36 pairs of permutations of 3 things, 3600 draws: chi-squared of 35 degrees is below 66.6 in 999 of 1000.
    counts: dict[tuple[int, ...], int] = {}
    for seed in range(3600):
        key = tuple(random_bijections(3, 2, seed).answers.flatten().tolist())
        counts[key] = counts.get(key, 0) + 1
    assert len(counts) == 36
    assert sum((count - 100) ** 2 / 100 for count in counts.values()) < 66.6


@pytest.mark.parametrize(
    ("subjects", "relations", "flag"), [(1, 2, "--subjects 1"), (0, 2, "--subjects 0"), (5, 0, "--relations 0")]
)
def test_too_small_worlds_are_refused(subjects: int, relations: int, flag: str) -> None:
    with pytest.raises(ConfigError, match=flag):
        random_bijections(subjects, relations, seed=0)
