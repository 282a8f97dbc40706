"""Colours and bar patterns, told apart by colour-blind readers and in grey print, on light and on dark paper."""

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from geointerp.report.wording import plotly_text

BLUE, ORANGE, GREEN = "#0072B2", "#E69F00", "#009E73"
"""Of Okabe and Ito's colours (2008)."""

GREY = "#8A9099"  # nulls, controls and chance, in every figure

CLASS_COLOURS: dict[str, str] = {"gate": BLUE, "data-dependent": ORANGE, "always-on": GREEN, "always-off": GREY}
CLASS_PATTERNS: dict[str, str] = {"gate": "", "data-dependent": "/", "always-on": "x", "always-off": "."}

SEQUENTIAL = "Cividis"

NAMED_BARS = 24  # more bars than this go without names and numbers of their own


def figure(height: int, **layout: Any) -> go.Figure:
    """An empty figure without template: the page gives paper, text and grid their colours, light or dark."""
    base: dict[str, Any] = {
        "template": "none",
        "height": height,
        "margin": {"l": 56, "r": 16, "t": 28, "b": 48},
        "showlegend": False,
        "bargap": 0.35,
        "hoverlabel": {"align": "left"},
        "legend": {"orientation": "h", "x": 0, "y": 1.0, "yanchor": "bottom", "xanchor": "left"},
    }
    return go.Figure(layout=base | layout)


def relation_axis(names: Sequence[str]) -> dict[str, Any]:
    """Settings of a vertical axis with a bar a relation, the first on top: named where few enough to read."""
    named = {"tickvals": list(range(len(names))), "ticktext": [plotly_text(name, 18) for name in names]}
    return {
        "autorange": "reversed",
        "automargin": True,
        **(named if len(names) <= NAMED_BARS else {"title": {"text": "relation"}}),
    }


def overlaid(shape: str) -> dict[str, Any]:
    """Pattern over a full colour: a second channel that leaves room for text."""
    return {"shape": shape, "size": 7, "solidity": 0.18, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.75)"}


def null_bar(**marker: Any) -> dict[str, Any]:
    """Marker of a bar that shows a null or a control: grey and hatched."""
    return {"color": GREY, "pattern": {"shape": "/", "size": 5, "solidity": 0.35}} | marker
