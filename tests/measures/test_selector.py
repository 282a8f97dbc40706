"""selector: identity for a perfect selector, nothing for a lookup table, equal to a loop over single swaps."""

import pytest
import torch
from planted import lookup_table, normal, perfect_selector

from geointerp import (
    FactTable,
    FactTransformer,
    FactTransformerConfig,
    as_memory,
    decompose,
    random_bijections,
    selector,
)
from geointerp.errors import MeasureError
from geointerp.measures.selector import contrast
from geointerp.models import recall as recall_module
from geointerp.randomness import generator


@pytest.mark.parametrize("n_relations", [2, 3])
def test_a_hand_built_gate_is_the_identity(n_relations: int) -> None:
    facts = random_bijections(128, n_relations, seed=0)
    result = selector(perfect_selector(facts))
    torch.testing.assert_close(result.follows, torch.eye(n_relations))
    torch.testing.assert_close(result.stays, 1 - torch.eye(n_relations))
    assert (result.selectivity, result.isolation) == (1.0, 1.0)
    # off the diagonal the other block is closed: not even a logit moves
    torch.testing.assert_close(result.linear * (1 - torch.eye(n_relations)), torch.zeros(n_relations, n_relations))
    assert (result.linear.diagonal() > 0).all()


def test_linear_selector_by_hand() -> None:
    facts = random_bijections(64, 2, seed=1)
    memory = perfect_selector(facts)
    result = selector(memory, seed=3)
    codes = memory.attributes
    for q in range(2):
        partner = torch.randperm(64, generator=generator(3, "swap partners", q))
        old, new = codes[facts.answers[q]], codes[facts.answers[q, partner]]
        moved = partner != torch.arange(64)
        change = ((new * new).sum(1) - (old * new).sum(1))[moved]  # u_new . u_new - u_old . u_new
        assert float(result.linear[q, q]) == pytest.approx(float(change.mean()), rel=1e-5)
        assert int(result.counts[q, q]) == int(moved.sum())


def test_a_lookup_table_is_no_selector() -> None:
    facts = random_bijections(256, 2, seed=2)
    result = selector(lookup_table(facts, 32))
    assert result.selectivity < 0.1
    assert abs(result.isolation) < 0.1
    assert float(result.stays.min()) > 0.8  # a small move of a memorised key changes nothing


def test_equals_one_swap_at_a_time() -> None:
    facts = random_bijections(24, 2, seed=3)
    config = FactTransformerConfig(n_subjects=24, n_relations=2, n_attributes=24, d_model=6, d_mlp=16)
    model = FactTransformer(config).eval()
    fit = decompose(model, facts, permutations=1)
    result = selector(model, facts, superposition=fit, seed=5)
    vectors = model.attribute_vectors.double()
    follows, stays, counts = torch.zeros(2, 2), torch.zeros(2, 2), torch.zeros(2, 2)
    for q in range(2):
        partner = torch.randperm(24, generator=generator(5, "swap partners", q))
        for s in range(24):
            old, new = facts.answers[q, s], facts.answers[q, partner[s]]
            for r in range(2):
                if old == new or (r != q and facts.answers[r, s] == new):
                    continue
                row = model.subject_rows[s] + (fit.maps[q] @ (vectors[new] - vectors[old])).float()
                with torch.no_grad():
                    answer = model.answer_logits(row[None], torch.tensor([r])).argmax()
                counts[r, q] += 1
                follows[r, q] += int(answer == new)
                stays[r, q] += int(answer == facts.answers[r, s])
    torch.testing.assert_close(result.counts, counts.long())
    torch.testing.assert_close(result.follows, follows / counts)
    torch.testing.assert_close(result.stays, stays / counts)


def test_blocks_change_nothing_but_the_random_null(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = perfect_selector(random_bijections(50, 2, seed=4))
    whole = selector(memory)
    monkeypatch.setattr(recall_module, "BLOCK_ELEMENTS", 2 * 50 * 7)
    blocked = selector(memory)
    for name in ("follows", "stays", "linear", "counts"):
        torch.testing.assert_close(getattr(whole, name), getattr(blocked, name))


def test_one_relation_has_no_contrast_and_absent_pairs_no_rate() -> None:
    assert selector(perfect_selector(random_bijections(32, 1, seed=5))).to_dict()["selectivity"] is None
    answers = torch.tensor([[0, 1, 2, 3, -1, -1], [-1, -1, -1, -1, 0, 1]])
    result = selector(perfect_selector(FactTable(answers=answers, n_attributes=4)))
    assert result.follows[0, 1].isnan()
    assert result.counts[0, 1] == 0


def test_contrast_by_hand() -> None:
    assert contrast(torch.tensor([[1.0, 0.25], [0.75, 0.5]])) == pytest.approx(0.75 - 0.5)


def test_bad_input_is_refused_with_a_reason() -> None:
    facts = random_bijections(20, 2, seed=6)
    with pytest.raises(MeasureError, match="logits=None"):
        selector((normal(20, 4), normal(20, 4)), facts)
    fit = decompose(perfect_selector(random_bijections(20, 3, seed=7)), permutations=1)
    with pytest.raises(MeasureError, match="maps of 3 relations, 15 x 5, and the source needs 2 relations, 10 x 5"):
        selector(perfect_selector(facts), superposition=fit)
    with pytest.raises(MeasureError, match="10 x 4, and the source needs 2 relations, 10 x 5"):
        selector(perfect_selector(facts), superposition=decompose((normal(20, 10), normal(20, 4)), facts))
    with pytest.raises(MeasureError, match="brings its own facts"):
        as_memory(perfect_selector(facts), facts.redrawn(1))
