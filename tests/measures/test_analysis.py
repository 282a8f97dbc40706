"""measure: every measure of one source, written and read back unchanged."""

import json
import math
from pathlib import Path

import pytest
import torch
from planted import perfect_selector

from geointerp import measure, random_bijections, read_analysis, write_analysis
from geointerp.errors import CheckpointError
from geointerp.measures.analysis import MEASURES, Analysis
from geointerp.plain import plain


def small_analysis(n_relations: int = 2) -> Analysis:
    return measure(perfect_selector(random_bijections(64, n_relations, seed=0)), permutations=5)


def test_the_measures_are_announced_and_the_summary_is_theirs() -> None:
    told: list[str] = []
    analysis = measure(perfect_selector(random_bijections(64, 2, seed=0)), permutations=5, on_measure=told.append)
    assert tuple(told) == MEASURES
    summary = analysis.summary()
    assert summary["recall"] == 1.0
    assert summary["selectivity"] == 1.0
    assert summary["transfer"] == 1.0
    assert summary["chance"] == pytest.approx(1 / 64)
    assert summary["r2_leave_one_out"] == pytest.approx(1)
    assert summary["r2_null"] == analysis.superposition.null_leave_one_out.mean


@pytest.mark.parametrize("n_relations", [1, 2])  # one relation: selectivity is not a number
def test_written_and_read_back_it_is_the_same(tmp_path: Path, n_relations: int) -> None:
    analysis = small_analysis(n_relations)
    write_analysis(tmp_path, analysis)
    again = read_analysis(tmp_path)
    assert plain(again) == plain(analysis)
    assert torch.equal(again.superposition.maps, analysis.superposition.maps)
    assert again.gating.layers[0].classes.dtype == torch.int64
    content = json.loads((tmp_path / "analysis.json").read_text(), parse_constant=lambda name: pytest.fail(name))
    assert content["summary"] == analysis.summary()
    if n_relations == 1:
        assert math.isnan(again.selector.selectivity)


def test_not_measured_other_version_and_damaged(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has not been measured.*geointerp measure"):
        read_analysis(tmp_path)
    write_analysis(tmp_path, small_analysis())
    path = tmp_path / "analysis.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"analysis_version": 99}))
    with pytest.raises(CheckpointError, match="version 99"):
        read_analysis(tmp_path)
    for text in ("{", "[]", "3", "{}"):
        path.write_text(text)
        with pytest.raises(CheckpointError, match="damaged"):
            read_analysis(tmp_path)
    content["measures"]["gating"]["layers"] = []
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="were changed"):
        read_analysis(tmp_path)


def test_arrays_of_another_measurement_and_weights_changed_since_are_refused(tmp_path: Path) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(b"some weights")
    write_analysis(tmp_path, small_analysis())
    assert read_analysis(tmp_path).transfer.recall == 1.0
    weights.write_bytes(b"other weights")
    with pytest.raises(CheckpointError, match=r"measured on other weights.*geointerp measure"):
        read_analysis(tmp_path)
    weights.write_bytes(b"some weights")
    arrays = (tmp_path / "analysis.safetensors").read_bytes()
    write_analysis(tmp_path, small_analysis(n_relations=1))
    (tmp_path / "analysis.safetensors").write_bytes(arrays)
    with pytest.raises(CheckpointError, match="belong to another measurement"):
        read_analysis(tmp_path)
