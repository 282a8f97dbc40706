"""Figures of training: loss and recall along the way, and recall relation by relation at the end."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from geointerp.facts.table import FactTable
from geointerp.models.recall import Recall
from geointerp.report.palette import BLUE, GREY, NAMED_BARS, ORANGE, figure, relation_axis
from geointerp.report.panel import Panel, clipped, notes
from geointerp.report.wording import hover_names, in_sentence, number


def training_panel(metrics: Sequence[Mapping[str, Any]], facts: FactTable, *, finished: bool = True) -> Panel:
    """Loss and recall on all facts at every evaluation.

    Args:
        metrics: evaluations, oldest first, as ``Run.metrics``: step, loss (nats, or None), recall.
        facts: the table trained on, for chance.
        finished: False when training was interrupted, which the answer then says.
    """
    chance, blind = 1 / facts.n_attributes, math.log(facts.n_attributes)
    last = metrics[-1]
    steps = [record["step"] for record in metrics]
    plot = figure(
        380,
        xaxis={"anchor": "y", "matches": "x2", "showticklabels": False},
        xaxis2={"anchor": "y2", "title": {"text": "training step"}, "rangemode": "tozero"},
        yaxis={
            "domain": [0.56, 1],
            "type": "log",
            "title": {"text": "loss, nats"},
            "exponentformat": "power",
            "nticks": 6,
        },
        yaxis2={"domain": [0, 0.44], "title": {"text": "recall"}, "range": [-0.04, 1.06], "nticks": 5},
        margin={"l": 64, "r": 16, "t": 12, "b": 48},
    )
    line = {"mode": "lines+markers", "marker": {"size": 6}}
    plot.add_scatter(
        x=steps,
        y=[record["loss"] for record in metrics],
        xaxis="x",
        yaxis="y",
        **line,
        line={"color": BLUE, "width": 2},
        name="loss",
        hovertemplate="step %{x}: loss %{y:.3g} nats<extra></extra>",
    )
    plot.add_scatter(
        x=steps,
        y=[record["recall"] for record in metrics],
        xaxis="x2",
        yaxis="y2",
        mode="lines+markers",
        marker={"size": 6, "symbol": "diamond"},
        line={"color": ORANGE, "width": 2},
        name="recall",
        hovertemplate="step %{x}: recall %{y:.4f}<extra></extra>",
    )
    for axis, value, text in (("", blind, "a blind guess"), ("2", chance, "chance")):
        plot.add_shape(
            type="line", xref="paper", x0=0, x1=1, yref=f"y{axis}", y0=value, y1=value,
            line={"color": GREY, "width": 1.5, "dash": "dash"},
        )  # fmt: skip
        plot.add_annotation(
            xref="paper", x=1, xanchor="right", yref=f"y{axis}", y=math.log10(value) if axis == "" else value,
            yanchor="bottom", text=f"{text}, {number(value)}", showarrow=False,
        )  # fmt: skip
    loss = float("nan") if last["loss"] is None else last["loss"]
    rows, more = clipped([(r["step"], r["loss"], r["recall"], r.get("learning_rate")) for r in metrics], "evaluations")
    return Panel(
        id="training",
        question="Does the model come to recall its facts?",
        answer=(
            f"After {last['step']} steps it recalls {number(last['recall'])} of {facts.n_facts} facts, against "
            f"{number(chance)} by chance; its loss is {number(loss)} nats, against {number(blind)} for a blind guess."
            + ("" if finished else " Training was interrupted and can be resumed.")
        ),
        figure=plot,
        columns=("step", "loss, nats", "recall", "learning rate"),
        rows=rows,
        note=notes("Loss and recall are of all facts, without noise.", more),
    )


def recall_panel(found: Recall, facts: FactTable) -> Panel:
    """Recall of each relation as trained, beside chance.

    Args:
        found: of the rows themselves, one number a relation (NaN where a relation has no fact).
        facts: the table, for names and chance.
    """
    names = [facts.relation_name(r) for r in range(facts.n_relations)]
    chance = 1 / facts.n_attributes
    known = [(value, r) for r, value in enumerate(found.by_relation) if not math.isnan(value)]
    (lowest, worst), (highest, best) = min(known), max(known, key=lambda pair: (pair[0], -pair[1]))
    asked = facts.present.sum(1).tolist()
    few = len(names) <= NAMED_BARS
    plot = figure(
        max(150, min(640, 76 + 30 * len(names))),
        xaxis={"title": {"text": "recall"}, "range": [0, 1.12], "tickvals": [0, 0.25, 0.5, 0.75, 1]},
        yaxis=relation_axis(names),
    )
    plot.add_bar(
        orientation="h",
        x=[None if math.isnan(v) else v for v in found.by_relation],
        y=list(range(len(names))),
        marker={"color": BLUE},
        text=[number(v) for v in found.by_relation] if few else None,
        textposition="outside",
        cliponaxis=False,
        customdata=list(zip(hover_names(names), asked, strict=True)),
        hovertemplate="%{customdata[0]}<br>recall %{x:.4f} of %{customdata[1]} facts<extra></extra>",
    )
    plot.add_shape(
        type="line", x0=chance, x1=chance, yref="paper", y0=0, y1=1, line={"color": GREY, "width": 2, "dash": "dash"}
    )
    plot.add_annotation(
        x=chance, yref="paper", y=1, yanchor="bottom", xanchor="left", showarrow=False, text=f"chance, {number(chance)}"
    )
    spread = (
        f"The lowest of {len(known)} relations is {in_sentence(names[worst])} with recall {number(lowest)}, the "
        f"highest {in_sentence(names[best])} with {number(highest)}"
        if highest > lowest
        else f"Recall is {number(highest)} in {'every one of ' if len(known) > 1 else ''}{len(known)} "
        f"relation{'s' * (len(known) > 1)}"
    )
    rows, more = clipped(
        [(names[r], found.by_relation[r], asked[r], facts.relation_kinds[r]) for r in range(len(names))], "relations"
    )
    return Panel(
        id="recall",
        question="Are all relations recalled alike?",
        answer=f"{spread}, against {number(chance)} by chance.",
        figure=plot,
        columns=("relation", "recall", "facts", "kind"),
        rows=rows,
        note=more,
    )
