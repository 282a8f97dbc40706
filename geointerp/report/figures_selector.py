"""The figure of the selector matrix: does the answer follow the component that the relation asks for?"""

import math

import numpy as np
from jaxtyping import Float

from geointerp.facts.table import FactTable
from geointerp.measures.selector import Selector
from geointerp.report.heatmaps import CELLS_WITH_NAMES, aggregate, array
from geointerp.report.matrix_grid import matrix_grid
from geointerp.report.panel import TABLE_ROWS, Cell, Panel, clipped, notes
from geointerp.report.wording import hover_names, number

SIDE = 128  # four matrices share the cells of one


def selector_panel(selector: Selector, facts: FactTable) -> Panel:
    """S and K side by side, over the same matrices of random displacements as long as the swaps."""
    names = [facts.relation_name(r) for r in range(facts.n_relations)]
    matrices = [
        ("S: follows the swap", array(selector.follows)),
        ("K: keeps the answer", array(selector.stays)),
        ("S, random", array(selector.follows_null)),
        ("K, random", array(selector.stays_null)),
    ]
    counts = array(selector.counts).astype(int)
    few = len(names) ** 2 <= CELLS_WITH_NAMES // 4
    whole = hover_names(names, 8 * len(names))
    labels = (
        [[[whole[r], whole[q], int(counts[r, q])] for q in range(len(names))] for r in range(len(names))]
        if few
        else None
    )
    drawn = [aggregate(matrix, SIDE) for _, matrix in matrices]
    hover = (
        "asked %{customdata[0]}, swapped %{customdata[1]}<br>%{z}% of %{customdata[2]} swaps"
        if few
        else "row %{y}, column %{x}: %{z}%"
    )
    plot = matrix_grid(
        [(title, matrix, hover, labels) for (title, _), (matrix, _) in zip(matrices, drawn, strict=True)], names, "rate"
    )
    diagonal, rest = (_mean(matrices[0][1], part) for part in (True, False))
    rows, more = _rows(selector, names)
    follows = (
        f"When component q of a row is swapped for another subject's, the answer follows it at rate {number(diagonal)} "
        f"if q is the relation asked"
    )
    return Panel(
        id="selector",
        question="Does the answer follow the component that the relation asks for, and no other?",
        answer=(
            f"{follows}, against {number(_mean(matrices[2][1], True))} for random displacements of the same length; "
            "with a single relation there is no other component to compare."
            if len(names) == 1 or math.isnan(selector.selectivity)
            else f"{follows} and {number(rest)} if not: selectivity {number(selector.selectivity)}, against "
            f"{number(selector.selectivity_null)} for random displacements of the same length; isolation is "
            f"{number(selector.isolation)}, against {number(selector.isolation_null)}."
        ),
        figure=plot,
        columns=(
            ("asked", "swapped", "S", "S, random", "K", "K, random", "logit change", "swaps")
            if len(names) ** 2 <= TABLE_ROWS
            else ("asked", "S, asked = swapped", "S, others", "S, others, random", "K, asked = swapped", "K, others")
        ),
        rows=rows,
        note=notes(
            "Down: the relation asked; across: the component swapped. S is the rate at which the answer becomes the "
            "swapped-in attribute, K that at which the right answer stays; below, the same for random displacements. A "
            "perfect selector has S = 1 on the diagonal and 0 off it, and K the other way round. A low diagonal of S "
            "with a high isolation means inexact maps.",
            drawn[0][1],
            more,
        ),
    )


def _mean(matrix: Float[np.ndarray, "row column"], diagonal: bool) -> float:
    """Mean of the entries on, or off, the diagonal that exist."""
    part = matrix[np.eye(len(matrix), dtype=bool) == diagonal]
    part = part[~np.isnan(part)]
    return float(part.mean()) if part.size else math.nan


def _rows(selector: Selector, names: list[str]) -> tuple[tuple[tuple[Cell, ...], ...], str | None]:
    """A row a pair of relations; with many relations a row a relation asked."""
    follows, null, stays, stays_null, linear, counts = (
        array(m)
        for m in (
            selector.follows,
            selector.follows_null,
            selector.stays,
            selector.stays_null,
            selector.linear,
            selector.counts,
        )
    )
    n = len(names)
    if n**2 <= TABLE_ROWS:
        parts = (follows, null, stays, stays_null, linear)
        return clipped(
            [
                (names[r], names[q], *(float(part[r, q]) for part in parts), int(counts[r, q]))
                for r in range(n)
                for q in range(n)
            ],
            "pairs of relations",
        )

    def others(matrix: Float[np.ndarray, "row column"], r: int) -> float:
        known = np.delete(matrix[r], r)
        known = known[~np.isnan(known)]
        return float(known.mean()) if known.size else math.nan

    return clipped(
        [
            (
                names[r],
                float(follows[r, r]),
                others(follows, r),
                others(null, r),
                float(stays[r, r]),
                others(stays, r),
            )
            for r in range(n)
        ],
        "relations",
    )
