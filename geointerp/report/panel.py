"""Panel: one question of the report, with its answer, its figure and the data behind it."""

from collections.abc import Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

Cell = str | int | float | None

TABLE_ROWS = 256  # of the table behind a fold; what lies beyond is told, not printed


@dataclass(frozen=True, kw_only=True, eq=False)
class Panel:
    """One figure of the report.

    Attributes:
        id: slug, unique on the page; the id of the figure's element is ``figure-{id}``.
        question: the title.
        answer: one sentence that answers it, with the number and its null, control or chance.
        figure: plotly figure without template; the page colours it for light and dark paper.
        columns, rows: the data behind the fold; a float is printed rounded.
        note: what was left out or merged before drawing; None when nothing was.
        warning: why the figure may mislead; None when there is no reason.
    """

    id: str
    question: str
    answer: str
    figure: go.Figure
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str | None = None
    warning: str | None = None


def clipped(
    rows: Sequence[tuple[Cell, ...]], what: str, total: int | None = None
) -> tuple[tuple[tuple[Cell, ...], ...], str | None]:
    """The first TABLE_ROWS rows, and a note that says so when there are more (``total``, by default all of them)."""
    if len(rows) <= TABLE_ROWS:
        return tuple(rows), None
    return tuple(rows[:TABLE_ROWS]), f"The table lists the first {TABLE_ROWS} of {total or len(rows)} {what}."


def notes(*parts: str | None) -> str | None:
    """Notes that exist, as one paragraph; None when there is none."""
    return " ".join(part for part in parts if part) or None
