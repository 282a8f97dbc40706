"""Square matrices side by side on a wide screen, and one below the other on a phone."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

from geointerp.report.heatmaps import colour_scale, rates, ticks
from geointerp.report.palette import figure

Matrix = tuple[str, Float[np.ndarray, "row column"], str, list[list[Any]] | None]
"""Title, values 0..1 (already aggregated), hover template, and hover labels of every cell (or None)."""

TOP, BOTTOM, TITLE, GAP_ACROSS = 26, 92, 32, 0.07  # pixels, and a share of the width
CELLS_SIDE_BY_SIDE_ON_A_PHONE = 3  # a side; larger matrices go below each other there


def matrix_grid(matrices: Sequence[Matrix], names: Sequence[str], scale: str) -> go.Figure:
    """Matrices of rates over one axis of names, two in a row, under their titles.

    The layout's ``meta.narrow`` holds what the page changes on a phone: one in a row.

    Args:
        matrices: all of one size.
        names: of rows and columns before aggregation.
        scale: title of the common colour scale.
    """
    drawn = len(matrices[0][1])
    titles = [matrix[0] for matrix in matrices]
    wide = grid_layout(titles, drawn, names, columns=2)
    narrow = grid_layout(titles, drawn, names, columns=1) if drawn > CELLS_SIDE_BY_SIDE_ON_A_PHONE else {}
    plot = figure(wide.pop("height"), margin={"l": 48, "r": 8, "t": TOP, "b": BOTTOM}, meta={"narrow": narrow}, **wide)
    for i, (title, values, hover, labels) in enumerate(matrices):
        trace = rates(values, hover=hover, labels=labels, colorbar=colour_scale(scale) if i == 0 else None)
        trace.update(xaxis=f"x{_suffix(i)}", yaxis=f"y{_suffix(i)}", name=title)
        plot.add_trace(trace)
    return plot


def grid_layout(titles: Sequence[str], drawn: int, names: Sequence[str], columns: int) -> dict[str, Any]:
    """Height, axes and titles of square matrices of ``drawn`` cells a side, ``columns`` of them in a row."""
    down = -(-len(titles) // columns)
    cell = max(18, min(60, 300 // drawn))
    inner = down * max(120, min(340, 46 + cell * drawn)) - 22
    gap = TITLE / inner
    width, height = (1 - GAP_ACROSS * (columns - 1)) / columns, (1 - gap * (down - 1)) / down
    axis: dict[str, Any] = {"showgrid": False, "zeroline": False, "automargin": True, **ticks(names, drawn)}
    bare = {"showticklabels": False, "ticks": ""}
    layout: dict[str, Any] = {"height": inner + TOP + BOTTOM, "annotations": []}
    for i, title in enumerate(titles):
        row, column = divmod(i, columns)
        left, top = column * (width + GAP_ACROSS), 1 - row * (height + gap)
        layout[f"xaxis{_suffix(i)}"] = {
            "domain": [left, min(1.0, left + width)],
            "anchor": f"y{_suffix(i)}",
            **axis,
            **(bare if row < down - 1 else {}),
        }
        layout[f"yaxis{_suffix(i)}"] = {
            "domain": [max(0.0, top - height), top],
            "anchor": f"x{_suffix(i)}",
            "autorange": "reversed",
            **axis,
            **(bare if column else {}),
        }
        layout["annotations"].append(
            {
                "xref": "paper",
                "yref": "paper",
                "x": left,
                "y": top,
                "xanchor": "left",
                "yanchor": "bottom",
                "text": title,
                "showarrow": False,
            }
        )
    return layout


def _suffix(index: int) -> str:
    return "" if index == 0 else str(index + 1)
