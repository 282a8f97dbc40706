"""gating: firing, classes, variance and information worked out by hand; blocks change nothing."""

import math

import numpy as np
import pytest
import torch
from planted import lookup_table, normal, perfect_selector
from torch import Tensor

from geointerp import (
    FactMemory,
    FactTable,
    FactTransformer,
    FactTransformerConfig,
    as_memory,
    gating,
    random_bijections,
)
from geointerp.errors import ConfigError, MeasureError
from geointerp.measures.gating import UNIT_CLASSES
from geointerp.models import recall as recall_module

ALWAYS_ON, ALWAYS_OFF, GATE, DATA = range(4)


def model_of(n_subjects: int, n_relations: int, d_mlp: int = 6) -> FactTransformer:
    return FactTransformer(
        FactTransformerConfig(
            n_subjects=n_subjects, n_relations=n_relations, n_attributes=n_subjects, d_model=8, d_mlp=d_mlp
        )
    )


def test_classes_are_in_the_order_the_tests_name_them() -> None:
    assert UNIT_CLASSES == ("always-on", "always-off", "gate", "data-dependent")


def test_every_number_of_a_small_layer_by_hand() -> None:
    facts = random_bijections(4, 2, seed=0)
    pre = torch.tensor(
        [  # [relation subject unit]: always on, dead (exact zero is off), gate for relation 0, on for half under both
            [[1.0, 0.0, 2.0, 1.0], [1.0, -1.0, 2.0, -1.0], [1.0, 0.0, 2.0, 1.0], [1.0, -1.0, 2.0, -1.0]],
            [[3.0, 0.0, -2.0, 1.0], [3.0, -1.0, -2.0, -1.0], [3.0, 0.0, -2.0, 1.0], [3.0, -1.0, -2.0, -1.0]],
        ]
    )
    result = gating(pre, facts)
    (layer,) = result.layers
    torch.testing.assert_close(layer.firing_rate, torch.tensor([[1.0, 0, 1, 0.5], [1.0, 0, 0, 0.5]]))
    assert layer.classes.tolist() == [ALWAYS_ON, ALWAYS_OFF, GATE, DATA]
    assert layer.class_counts == (1, 1, 1, 1)
    torch.testing.assert_close(layer.information, torch.tensor([0.0, 0, 1, 0]))  # the gate tells the relation: one bit
    assert layer.information_mean == pytest.approx(0.25)
    by_unit = torch.tensor([[1.0, 0, 0], [0, 1.0, 0], [1.0, 0, 0], [0, 1.0, 0]])
    torch.testing.assert_close(layer.variance_by_unit, by_unit)
    # sums of squares: unit 0: 8 of relation; unit 1: 2 of subject; unit 2: 32 of relation; unit 3: 8 of subject
    assert layer.variance == pytest.approx((40 / 50, 10 / 50, 0))
    # open sets under the two relations: subjects 0, 2: {0, 2, 3} and {0, 3}; subjects 1, 3: {0, 2} and {0}
    off_diagonal = (2 / 3 + 1 / 2) / 2
    torch.testing.assert_close(layer.overlap, torch.tensor([[1.0, off_diagonal], [off_diagonal, 1.0]]))
    assert (result.n_facts, result.n_complete) == (8, 4)


def test_variance_split_equals_a_two_way_analysis_by_numpy() -> None:
    facts = random_bijections(30, 3, seed=1)
    pre = normal(3, 30, 5, seed=2) + 100 + 3 * normal(3, 1, 5, seed=3) + 2 * normal(1, 30, 5, seed=4)
    x = pre.double().numpy()
    relation = x.mean(1, keepdims=True) - x.mean((0, 1))
    subject = x.mean(0, keepdims=True) - x.mean((0, 1))
    rest = x - x.mean((0, 1)) - relation - subject
    sums = np.array([[(np.broadcast_to(p, x.shape) ** 2).sum((0, 1))] for p in (relation, subject, rest)])[:, 0].T
    (layer,) = gating(pre, facts).layers
    np.testing.assert_allclose(layer.variance_by_unit.numpy(), sums / sums.sum(1, keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(layer.variance, sums.sum(0) / sums.sum(), rtol=1e-9)


def test_information_by_hand_for_a_unit_that_is_on_half_the_time_under_one_relation() -> None:
    facts = random_bijections(4, 2, seed=5)
    pre = torch.tensor([[[1.0], [1.0], [-1.0], [-1.0]], [[-1.0], [-1.0], [-1.0], [-1.0]]])
    (layer,) = gating(pre, facts).layers
    overall = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
    assert float(layer.information[0]) == pytest.approx(overall - 0.5 * 1.0, abs=1e-6)


def test_shuffled_labels_carry_no_information_and_make_no_gates() -> None:
    facts = random_bijections(400, 2, seed=6)
    pre = torch.stack([torch.ones(400, 3), -torch.ones(400, 3)])
    (layer,) = gating(pre, facts, null_draws=20).layers
    assert layer.class_counts[GATE] == 3
    assert layer.gates_null == 0.0
    assert layer.information_mean == pytest.approx(1.0)
    # half of the subjects are swapped: rates 1/2 +- 1/40, so about (1/800) / ln 4 ... far below a hundredth of a bit
    assert 0 <= layer.information_null < 0.01


def test_a_perfect_selector_has_gates_only_and_disjoint_open_sets() -> None:
    facts = random_bijections(100, 3, seed=7)
    (layer,) = gating(perfect_selector(facts)).layers
    assert layer.class_counts == (0, 0, 21, 0)
    torch.testing.assert_close(layer.overlap, torch.eye(3))
    third = -(1 / 3 * math.log2(1 / 3) + 2 / 3 * math.log2(2 / 3))
    torch.testing.assert_close(layer.information, torch.full((21,), third))


def test_a_lookup_table_opens_one_unit_a_fact() -> None:
    facts = random_bijections(40, 2, seed=8)
    (layer,) = gating(lookup_table(facts, 24), near=0.0).layers
    # unit (s, r) is on for (s, r), and for others only where random rows are nearer than half: rare in 24 dimensions
    assert float(layer.firing_rate.sum(0).min()) == pytest.approx(1 / 40)
    assert float(layer.firing_rate.sum(0).mean()) < 2 / 40
    assert float(layer.firing_rate.sum(0).median()) == pytest.approx(1 / 40)
    assert layer.class_counts[DATA] == 80


@pytest.mark.parametrize(("bias", "kind"), [(-1000.0, ALWAYS_OFF), (1000.0, ALWAYS_ON)])
def test_dead_and_always_on_are_told_apart(bias: float, kind: int) -> None:  # cases.md 5
    model, facts = model_of(20, 2), random_bijections(20, 2, seed=9)
    assert model.blocks[0].mlp.b_in is not None
    model.blocks[0].mlp.b_in.data[2] = bias
    (layer,) = gating(model, facts).layers
    assert int(layer.classes[2]) == kind


def test_a_column_of_zeros_is_dead_and_divides_nothing_by_zero() -> None:  # cases.md 5
    model, facts = model_of(20, 2), random_bijections(20, 2, seed=10)
    model.blocks[0].mlp.W_in.data[:, 4] = 0
    (layer,) = gating(model, facts).layers
    assert int(layer.classes[4]) == ALWAYS_OFF
    assert layer.variance_by_unit[4].isnan().all()
    assert sum(layer.variance) == pytest.approx(1)
    assert layer.information.isfinite().all()


def test_one_relation_and_one_subject() -> None:  # cases.md 5
    (layer,) = gating(model_of(20, 1), random_bijections(20, 1, seed=11)).layers
    assert layer.class_counts[GATE] == 0
    assert layer.information_mean == pytest.approx(0, abs=1e-6)
    assert layer.variance[1] == pytest.approx(1)
    one = FactTable(answers=torch.tensor([[0], [1]]), n_attributes=2)
    (layer,) = gating(torch.tensor([[[1.0, -1.0]], [[-1.0, -1.0]]]), one).layers
    assert layer.classes.tolist() == [GATE, ALWAYS_OFF]
    assert layer.variance[0] == pytest.approx(1)


def test_not_a_number_is_an_error_and_never_dead() -> None:  # cases.md 4
    model, facts = model_of(20, 2), random_bijections(20, 2, seed=12)
    assert model.blocks[0].mlp.b_in is not None
    model.blocks[0].mlp.b_in.data[1] = float("nan")
    with pytest.raises(MeasureError, match=r"unit 1 in layer 0 is nan for subject 0 \(s0\) under relation 0 \(r0\)"):
        gating(model, facts)


def test_absent_facts_are_not_counted() -> None:
    facts = FactTable(answers=torch.tensor([[0, 1, -1, -1], [1, -1, 0, 2]]), n_attributes=3)
    pre = torch.tensor([[[1.0], [1.0], [-9.0], [-9.0]], [[1.0], [9.0], [-1.0], [-1.0]]])
    result = gating(pre, facts)
    (layer,) = result.layers
    torch.testing.assert_close(layer.firing_rate, torch.tensor([[1.0], [1 / 3]]))
    assert (result.n_facts, result.n_complete) == (5, 1)
    empty = FactTable(answers=torch.tensor([[0, 1], [-1, -1]]), n_attributes=2)
    result = gating(torch.ones(2, 2, 1), empty)
    assert result.layers[0].classes.tolist() == [ALWAYS_ON]
    assert all(math.isnan(v) for v in result.layers[0].variance)
    assert result.to_dict()["layers"][0]["variance"] == [None, None, None]


def test_shuffles_stay_among_the_facts_of_a_subject() -> None:
    facts = FactTable(answers=torch.tensor([[0] * 200, [1] * 200, [-1] * 200]), n_attributes=2)
    pre = torch.tensor([1.0, -1.0, 5.0])[:, None, None].expand(3, 200, 1)  # absent relation 2 would be on
    (layer,) = gating(pre, facts, null_draws=30).layers
    assert layer.information_mean == pytest.approx(1.0)
    # on must be shared out between relations 0 and 1 alone: rates p and 1 - p, so information near 0
    assert layer.information_null < 0.02


def test_blocks_change_nothing_and_bound_what_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = random_bijections(97, 3, seed=13)
    model = model_of(97, 3, d_mlp=16)
    whole = gating(model, facts, null_draws=2).to_dict()
    monkeypatch.setattr(recall_module, "BLOCK_ELEMENTS", 3 * 16 * 10)
    largest = 0
    plain_memory = as_memory(model, facts)

    def spy(rows: Tensor, relations: Tensor) -> list[Tensor]:
        nonlocal largest
        largest = max(largest, len(rows))
        assert plain_memory.pre_activations is not None
        return plain_memory.pre_activations(rows, relations)

    memory = FactMemory(facts=facts, rows=plain_memory.rows, attributes=plain_memory.attributes, pre_activations=spy)
    blocked = gating(memory, null_draws=2).to_dict()
    assert largest == 30  # ten subjects under three relations, whatever N is
    for name in ("firing_rate", "classes", "information", "variance", "overlap"):
        torch.testing.assert_close(
            torch.tensor(blocked["layers"][0][name]), torch.tensor(whole["layers"][0][name]), atol=1e-6, rtol=1e-5
        )


def test_every_layer_is_measured() -> None:
    facts = random_bijections(30, 2, seed=14)
    config = FactTransformerConfig(
        n_subjects=30, n_relations=2, n_attributes=30, d_model=8, d_mlp=12, n_layers=2, attention="learned"
    )
    model = FactTransformer(config)
    result = gating(model, facts)
    assert len(result.layers) == 2
    for relation in range(2):
        tokens = model.to_tokens(torch.arange(30), torch.full((30,), relation))
        _, cache = model.run_with_cache(tokens)
        for layer in range(2):
            rate = (cache[f"blocks.{layer}.mlp.hook_pre"][:, -1] > 0).float().mean(0)
            torch.testing.assert_close(result.layers[layer].firing_rate[relation], rate)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:  # cases.md 3
    facts = random_bijections(64, 2, seed=15)
    model = model_of(64, 2)
    single = gating(model, facts).layers[0]
    half = gating(model.to(dtype), facts).layers[0]
    assert float((half.firing_rate - single.firing_rate).abs().mean()) < 1e-2
    assert half.variance == pytest.approx(single.variance, abs=1e-2)


def test_bad_input_is_refused_with_a_reason() -> None:
    facts = random_bijections(20, 2, seed=16)
    with pytest.raises(MeasureError, match="pass facts="):
        gating(torch.ones(2, 20, 3))
    with pytest.raises(MeasureError, match=r"\(2, 19, 3\).*2 relations and 20 subjects"):
        gating(torch.ones(2, 19, 3), facts)
    with pytest.raises(ConfigError, match=r"near=0\.6 calls one firing rate both off and on"):
        gating(torch.ones(2, 20, 3), facts, near=0.6)
    with pytest.raises(MeasureError, match="pre_activations=None"):
        gating((normal(20, 4), normal(20, 4)), facts)
