"""Matrices as heatmaps: aggregated when large, rates in whole per cent, text in the cells when few."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Float
from torch import Tensor

from geointerp.report.palette import SEQUENTIAL
from geointerp.report.wording import AXIS_LETTERS, plotly_text

LARGEST_SIDE = 256  # rows or columns drawn
CELLS_WITH_NAMES = 4096  # beyond it the hover labels hold numbers alone
TICKS = 24  # names on an axis
CELLS_WITH_TEXT = 144


def array(tensor: Tensor) -> np.ndarray:
    """Float64 numpy copy of a tensor of any dtype, with or without gradient, on any device."""
    return tensor.detach().to("cpu", torch.float64).numpy()


def aggregate(
    matrix: Float[Tensor, "row column"] | Float[np.ndarray, "row column"], side: int = LARGEST_SIDE
) -> tuple[Float[np.ndarray, "drawn_row drawn_column"], str | None]:
    """Means of equal blocks, so that no side is longer than ``side``; cells that are NaN do not count.

    Returns:
        The matrix, float64, and a note for the reader (None when nothing was merged). Block i of n rows over a side
        of k holds rows ``i*n//k .. (i+1)*n//k - 1``.
    """
    values = array(matrix) if isinstance(matrix, Tensor) else np.asarray(matrix, dtype=np.float64)
    rows, columns = values.shape
    drawn = min(rows, side), min(columns, side)
    if drawn == (rows, columns):
        return values, None
    starts = [block_starts(whole, shown) for whole, shown in zip(values.shape, drawn, strict=True)]

    def block_sums(cells: np.ndarray) -> np.ndarray:
        return np.add.reduceat(np.add.reduceat(cells, starts[0], axis=0), starts[1], axis=1)

    known = ~np.isnan(values)
    if known.all():  # the usual case, at half the work
        lengths = [np.diff(s, append=whole) for s, whole in zip(starts, values.shape, strict=True)]
        total, count = block_sums(values), np.multiply.outer(*lengths)
    else:
        total, count = block_sums(np.where(known, values, 0.0)), block_sums(known.astype(np.float64))
    with np.errstate(invalid="ignore"):  # a block without a known cell is 0/0: NaN, which is right
        means = total / count
    return means, f"Aggregated for drawing: {rows} x {columns} cells as block means on {drawn[0]} x {drawn[1]}."


def block_starts(length: int, blocks: int) -> np.ndarray:
    """First index of each of ``blocks`` nearly equal runs of ``range(length)``."""
    return np.arange(blocks) * length // blocks


def ticks(names: Sequence[str], drawn: int) -> dict[str, Any]:
    """Axis settings with shortened names at numeric positions, so that equal names stay apart; few enough to read.

    Args:
        names: one a row of the whole matrix.
        drawn: rows drawn; fewer than names when aggregated.
    """
    if drawn < len(names):
        return {"showticklabels": False, "ticks": ""}
    every = -(-len(names) // TICKS)
    at = list(range(0, len(names), every))
    return {"tickmode": "array", "tickvals": at, "ticktext": [plotly_text(names[i], AXIS_LETTERS) for i in at]}


def rates(
    matrix: Float[np.ndarray, "row column"],
    *,
    hover: str,
    labels: list[list[Any]] | None = None,
    colours: str = SEQUENTIAL,
    colorbar: dict[str, Any] | None = None,
) -> go.Heatmap:
    """A heatmap of rates 0..1, printed in per cent; NaN cells stay empty.

    Args:
        matrix: at most LARGEST_SIDE on a side.
        hover: plotly template of the hover label; ``%{customdata[i]}`` are the labels.
        labels: strings for every cell ``[row][column]``; None for numbers alone.
        colorbar: settings of the colour scale; None hides it.
    """
    percent = np.round(matrix * 100)
    small = matrix.size <= CELLS_WITH_TEXT
    if not small and not np.isnan(percent).any():
        z: Any = percent.astype(np.uint8)  # plotly ships typed arrays as base64: 4/3 byte a cell
    else:
        z = [[None if np.isnan(x) else round(float(x), 1) for x in row] for row in matrix * 100]
    return go.Heatmap(
        z=z,
        zmin=0,
        zmax=100,
        colorscale=colours,
        customdata=labels,
        hovertemplate=hover + "<extra></extra>",
        texttemplate="%{z:.0f}" if small else None,
        xgap=1 if matrix.shape[1] <= 64 else 0,
        ygap=1 if matrix.shape[0] <= 64 else 0,
        showscale=colorbar is not None,
        colorbar=colorbar,
    )


def colour_scale(title: str) -> dict[str, Any]:
    """A thin horizontal colour scale at the bottom left, so that a phone keeps its width for the cells."""
    return {
        "orientation": "h",
        "thickness": 8,
        "lenmode": "pixels",
        "len": 200,
        "x": 0,
        "xanchor": "left",
        "xpad": 0,
        "y": 0,
        "yanchor": "bottom",
        "yref": "container",
        "ypad": 2,
        "tickvals": [0, 50, 100],
        "ticktext": ["0", "50", "100%"],
        "outlinewidth": 0,
        "title": {"text": title + "  ", "side": "right", "font": {"size": 12}},
    }
