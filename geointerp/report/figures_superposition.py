"""Figures of superposition: R2 beside its nulls, the network's answers to reconstructed rows, shares of relations."""

import math

from geointerp.facts.table import FactTable
from geointerp.measures.superposition import Superposition
from geointerp.report.palette import BLUE, GREEN, GREY, NAMED_BARS, ORANGE, figure, null_bar, overlaid, relation_axis
from geointerp.report.panel import Panel, clipped, notes
from geointerp.report.wording import hover_names, in_sentence, joined, number

R2_FLOOR = -1.0  # bars of R2 end here; leave-one-out R2 of nulls goes to minus hundreds
HATCHED = {"shape": "x", "size": 6, "solidity": 0.25}


def superposition_panel(linear: Superposition, scalar: Superposition | None) -> Panel:
    """In-sample and leave-one-out R2 of both kinds of maps (scalar ones may be missing), beside permutation nulls."""
    kinds = [linear] if scalar is None else [linear, scalar]
    bars = [
        (f"{fit.kind} maps,<br>{how}", fit, value, null, how == "in-sample" and fit.saturated)
        for fit in kinds
        for how, value, null in (
            ("leave-one-out", fit.r2_leave_one_out, fit.null_leave_one_out),
            ("in-sample", fit.r2_in_sample, fit.null_in_sample),
        )
    ]
    values = [value for _, _, value, null, _ in bars for value in (value, null.mean) if not math.isnan(value)]
    floor = max(R2_FLOOR, min([0.0, *values]))
    cut = any(value < R2_FLOOR for value in values)
    plot = figure(
        104 + 66 * len(bars),
        barmode="group",
        showlegend=True,
        bargap=0.3,
        xaxis={"title": {"text": "R2"}, "range": [floor * 1.6 - 0.05, 1.35], "zeroline": True, "nticks": 6},
        yaxis={
            "autorange": "reversed",
            "automargin": True,
            "tickvals": list(range(len(bars))),
            "ticktext": [label + (":<br>no meaning" if meaningless else "") for label, *_, meaningless in bars],
            "showgrid": False,
        },
        margin={"l": 56, "r": 8, "t": 40, "b": 48},
    )
    plot.add_bar(
        name="observed",
        orientation="h",
        y=list(range(len(bars))),
        x=[max(floor, value) for _, _, value, _, _ in bars],
        marker={
            "color": [GREY if meaningless else BLUE for *_, meaningless in bars],
            "pattern": {**HATCHED, "shape": ["x" if meaningless else "" for *_, meaningless in bars]},
        },
        text=[number(v) for _, _, v, _, _ in bars],
        textposition="outside",
        constraintext="none",
        cliponaxis=False,
        customdata=[[number(v)] for _, _, v, _, _ in bars],
        hovertemplate="observed R2 %{customdata[0]}<extra></extra>",
    )
    plot.add_bar(
        name="answers permuted (null)",
        orientation="h",
        y=list(range(len(bars))),
        x=[max(floor, null.mean) for *_, null, _ in bars],
        marker=null_bar(),
        error_x={
            "type": "data",
            "array": [null.sd if null.mean > floor else 0 for *_, null, _ in bars],
            "color": GREY,
            "thickness": 1.5,
            "width": 4,
        },
        text=[number(null.mean) for *_, null, _ in bars],
        textposition="outside",
        constraintext="none",
        cliponaxis=False,
        customdata=[[number(n.mean), number(n.sd), number(n.p), n.draws] for *_, n, _ in bars],
        hovertemplate="permuted answers: R2 %{customdata[0]}, sd %{customdata[1]}<br>"
        "p = %{customdata[2]} over %{customdata[3]} draws<extra></extra>",
    )
    null = linear.null_leave_one_out
    compared = (
        ""
        if scalar is None
        else f"; one number a relation in place of a matrix reaches {number(scalar.r2_leave_one_out)}, against "
        f"{number(scalar.null_leave_one_out.mean)}"
    )
    return Panel(
        id="superposition",
        question="Are subject rows sums of linear images of their attribute vectors?",
        answer=(
            f"Linear maps predict the rows of subjects left out of the fit with R2 {number(linear.r2_leave_one_out)}, "
            f"against {number(null.mean)} (sd {number(null.sd)}) when answers are permuted, p = {number(null.p)} over "
            f"{null.draws} draws{compared}."
        ),
        figure=plot,
        columns=("maps", "R2", "observed", "null mean", "null sd", "p", "draws", "free directions", "condition"),
        rows=tuple(
            (
                fit.kind,
                "leave-one-out" if i % 2 == 0 else "in-sample, meaningless here" if meaningless else "in-sample",
                value,
                null.mean,
                null.sd,
                null.p,
                null.draws,
                fit.rank,
                fit.condition,
            )
            for i, (_, fit, value, null, meaningless) in enumerate(bars)
        ),
        note=notes(
            f"R2 is variance-weighted about the mean row, over {linear.n_subjects} subjects; attribute vectors are the "
            f"{'columns of the unembedding' if linear.vectors == 'unembed' else 'input embeddings'}.",
            f"Bars end at {number(R2_FLOOR)}; their labels give the value." if cut else None,
        ),
        warning=linear.warning,
    )


def reconstruction_panel(linear: Superposition, scalar: Superposition | None, chance: float) -> Panel | None:
    """Recall with the rows, and with the fitted sums in their place; None when no network was measured.

    Args:
        chance: a blind guess, 1/A.
    """
    if linear.recall_rows is None or linear.recall_reconstructed is None:
        return None
    bars = [
        ("the rows themselves", linear.recall_rows, {"color": GREEN}),
        ("sums, linear maps", linear.recall_reconstructed, {"color": BLUE}),
        ("a blind guess", chance, null_bar()),
    ]
    by_scalar = None if scalar is None else scalar.recall_reconstructed
    if by_scalar is not None:
        bars.insert(2, ("sums, scalar maps", by_scalar, {"color": ORANGE, "pattern": overlaid("/")}))
    plot = figure(
        210,
        xaxis={"title": {"text": "recall"}, "range": [0, 1.15], "tickvals": [0, 0.25, 0.5, 0.75, 1]},
        yaxis={
            "autorange": "reversed",
            "automargin": True,
            "tickvals": list(range(len(bars))),
            "ticktext": [b[0] for b in bars],
        },
    )
    for i, (name, value, marker) in enumerate(bars):
        plot.add_bar(
            orientation="h",
            x=[value],
            y=[i],
            marker=marker,
            text=[number(value)],
            textposition="outside",
            cliponaxis=False,
            hovertemplate=f"{name}: recall %{{x:.4f}}<extra></extra>",
        )
    return Panel(
        id="reconstruction",
        question="Does the network answer from the fitted sums as it does from the rows?",
        answer=(
            f"With the fitted sums in place of the rows, recall is {number(linear.recall_reconstructed)} for linear "
            "maps"
            + ("" if by_scalar is None else f" and {number(by_scalar)} for scalar maps")
            + f", against {number(linear.recall_rows)} with the rows themselves and {number(chance)} by chance."
        ),
        figure=plot,
        columns=("input to the network", "recall"),
        rows=tuple((name, value) for name, value, _ in bars),
        note="Every fact was in the fit; facts that were not are the subject of the question on transfer, below.",
        warning=(
            "the linear fit passes through any rows exactly here, so its recall equals that of the rows by construction"
            if linear.saturated
            else None
        ),
    )


def shares_panel(fit: Superposition, facts: FactTable) -> Panel:
    """Leave-one-out R2 lost when a relation is dropped from the linear fit; grey and hatched where not determined."""
    names = [facts.relation_name(r) for r in range(facts.n_relations)]
    known = [(share, r) for r, share in enumerate(fit.shares) if fit.identifiable[r] and not math.isnan(share)]
    drawn = [0.0 if math.isnan(share) else share for share in fit.shares]
    lost = [r for r, identifiable in enumerate(fit.identifiable) if not identifiable]
    few = len(names) <= NAMED_BARS
    plot = figure(
        max(150, min(640, 76 + 30 * len(names))),
        xaxis={
            "title": {"text": "leave-one-out R2 lost without the relation"},
            "zeroline": True,
            "nticks": 6,
            "range": [1.25 * min(0.0, *drawn), 1.25 * max(0.0, *drawn) or 0.1],  # room for labels at either end
        },
        yaxis=relation_axis(names),
        margin={"l": 56, "r": 64, "t": 12, "b": 48},
    )
    plot.add_bar(
        orientation="h",
        x=[None if math.isnan(s) else s for s in fit.shares],
        y=list(range(len(names))),
        marker={
            "color": [BLUE if fit.identifiable[r] else GREY for r in range(len(names))],
            "pattern": {**HATCHED, "shape": ["" if fit.identifiable[r] else "x" for r in range(len(names))]},
        },
        text=[number(s) for s in fit.shares] if few else None,
        textposition="outside",
        cliponaxis=False,
        customdata=list(
            zip(hover_names(names), ["" if i else ", not determined" for i in fit.identifiable], strict=True)
        ),
        hovertemplate="%{customdata[0]}<br>R2 lost %{x:.4f}%{customdata[1]}<extra></extra>",
    )
    whole = (
        f"all relations together reach {number(fit.r2_leave_one_out)}, and permuted answers "
        f"{number(fit.null_leave_one_out.mean)}"
    )
    if known:
        (low, least), (high, most) = min(known), max(known, key=lambda pair: (pair[0], -pair[1]))
        said = (
            f"Dropping a relation costs from {number(low)} ({in_sentence(names[least])}) to {number(high)} "
            f"({in_sentence(names[most])}) of leave-one-out R2"
            if len(known) > 1
            else f"Dropping {in_sentence(names[most])} costs {number(high)} of leave-one-out R2"
        )
        said += f"; {whole}"
    else:
        said = f"No relation has a share of its own: each is explained by the others; {whole}"
    if known and lost:
        listed = joined([in_sentence(names[r]) for r in lost[:5]]) + (f" (and {len(lost) - 5} more)" * (len(lost) > 5))
        said += f"; the share{'s' * (len(lost) > 1)} of {listed} {'are' if len(lost) > 1 else 'is'} not determined"
    rows, more = clipped(
        [
            (names[r], fit.shares[r], fit.shares_in_sample[r], "yes" if fit.identifiable[r] else "no")
            for r in range(len(names))
        ],
        "relations",
    )
    return Panel(
        id="shares",
        question="How much of the rows does each relation account for?",
        answer=said + ".",
        figure=plot,
        columns=("relation", "leave-one-out R2 lost", "in-sample R2 lost", "determined"),
        rows=rows,
        note=notes(
            "Grey, hatched bars are not determined: those relations cannot be told apart from the others."
            if lost
            else None,
            more,
        ),
    )
