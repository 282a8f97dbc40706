"""Figures of gating, a set a layer: which units each relation opens, and how many of them are gates."""

import math

import numpy as np
import plotly.graph_objects as go
import torch
from jaxtyping import Int
from torch import Tensor

from geointerp.facts.table import FactTable
from geointerp.measures.gating import UNIT_CLASSES, Gating, LayerGating
from geointerp.report.figures_overlap import overlap_panel
from geointerp.report.heatmaps import CELLS_WITH_NAMES, aggregate, array, colour_scale, rates, ticks
from geointerp.report.palette import CLASS_COLOURS, CLASS_PATTERNS, GREEN, figure, null_bar, overlaid
from geointerp.report.panel import Panel, clipped, notes
from geointerp.report.wording import hover_names, number

CLASS_ORDER = ("gate", "data-dependent", "always-on", "always-off")  # left to right
TABLE_RELATIONS = 8  # columns of firing rates behind the fold


def unit_order(layer: LayerGating) -> Int[Tensor, " unit"]:
    """Unit ids from left to right: by class; gates by the set of relations they open for; the others by the relation
    they favour most; then by falling firing rate; then by id."""
    rate = array(layer.firing_rate)
    rate = np.where(np.isnan(rate), 0.0, rate)
    rank = np.array([CLASS_ORDER.index(name) for name in UNIT_CLASSES])[layer.classes.cpu().numpy()]
    is_gate = rank == CLASS_ORDER.index("gate")
    opens = rate > 0.5
    # One key a relation, the first the most significant: gates that open for it come before those that do not.
    pattern = [np.where(is_gate, ~row, False) for row in opens]
    excess = rate - rate.mean(0)
    favourite = np.where(is_gate, 0, excess.argmax(0))
    how_many = np.where(is_gate, opens.sum(0), 0)
    keys = [np.arange(rate.shape[1]), -excess.max(0).round(3), favourite, *reversed(pattern), how_many, rank]
    return torch.from_numpy(np.lexsort(keys).astype(np.int64))


def gating_panels(gating: Gating, facts: FactTable) -> tuple[Panel, ...]:
    """Three panels a layer: firing rates, classes, overlap (the last only with two relations or more)."""
    panels: list[Panel] = []
    for index, layer in enumerate(gating.layers):
        where = f"Layer {index}: " if len(gating.layers) > 1 else ""
        panels += [
            firing_panel(layer, facts, index, where),
            classes_panel(layer, gating, index, where),
        ]
        if facts.n_relations > 1:
            panels.append(overlap_panel(layer, facts, index, where))
    return tuple(panels)


def firing_panel(layer: LayerGating, facts: FactTable, index: int, where: str = "") -> Panel:
    """Heatmap of firing rates, relations down and units across in ``unit_order``, with the classes as a strip below."""
    order = unit_order(layer)
    names = [facts.relation_name(r) for r in range(facts.n_relations)]
    classes = [UNIT_CLASSES[c] for c in layer.classes.tolist()]
    ordered = array(layer.firing_rate)[:, order.numpy()]
    drawn, note = aggregate(ordered)
    n_units = len(classes)
    if drawn.size <= CELLS_WITH_NAMES and note is None:
        whole = hover_names(names, n_units)
        labels = [[[name, f"unit {u}, {classes[u]}"] for u in order.tolist()] for name in whole]
        hover = "%{customdata[0]} opens %{customdata[1]}<br>for %{z}% of subjects"
    else:
        labels, hover = None, "row %{y}, column %{x}<br>open for %{z}% of subjects"
    plot = figure(
        max(210, min(560, 110 + 40 * len(drawn))),
        xaxis={"showticklabels": False, "ticks": "", "showgrid": False, "zeroline": False, "anchor": "y"},
        yaxis={
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
            "automargin": True,
            **ticks(names, len(drawn)),
        },
        margin={"l": 40, "r": 8, "t": 40, "b": 60},
    )
    plot.add_trace(rates(drawn, hover=hover, labels=labels, colorbar=colour_scale("firing rate")))
    _mark_classes(plot, classes, drawn.shape[1])
    rows, more = clipped(_firing_rows(layer, order, classes, facts), "units")
    shown = min(facts.n_relations, TABLE_RELATIONS)
    return Panel(
        id=f"gating-{index}",
        question=f"{where}{'w' if where else 'W'}hich hidden units does each relation open?",
        answer=(
            f"Whether a unit is on tells {number(layer.information_mean)} bits about the relation, mean over units, "
            f"against {number(layer.information_null)} bits when relation labels are shuffled; "
            f"{layer.class_counts[UNIT_CLASSES.index('gate')]} of {n_units} units are gates, against "
            f"{number(layer.gates_null)} expected of shuffled labels."
        ),
        figure=plot,
        columns=("unit", "class", "information, bits", *(f"on for {names[r]}" for r in range(shown))),
        rows=rows,
        note=notes(
            "Units from left to right: by class, then by the relations they open for, then by firing rate.",
            note,
            more,
            f"The table gives the first {shown} of {len(names)} relations." if shown < len(names) else None,
        ),
    )


def _mark_classes(plot: go.Figure, classes: list[str], drawn: int) -> None:
    """A strip above the cells, coloured by class, and a line of text that counts the classes in its order.

    x runs over drawn columns, -0.5 .. drawn - 0.5.
    """
    start, per_column, said = 0, drawn / len(classes), []
    for name in CLASS_ORDER:
        count = classes.count(name)
        if count == 0:
            continue
        left, right = start * per_column - 0.5, (start + count) * per_column - 0.5
        plot.add_shape(
            type="rect",
            x0=left,
            x1=right,
            yref="paper",
            ysizemode="pixel",  # a strip of 8 pixels however tall the cells are
            yanchor=1,
            y0=4,
            y1=12,
            fillcolor=CLASS_COLOURS[name],
            line={"width": 0},
        )
        if start:
            plot.add_shape(type="line", x0=left, x1=left, yref="paper", y0=0, y1=1, line={"color": "#fff", "width": 2})
        said.append(f'<span style="color:{CLASS_COLOURS[name]}">■</span> {count} {name}')
        start += count
    plot.add_annotation(
        xref="paper",
        x=0,
        xanchor="left",
        yref="paper",
        y=1,
        yshift=14,
        yanchor="bottom",
        text="  ".join(said),
        showarrow=False,
    )


def _firing_rows(
    layer: LayerGating, order: Int[Tensor, " unit"], classes: list[str], facts: FactTable
) -> list[tuple[str | int | float | None, ...]]:
    rate = array(layer.firing_rate)[:TABLE_RELATIONS]
    information = array(layer.information)
    return [(u, classes[u], float(information[u]), *map(float, rate[:, u])) for u in order.tolist()]


def classes_panel(layer: LayerGating, gating: Gating, index: int, where: str = "") -> Panel:
    """Units of each class beside the shuffled-label null, and what the pre-activations vary with."""
    counts: dict[str, int] = dict(zip(UNIT_CLASSES, layer.class_counts, strict=True))
    n_units = sum(layer.class_counts)
    parts = ("relation", "subject", "interaction")
    varied = not any(math.isnan(v) for v in layer.variance)
    plot = figure(
        400,
        xaxis={"anchor": "y", "title": {"text": "units"}, "range": [0, n_units * 1.18], "nticks": 6},
        yaxis={
            "domain": [0.44, 1],
            "autorange": "reversed",
            "automargin": True,
            "tickvals": [0, 1, 2, 3, 4],
            "ticktext": ["gate", "gate, shuffled labels", "data-dependent", "always-on", "always-off"],
        },
        xaxis2={
            "anchor": "y2",
            "title": {"text": "share of pre-activation variance"},
            "range": [0, 1],
            "tickformat": ".0%",
        },
        yaxis2={"domain": [0, 0.13], "showticklabels": False, "ticks": "", "showgrid": False, "zeroline": False},
        barmode="stack",
        bargap=0.3,
        margin={"l": 56, "r": 16, "t": 8, "b": 48},
    )
    for at, name in ((0, "gate"), (2, "data-dependent"), (3, "always-on"), (4, "always-off")):
        plot.add_bar(
            orientation="h",
            x=[counts[name]],
            y=[at],
            marker={"color": CLASS_COLOURS[name], "pattern": overlaid(CLASS_PATTERNS[name])},
            text=[str(counts[name])],
            textposition="outside",
            cliponaxis=False,
            hovertemplate=f"{name}: %{{x}} of {n_units} units<extra></extra>",
        )
    plot.add_bar(
        orientation="h",
        x=[layer.gates_null],
        y=[1],
        marker=null_bar(),
        text=[number(layer.gates_null)],
        textposition="outside",
        cliponaxis=False,
        hovertemplate=f"expected of shuffled labels: {number(layer.gates_null)} gates<extra></extra>",
    )
    for name, share, colour, pattern in zip(
        parts,
        layer.variance,
        (CLASS_COLOURS["gate"], GREEN, CLASS_COLOURS["data-dependent"]),
        ("", "x", "/"),
        strict=True,
    ):
        if varied:
            plot.add_bar(
                orientation="h",
                x=[share],
                y=[0],
                xaxis="x2",
                yaxis="y2",
                marker={"color": colour, "pattern": overlaid(pattern)},
                text=[f"{name} {share:.0%}" if share > 0.12 else ""],
                textposition="inside",
                insidetextanchor="middle",
                hovertemplate=f"{name}: %{{x:.1%}}<extra></extra>",
            )
    split = (
        f"the pre-activations vary with the relation to {layer.variance[0]:.0%}, with the subject to "
        f"{layer.variance[1]:.0%} and with their interaction to {layer.variance[2]:.0%}"
        if varied
        else "the variance of the pre-activations cannot be split"
    )
    return Panel(
        id=f"classes-{index}",
        question=f"{where}{'h' if where else 'H'}ow many units are gates?",
        answer=(
            f"{counts['gate']} of {n_units} units are on or off by the relation alone, against "
            f"{number(layer.gates_null)} expected when relation labels are shuffled; {split}."
        ),
        figure=plot,
        columns=("quantity", "observed", "null, shuffled labels"),
        rows=(
            *((f"units: {name}", counts[name], layer.gates_null if name == "gate" else None) for name in CLASS_ORDER),
            ("information about the relation, bits a unit", layer.information_mean, layer.information_null),
            *((f"variance share: {name}", share, None) for name, share in zip(parts, layer.variance, strict=True)),
        ),
        note=(
            f"A firing rate within {gating.near:g} of 0 or 1 counts as off or on. Always-off units are dead. The "
            f"variance split rests on the {gating.n_complete} subjects that have every relation; the null on "
            f"{gating.null_draws} shuffles of relation labels within each subject."
        ),
    )
