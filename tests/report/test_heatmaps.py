"""Large matrices are aggregated by block means, whatever their dtype, and the note says so."""

import numpy as np
import pytest
import torch

from geointerp.report.heatmaps import LARGEST_SIDE, aggregate, rates, ticks


def test_block_means_by_hand() -> None:
    means, note = aggregate(torch.arange(16.0).reshape(4, 4), side=2)
    assert means.tolist() == [[2.5, 4.5], [10.5, 12.5]]
    assert note is not None
    assert "4 x 4" in note
    assert "2 x 2" in note


def test_uneven_blocks_cover_every_cell_once() -> None:
    means, _ = aggregate(torch.arange(5.0)[None], side=2)  # blocks 0..1 and 2..4
    assert means.tolist() == [[0.5, 3.0]]


def test_cells_that_are_not_numbers_do_not_count() -> None:
    nan = float("nan")
    means, _ = aggregate(torch.tensor([[1.0, nan, nan, nan]]), side=2)
    assert means[0, 0] == 1.0
    assert np.isnan(means[0, 1])


def test_small_matrices_stay_as_they_are() -> None:
    values, note = aggregate(torch.eye(LARGEST_SIDE))
    assert note is None
    assert (values == np.eye(LARGEST_SIDE)).all()


def test_a_matrix_of_4096_x_4096() -> None:
    means, note = aggregate(torch.ones(4096, 4096))
    assert means.shape == (256, 256)
    assert (means == 1).all()
    assert note == "Aggregated for drawing: 4096 x 4096 cells as block means on 256 x 256."


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_any_dtype_with_gradient(dtype: torch.dtype) -> None:
    values, _ = aggregate(torch.full((2, 3), 0.5, dtype=dtype, requires_grad=True))
    assert values.dtype == np.float64
    assert (values == 0.5).all()


def test_rates_are_drawn_in_per_cent_and_packed_when_large() -> None:
    small = rates(np.array([[0.126, np.nan]]), hover="%{z}")
    assert [list(row) for row in small.z] == [[12.6, None]]  # pyright: ignore[reportOptionalIterable, reportGeneralTypeIssues]
    large = rates(np.full((20, 20), 0.126), hover="%{z}")
    assert large.z.dtype == np.uint8  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
    assert (np.asarray(large.z) == 13).all()


def test_ticks_keep_equal_names_apart() -> None:
    axis = ticks(["x" * 40 + "1", "x" * 40 + "2"], 2)
    assert axis["tickvals"] == [0, 1]
    assert axis["ticktext"][0] == axis["ticktext"][1] == "x" * 17 + "…"
    assert ticks(["a"] * 300, 256)["showticklabels"] is False
