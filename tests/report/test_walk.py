"""The packed walk says what the network does: the same units, components and answers, looked up another way."""

import base64
from typing import Any

import numpy as np
import pytest
import torch
from planted import perfect_selector
from torch import Tensor

from geointerp.facts.worlds import random_bijections
from geointerp.measures.analysis import Analysis, measure
from geointerp.measures.memory import FactMemory, as_memory
from geointerp.report.walk import Walk, build_walk, even_sample, half_bytes
from geointerp.training.checkpoint import Run


def unpacked(walk: Walk, name: str, dtype: str, *shape: int) -> np.ndarray:
    return np.frombuffer(base64.b64decode(walk.data[name]), dtype=dtype).reshape(shape)


def codes(walk: Walk, *shape: int) -> np.ndarray:
    """The half bytes, first the upper."""
    pairs = np.frombuffer(base64.b64decode(walk.data["pre"]), dtype=np.uint8)
    flat = np.stack([pairs >> 4, pairs & 15], axis=1).ravel()
    return flat[: int(np.prod(shape))].reshape(shape)


@pytest.fixture(scope="module")
def planted() -> tuple[FactMemory, Analysis, Walk]:
    memory = perfect_selector(random_bijections(16, 2, 0))
    analysis = measure(memory, permutations=2)
    return memory, analysis, build_walk(memory, analysis)


def test_open_units_and_their_counts_are_exact(planted: tuple[FactMemory, Analysis, Walk]) -> None:
    memory, analysis, walk = planted
    units = walk.data["layers"][0]["units"]
    shown = codes(walk, 16, 2, len(units))
    counts = unpacked(walk, "open", "<u2", 16, 2, 1, 4)
    for relation in range(2):
        pre = memory.pre_activations_for("test")(memory.rows, torch.full((16,), relation))[0]
        is_open = (pre > 0).numpy()
        assert (((shown[:, relation] >= 1) & (shown[:, relation] <= 7)) == is_open[:, units]).all()
        for kind in range(4):
            chosen = (analysis.gating.layers[0].classes == kind).numpy()
            assert (counts[:, relation, 0, kind] == is_open[:, chosen].sum(1)).all()


def test_answers_ranks_and_logits(planted: tuple[FactMemory, Analysis, Walk]) -> None:
    memory, _, walk = planted
    top = unpacked(walk, "top", "<i4", 16, 2, 5)
    own = unpacked(walk, "own", "<i4", 16, 2)
    level = unpacked(walk, "top_logit", "<f4", 16, 2, 5)
    assert (unpacked(walk, "rank", "<i4", 16, 2) == 0).all()  # a perfect memory
    for relation in range(2):
        out = memory.logits_for("test")(memory.rows, torch.full((16,), relation))
        for subject in range(16):
            name = memory.facts.attribute_name(int(memory.facts.answers[relation, subject]))
            assert walk.data["attributes"][own[subject, relation]] == name
            assert walk.data["attributes"][top[subject, relation, 0]] == name
            expected = out[subject].max() - out[subject].mean()
            assert level[subject, relation, 0] == pytest.approx(float(expected), rel=1e-5)
    assert "Of the 32 facts" in walk.answer
    assert "32 come out right (1.000), against 0.062 by chance" in walk.answer


def test_components_are_those_of_the_fit(planted: tuple[FactMemory, Analysis, Walk]) -> None:
    memory, analysis, walk = planted
    parts = unpacked(walk, "parts", "<f4", 16, 4)
    fit, subject = analysis.superposition, 5
    row = memory.rows[subject].double()
    components = fit.components(memory.facts, memory.attributes)[:, subject]
    expected = [*components, fit.intercept, row - fit.intercept - components.sum(0)]
    sizes = torch.tensor([float(part.norm() / row.norm()) for part in expected])
    np.testing.assert_allclose(parts[subject], sizes.numpy(), atol=1e-6)


def test_half_bytes_by_hand() -> None:
    pre = torch.tensor([[[49.0, 1e-9, 0.0, -4.0, -49.0]]])
    found, largest = half_bytes(pre)
    # Sizes 49 (m/7)^2: m = 7, at least 1 when open, 0, 2 and 7; closed ones lie 8 higher.
    assert found.tolist() == [[[7, 1, 8, 10, 15]]]
    assert largest == 49.0


def test_even_sample() -> None:
    assert even_sample(3, 10).tolist() == [0, 1, 2]
    assert even_sample(10, 4).tolist() == [0, 2, 5, 7]


def test_subjects_beyond_the_budget_are_sampled_and_the_page_says_so(
    planted: tuple[FactMemory, Analysis, Walk],
) -> None:
    memory, analysis, whole = planted
    assert "sample" not in (whole.note or "")
    walk = build_walk(memory, analysis, budget=800)
    shown = len(walk.data["subjects"])
    assert shown < 16
    assert f"{shown} of 16 subjects" in (walk.note or "")


def test_absent_facts_and_a_bfloat16_model(measured: tuple[Run, Analysis]) -> None:
    import copy
    import dataclasses

    run, analysis = measured
    answers = run.facts.answers.clone()
    answers[0, 0] = -1
    facts = dataclasses.replace(run.facts, answers=answers)
    exact = build_walk(as_memory(run.model, facts), analysis)
    own = unpacked(exact, "own", "<i4", facts.n_subjects, facts.n_relations)
    assert own[0, 0] == -1
    assert unpacked(exact, "parts", "<f4", facts.n_subjects, facts.n_relations + 2)[0, 0] == 0
    half = build_walk(as_memory(copy.deepcopy(run.model).bfloat16(), facts), analysis)
    a, b = (unpacked(w, "parts", "<f4", facts.n_subjects, facts.n_relations + 2) for w in (exact, half))
    np.testing.assert_allclose(a, b, atol=2e-2)


def test_rows_of_zeros_divide_nothing(planted: tuple[FactMemory, Analysis, Walk]) -> None:
    memory, analysis, _ = planted
    import dataclasses

    rows: Tensor = memory.rows.clone()
    rows[0] = 0
    walk = build_walk(dataclasses.replace(memory, rows=rows), analysis)
    parts: Any = unpacked(walk, "parts", "<f4", 16, 4)
    assert (parts[0] == 0).all()
    assert np.isfinite(parts).all()
