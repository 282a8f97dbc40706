"""The figure of transfer: recall of worlds never trained on, beside chance, shuffled maps and the trained facts."""

import math

from geointerp.measures.transfer import Transfer
from geointerp.report.palette import BLUE, GREY, ORANGE, figure
from geointerp.report.panel import Panel
from geointerp.report.wording import number


def transfer_panel(transfer: Transfer) -> Panel:
    """Dots on a logarithmic axis, so that chance is in sight; a recall of 0 stands at the left edge, open."""
    values = [*transfer.recalls, transfer.chance, transfer.trained]
    left = 10 ** math.floor(math.log10(min([v for v in values if v > 0], default=0.1)) - 0.05)
    lines: list[tuple[str, list[float], str, str]] = [
        ("new worlds", list(transfer.recalls), "circle", BLUE),
        ("their mean", [transfer.recall], "diamond", BLUE),
        ("trained facts", [transfer.trained], "square", ORANGE),
        ("guess in relation", [transfer.chance_in_relation], "triangle-up", GREY),
        ("blind guess", [transfer.chance], "triangle-down", GREY),
    ]
    if transfer.shuffled is not None:
        lines.insert(3, ("maps shuffled", [transfer.shuffled], "x", GREY))
    plot = figure(
        90 + 34 * len(lines),
        xaxis={
            "type": "log",
            "range": [math.log10(left), 0.08],
            "title": {"text": "recall"},
            "tickvals": [10.0**-k for k in range(10)],
            "ticktext": [f"{10.0**-k:g}" if k < 4 else f"10<sup>\u2212{k}</sup>" for k in range(10)],
        },
        yaxis={
            "autorange": "reversed",
            "automargin": True,
            "tickvals": list(range(len(lines))),
            "ticktext": [line[0] for line in lines],
            "range": [len(lines) - 0.4, -0.6],
        },
        margin={"l": 56, "r": 16, "t": 8, "b": 48},
    )
    for row, (name, points, symbol, colour) in enumerate(lines):
        single = len(points) == 1
        plot.add_scatter(
            x=[max(p, left) for p in points],
            y=[row] * len(points),
            mode="markers+text" if single else "markers",
            marker={
                "symbol": [symbol + ("" if p > 0 else "-open") for p in points],
                "color": colour,
                "size": 11,
                "opacity": 1 if single else 0.75,
            },
            text=[number(p) for p in points] if single else None,
            textposition=["middle left" if p > 0.3 else "middle right" for p in points],
            cliponaxis=False,
            customdata=[number(p) for p in points],
            hovertemplate=f"{name}: recall %{{customdata}}<extra></extra>",
        )
    shuffled = "" if transfer.shuffled is None else f", {number(transfer.shuffled)} with the maps shuffled"
    return Panel(
        id="transfer",
        question="Do facts never trained on come out right when only the subject rows are rewritten?",
        answer=(
            f"Rows rewritten for {transfer.worlds} new worlds recall {number(transfer.recall)} of their facts on "
            f"average (sd {number(transfer.sd)}), against {number(transfer.chance)} by chance{shuffled} and "
            f"{number(transfer.trained)} of the trained facts through rows rebuilt by the same maps."
        ),
        figure=plot,
        columns=("facts and rows", "recall"),
        rows=(
            *((f"new world {i}", value) for i, value in enumerate(transfer.recalls)),
            ("new worlds, mean", transfer.recall),
            ("trained facts, rows rebuilt by the same maps", transfer.trained),
            ("new worlds, each map given to the next relation", transfer.shuffled),
            ("a guess among the attributes of the relation", transfer.chance_in_relation),
            ("a blind guess over all attributes", transfer.chance),
        ),
        note="Everything but the subject rows is frozen; the new rows are the fitted sums for the new facts.",
        warning=(
            "the maps come from a fit that any rows pass exactly, so they are one choice among many"
            if transfer.saturated
            else None
        ),
    )
