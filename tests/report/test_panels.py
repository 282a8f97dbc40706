"""Each panel's sentence holds the number and its null, from results made by hand."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from geointerp.facts.table import FactTable
from geointerp.measures.gating import UNIT_CLASSES, Gating, LayerGating
from geointerp.measures.selector import Selector
from geointerp.measures.superposition import Null, Superposition
from geointerp.measures.transfer import Transfer
from geointerp.models.recall import Recall
from geointerp.report.figures_gating import classes_panel, firing_panel, gating_panels, unit_order
from geointerp.report.figures_overlap import overlap_by_size, overlap_panel
from geointerp.report.figures_selector import selector_panel
from geointerp.report.figures_superposition import reconstruction_panel, shares_panel, superposition_panel
from geointerp.report.figures_training import recall_panel, training_panel
from geointerp.report.figures_transfer import transfer_panel
from geointerp.report.panel import Panel

FACTS = FactTable(
    answers=torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]]), n_attributes=4, relation_names=("capital", "currency")
)


def traces(panel: Panel) -> list[Any]:
    return list(panel.figure.data)  # pyright: ignore[reportArgumentType] - plotly's own annotation is wrong


def fit(**changes: Any) -> Superposition:
    settings: dict[str, Any] = {
        "kind": "linear",
        "vectors": "unembed",
        "seed": 0,
        "n_subjects": 40,
        "n_features": 8,
        "rank": 8,
        "condition": 3.0,
        "r2_in_sample": 0.911,
        "r2_leave_one_out": 0.822,
        "null_in_sample": Null(mean=0.211, sd=0.011, p=0.25, draws=3),
        "null_leave_one_out": Null(mean=-0.144, sd=0.055, p=0.25, draws=3),
        "saturated": False,
        "identifiable": (True, True),
        "shares": (0.333, 0.444),
        "shares_in_sample": (0.3, 0.4),
        "recall_rows": 1.0,
        "recall_reconstructed": 0.777,
        "maps": torch.zeros(2, 4, 4),
        "intercept": torch.zeros(4),
    }
    return Superposition(**(settings | changes))


def layer(rate: torch.Tensor, classes: list[str], **changes: Any) -> LayerGating:
    """A layer with these firing rates [relation unit]."""
    ids = torch.tensor([UNIT_CLASSES.index(name) for name in classes])
    settings: dict[str, Any] = {
        "firing_rate": rate,
        "classes": ids,
        "class_counts": tuple(torch.bincount(ids, minlength=4).tolist()),
        "gates_null": 0.7,
        "information": torch.zeros(rate.shape[1]),
        "information_mean": 0.613,
        "information_null": 0.017,
        "variance": (0.6, 0.3, 0.1),
        "variance_by_unit": torch.zeros(rate.shape[1], 3),
        "overlap": torch.tensor([[1.0, 0.125], [0.125, 1.0]]),
    }
    return LayerGating(**(settings | changes))


def gating_of(*layers: LayerGating) -> Gating:
    return Gating(layers=layers, near=0.05, null_draws=10, seed=0, n_facts=8, n_complete=4)


def selection(**changes: Any) -> Selector:
    square = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    settings: dict[str, Any] = {
        "follows": square,
        "stays": 1 - square,
        "linear": square,
        "follows_null": torch.full((2, 2), 0.03),
        "stays_null": torch.full((2, 2), 0.9),
        "counts": torch.full((2, 2), 4),
        "selectivity": 0.7,
        "isolation": 0.711,
        "selectivity_null": 0.012,
        "isolation_null": 0.023,
        "seed": 0,
    }
    return Selector(**(settings | changes))


def moved(**changes: Any) -> Transfer:
    settings: dict[str, Any] = {
        "recalls": (0.5, 0.7),
        "recall": 0.6,
        "sd": 0.1,
        "chance": 0.25,
        "chance_in_relation": 0.26,
        "shuffled": 0.31,
        "trained": 0.99,
        "saturated": False,
        "worlds": 2,
        "seed": 0,
    }
    return Transfer(**(settings | changes))


def test_training_says_recall_and_loss_beside_blind_guesses() -> None:
    metrics = [{"step": 0, "loss": 1.4, "recall": 0.25}, {"step": 50, "loss": 0.0123, "recall": 0.875}]
    panel = training_panel(metrics, FACTS)
    for part in ("50 steps", "0.875", "8 facts", "0.250 by chance", "0.012 nats", f"{math.log(4):.3f}"):
        assert part in panel.answer
    assert [row[:3] for row in panel.rows] == [(0, 1.4, 0.25), (50, 0.0123, 0.875)]
    assert list(traces(panel)[0].y) == [1.4, 0.0123]
    assert "interrupted" in training_panel(metrics, FACTS, finished=False).answer


def test_recall_names_the_lowest_and_the_highest_beside_chance() -> None:
    panel = recall_panel(Recall(overall=0.75, by_relation=(0.5, 1.0), loss=0.1, n_facts=8), FACTS)
    assert "capital with recall 0.500" in panel.answer
    assert "currency with 1.000" in panel.answer
    assert "0.250 by chance" in panel.answer
    equal = recall_panel(Recall(overall=1.0, by_relation=(1.0, 1.0), loss=0.1, n_facts=8), FACTS)
    assert equal.answer == "Recall is 1.000 in every one of 2 relations, against 0.250 by chance."


def test_superposition_says_both_fits_beside_their_nulls() -> None:
    scalar = fit(kind="scalar", r2_leave_one_out=0.055, null_leave_one_out=Null(mean=-0.066, sd=0.1, p=0.5, draws=3))
    panel = superposition_panel(fit(), scalar)
    for part in ("0.822", "\u22120.144", "sd 0.055", "p = 0.250", "3 draws", "0.055", "\u22120.066"):
        assert part in panel.answer
    assert panel.warning is None
    assert list(traces(panel)[0].x) == [0.822, 0.911, 0.055, 0.911]
    assert list(traces(panel)[1].x) == [-0.144, 0.211, -0.066, 0.211]
    assert "one number a relation" not in superposition_panel(fit(), None).answer


def test_a_saturated_fit_is_said_loudly_and_drawn_hatched() -> None:
    saturated = fit(saturated=True, rank=39, r2_in_sample=1.0, r2_leave_one_out=-7.8)
    panel = superposition_panel(saturated, fit(kind="scalar"))
    assert panel.warning is not None
    assert "meaningless" in panel.warning
    observed = traces(panel)[0]
    assert list(observed.marker.pattern.shape) == ["", "x", "", ""]
    assert observed.marker.color[1] != observed.marker.color[0]
    assert "no meaning" in panel.figure.layout.yaxis.ticktext[1]
    assert observed.x[0] == -1.0  # the bar ends at the floor, its label does not
    assert observed.text[0] == "\u22127.800"
    assert "Bars end at" in (panel.note or "")


def test_reconstruction_stands_beside_the_rows_and_chance() -> None:
    panel = reconstruction_panel(fit(), fit(kind="scalar", recall_reconstructed=0.111), 0.25)
    assert panel is not None
    for part in ("0.777", "0.111", "1.000", "0.250 by chance"):
        assert part in panel.answer
    assert reconstruction_panel(fit(recall_rows=None), None, 0.25) is None


def test_shares_mark_what_is_not_determined() -> None:
    panel = shares_panel(fit(), FACTS)
    for part in ("0.333 (capital)", "0.444 (currency)", "0.822", "\u22120.144"):
        assert part in panel.answer
    one = shares_panel(fit(identifiable=(True, False)), FACTS)
    assert "the share of currency is not determined" in one.answer
    assert list(traces(one)[0].marker.pattern.shape) == ["", "x"]
    assert [row[3] for row in one.rows] == ["yes", "no"]
    assert "No relation has a share of its own" in shares_panel(fit(identifiable=(False, False)), FACTS).answer


def test_units_are_ordered_by_class_then_by_the_relations_they_open_for() -> None:
    rate = torch.tensor([[1.0, 0.0, 0.3, 1.0, 0.0, 0.9], [1.0, 0.0, 0.6, 0.0, 1.0, 0.2]])
    classes = ["always-on", "always-off", "data-dependent", "gate", "gate", "data-dependent"]
    assert unit_order(layer(rate, classes)).tolist() == [3, 4, 5, 2, 0, 1]


def test_order_is_a_permutation_whatever_the_rates() -> None:
    rate = torch.rand(3, 50, generator=torch.Generator().manual_seed(0))
    order = unit_order(layer(rate, ["data-dependent"] * 50, overlap=torch.eye(3)))
    assert sorted(order.tolist()) == list(range(50))


def test_gating_says_information_and_gates_beside_shuffled_labels() -> None:
    rate = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, 0.25]])
    panel = firing_panel(layer(rate, ["gate", "gate", "data-dependent"]), FACTS, 0)
    for part in ("0.613 bits", "0.017 bits", "2 of 3 units are gates", "0.700 expected"):
        assert part in panel.answer
    assert [list(row) for row in traces(panel)[0].z] == [[100, 0, 50], [0, 100, 25]]
    assert panel.columns == ("unit", "class", "information, bits", "on for capital", "on for currency")
    assert panel.rows[0] == (0, "gate", 0.0, 1.0, 0.0)
    counted = classes_panel(layer(rate, ["gate", "gate", "data-dependent"]), gating_of(), 0)
    for part in ("2 of 3 units", "0.700 expected", "60%", "30%", "10%"):
        assert part in counted.answer


def test_a_panel_set_a_layer() -> None:
    one = layer(torch.tensor([[1.0], [0.0]]), ["gate"])
    assert [p.id for p in gating_panels(gating_of(one), FACTS)] == ["gating-0", "classes-0", "overlap-0"]
    two = gating_panels(gating_of(one, one), FACTS)
    assert len(two) == 6
    assert two[3].question.startswith("Layer 1: ")


def test_overlap_of_random_sets_by_hand() -> None:
    # Half and a quarter of the units open: 1/8 in both, 5/8 in either.
    expected = overlap_by_size(torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]))
    assert expected[0, 1] == pytest.approx(0.2)
    panel = overlap_panel(layer(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), ["gate", "gate"]), FACTS, 0)
    assert "share 0.125" in panel.answer
    assert "random sets of their sizes would share 0.333" in panel.answer  # halves: 1/4 in both, 3/4 in either


def test_selector_says_selectivity_and_isolation_beside_random_displacements() -> None:
    panel = selector_panel(selection(), FACTS)
    for part in ("0.850", "0.150", "selectivity 0.700", "0.012", "isolation is 0.711", "0.023"):
        assert part in panel.answer
    assert [trace.name for trace in traces(panel)] == [
        "S: follows the swap",
        "K: keeps the answer",
        "S, random",
        "K, random",
    ]
    assert panel.rows[1][:5] == ("capital", "currency", *(pytest.approx(v) for v in (0.1, 0.03, 0.9)))


def test_selector_of_a_single_relation() -> None:
    one = torch.ones(1, 1)
    nan = float("nan")
    square = dict.fromkeys(("follows", "stays", "linear", "follows_null", "stays_null"), one)
    numbers = dict.fromkeys(("selectivity", "isolation", "selectivity_null", "isolation_null"), nan)
    facts = FactTable(answers=torch.tensor([[0, 1, 2]]), n_attributes=3)
    panel = selector_panel(selection(**square, **numbers, counts=torch.ones(1, 1, dtype=torch.int64)), facts)
    assert "undefined" not in panel.answer
    assert "random displacements" in panel.answer


def test_transfer_says_chance_shuffled_maps_and_the_trained_facts() -> None:
    panel = transfer_panel(moved())
    for part in ("2 new worlds", "0.600", "sd 0.100", "0.250 by chance", "0.310 with the maps shuffled", "0.990"):
        assert part in panel.answer
    assert panel.figure.layout.xaxis.type == "log"
    assert "shuffled" not in transfer_panel(moved(shuffled=None)).answer
    assert transfer_panel(moved(saturated=True)).warning is not None


def test_a_transfer_of_nothing_stands_at_the_edge() -> None:
    panel = transfer_panel(moved(recalls=(0.0, 0.0), recall=0.0, sd=0.0))
    worlds = traces(panel)[0]
    assert min(worlds.x) > 0  # a logarithmic axis has no zero
    assert list(worlds.marker.symbol) == ["circle-open", "circle-open"]
    assert list(worlds.customdata) == ["0", "0"]


def test_huge_gating_is_aggregated_and_says_so() -> None:
    n = 300
    facts = FactTable(answers=torch.arange(2).expand(n, 2).contiguous(), n_attributes=2)
    wide = layer(torch.full((n, 1000), 0.5), ["data-dependent"] * 1000, overlap=torch.full((n, n), 0.5))
    firing, _, overlap = gating_panels(gating_of(wide), facts)
    assert np.asarray(traces(firing)[0].z).shape == (256, 256)
    assert "300 x 1000 cells as block means on 256 x 256" in (firing.note or "")
    assert "first 256 of 1000 units" in (firing.note or "")
    assert "Aggregated" in (overlap.note or "")
    assert "first 256 of 44850 pairs" in (overlap.note or "")


def test_half_precision_results_with_gradients_are_drawn() -> None:
    rate = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.bfloat16, requires_grad=True)
    half = dataclasses.replace(layer(rate, ["gate", "gate"]), overlap=torch.eye(2, dtype=torch.bfloat16))
    assert len(gating_panels(gating_of(half), FACTS)) == 3
