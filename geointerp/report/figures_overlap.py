"""The figure of overlap: do two relations open the same hidden units for one subject?"""

import math

import numpy as np
from jaxtyping import Float
from torch import Tensor

from geointerp.facts.table import FactTable
from geointerp.measures.gating import LayerGating
from geointerp.report.heatmaps import CELLS_WITH_NAMES, aggregate, array
from geointerp.report.matrix_grid import matrix_grid
from geointerp.report.panel import TABLE_ROWS, Panel, clipped, notes
from geointerp.report.wording import hover_names, in_sentence, number

SIDE = 180  # two matrices share the cells of one


def overlap_by_size(firing_rate: Float[Tensor, "relation unit"]) -> Float[np.ndarray, "relation relation"]:
    """Jaccard overlap expected of two random sets of units that are as large, on average, as those that two relations
    open: ab / (a + b - ab) for open shares a and b. NaN where nothing opens."""
    rate = array(firing_rate)
    share = np.where(np.isnan(rate).any(1), np.nan, np.nan_to_num(rate).mean(1))
    both = share[:, None] * share[None, :]
    with np.errstate(invalid="ignore"):
        return both / (share[:, None] + share[None, :] - both)


def _known_mean(values: Float[np.ndarray, " pair"]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else math.nan


def overlap_panel(layer: LayerGating, facts: FactTable, index: int, where: str = "") -> Panel:
    """Jaccard overlap of the units that two relations open for the same subject, beside random sets of their sizes."""
    names = [facts.relation_name(r) for r in range(facts.n_relations)]
    overlap, expected = array(layer.overlap), overlap_by_size(layer.firing_rate)
    first, second = np.triu_indices(len(names), k=1)
    apart, by_size = overlap[first, second], expected[first, second]
    (drawn, note), (drawn_expected, _) = aggregate(overlap, SIDE), aggregate(expected, SIDE)
    few = len(names) ** 2 <= CELLS_WITH_NAMES // 4
    whole = hover_names(names, 4 * len(names))
    labels = [[[whole[r], whole[q]] for q in range(len(names))] for r in range(len(names))] if few else None
    hover = "%{customdata[0]} and %{customdata[1]}: %{z}%" if few else "row %{y}, column %{x}: %{z}%"
    plot = matrix_grid(
        [("observed", drawn, hover, labels), ("random sets", drawn_expected, hover, labels)],
        names,
        "overlap",
    )
    listed = slice(0, TABLE_ROWS + 1)  # one more than fits, for the note to say so
    rows, more = clipped(
        [
            (names[q], names[r], float(overlap[q, r]), float(expected[q, r]))
            for q, r in zip(first[listed].tolist(), second[listed].tolist(), strict=True)
        ],
        "pairs of relations",
        len(first),
    )
    known = apart[~np.isnan(apart)]
    extremes = ""
    if len(known) > 1:
        low, high = (
            f"{number(float(apart[at]))} ({in_sentence(names[first[at]])} and {in_sentence(names[second[at]])})"
            for at in (int(np.nanargmin(apart)), int(np.nanargmax(apart)))
        )
        extremes = f", from {low} to {high}"
    return Panel(
        id=f"overlap-{index}",
        question=f"{where}{'d' if where else 'D'}o two relations open the same units?",
        answer=(
            f"For one subject, two relations share {number(_known_mean(apart))} of the units that either opens"
            f"{extremes}; two random sets of their sizes would share {number(_known_mean(by_size))}, and equal sets 1."
        ),
        figure=plot,
        columns=("relation", "and relation", "overlap (Jaccard)", "random sets of their sizes"),
        rows=rows,
        note=notes("The mean Jaccard overlap over subjects; the diagonal is 1 by definition.", note, more),
    )
