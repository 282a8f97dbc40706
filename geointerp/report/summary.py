"""The summary card: each headline number beside its null."""

import math
from dataclasses import dataclass

from geointerp.measures.analysis import Analysis
from geointerp.report.wording import number


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One headline number.

    Attributes:
        label: what it is.
        value: as printed.
        against: the null, control or chance, as printed, with its name.
        meaning: one line on how to read it.
        at, null_at: places of value and null on a scale from 0 to 1, in per cent; None where undefined.
        href: id of the panel that shows it.
    """

    label: str
    value: str
    against: str
    meaning: str
    at: float | None
    null_at: float | None
    href: str


def summary_tiles(analysis: Analysis) -> tuple[Tile, ...]:
    """Recall, leave-one-out R2, selectivity, isolation and transfer, each with what it must be read against."""
    fit, chosen, moved = analysis.superposition, analysis.selector, analysis.transfer
    shuffled = "" if moved.shuffled is None else f", maps shuffled {number(moved.shuffled)}"
    recalled = math.nan if fit.recall_rows is None else fit.recall_rows
    return (
        _tile("Recall", recalled, moved.chance, "chance", "of the facts trained on", "recall"),
        _tile(
            "R2, leave-one-out",
            fit.r2_leave_one_out,
            fit.null_leave_one_out.mean,
            "answers permuted",
            "rows as sums of linear images of attribute vectors",
            "superposition",
        ),
        _tile(
            "Selectivity",
            chosen.selectivity,
            chosen.selectivity_null,
            "random displacement",
            "the answer follows the asked component, and no other",
            "selector",
        ),
        _tile(
            "Isolation",
            chosen.isolation,
            chosen.isolation_null,
            "random displacement",
            "the answer survives a swap of the others, and not of the asked one",
            "selector",
        ),
        _tile(
            "Transfer",
            moved.recall,
            moved.chance,
            "chance",
            "recall of facts never trained on, only rows rewritten",
            "transfer",
            more=shuffled,
        ),
    )


def _tile(label: str, value: float, null: float, name: str, meaning: str, href: str, more: str = "") -> Tile:
    return Tile(
        label=label,
        value=number(value),
        against=f"{name} {number(null)}{more}",
        meaning=meaning,
        at=_place(value),
        null_at=_place(null),
        href=href,
    )


def _place(value: float) -> float | None:
    return None if math.isnan(value) else round(100 * min(1.0, max(0.0, value)), 1)
