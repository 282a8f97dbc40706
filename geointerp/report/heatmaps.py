"""Matrices as heatmaps: aggregated when large, rates in whole per cent, text in the cells when few."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Float
from torch import Tensor

from geointerp.report.palette import SEQUENTIAL, figure
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


def matrix_grid(
    matrices: Sequence[tuple[str, Float[np.ndarray, "row column"], str, list[list[Any]] | None]],
    names: Sequence[str],
    scale: str,
) -> go.Figure:
    """Square matrices of rates over one axis of names, two in a row, under their titles.

    Args:
        matrices: title, values 0..1 (already aggregated), hover template and hover labels of each.
        names: of rows and columns before aggregation.
        scale: title of the common colour scale.
    """
    drawn = len(matrices[0][1])
    down = -(-len(matrices) // 2)
    cell = max(18, min(60, 300 // drawn))
    bottom = 92 if drawn > 3 else 80
    height_of_all = 96 + down * max(120, min(340, 46 + cell * drawn))
    plot = figure(height_of_all, margin={"l": 48, "r": 8, "t": 26, "b": bottom})
    side = ticks(names, drawn)
    bare = {"showticklabels": False, "ticks": ""}
    gap_across, gap_down = 0.07, 32 / (height_of_all - 26 - bottom)  # down: room for a title, in pixels
    width, height = (1 - gap_across) / 2, (1 - gap_down * (down - 1)) / down
    for i, (title, matrix, hover, labels) in enumerate(matrices):
        column, row, suffix = i % 2, i // 2, "" if i == 0 else str(i + 1)
        x0, y1 = column * (width + gap_across), 1 - row * (height + gap_down)
        axis: dict[str, Any] = {"showgrid": False, "zeroline": False, "automargin": True, **side}
        plot.layout[f"xaxis{suffix}"] = {
            "domain": [x0, min(1.0, x0 + width)],
            "anchor": f"y{suffix}",
            **axis,
            **(bare if row < down - 1 else {}),
        }
        plot.layout[f"yaxis{suffix}"] = {
            "domain": [max(0.0, y1 - height), y1],
            "anchor": f"x{suffix}",
            "autorange": "reversed",
            **axis,
            **(bare if column else {}),
        }
        trace = rates(matrix, hover=hover, labels=labels, colorbar=colour_scale(scale) if i == 0 else None)
        trace.update(xaxis=f"x{suffix}", yaxis=f"y{suffix}", name=title)
        plot.add_trace(trace)
        plot.add_annotation(
            xref="paper", yref="paper", x=x0, y=y1, xanchor="left", yanchor="bottom", text=title, showarrow=False
        )
    return plot
