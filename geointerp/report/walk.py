"""The MLP as a selector, one fact at a time: what the page needs to walk from a row to its answer.

For every subject and relation shown, three stages: the components of the row, the units that open, the attributes that
come out. The network runs here, once; the page only looks things up.
"""

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from geointerp.measures.analysis import Analysis
from geointerp.measures.gating import UNIT_CLASSES
from geointerp.measures.memory import FactMemory
from geointerp.measures.superposition import Superposition
from geointerp.models.recall import wins
from geointerp.report.figures_gating import unit_order
from geointerp.report.heatmaps import array
from geointerp.report.panel import notes
from geointerp.report.wording import clean, number

BUDGET = 400_000  # bytes of numbers and names, before base64 adds a third
LARGEST_UNITS = 512  # of a layer drawn
LARGEST_RELATIONS = 32
TOP = 5  # attributes shown


@dataclass(frozen=True, kw_only=True, eq=False)
class Walk:
    """What the page shows of single facts.

    Attributes:
        data: plain JSON types; arrays as base64 of little-endian numbers, row-major:
            ``pre`` half bytes ``[subject relation unit]`` (all layers' drawn units in a row; see ``half_bytes``),
            ``open`` uint16 ``[subject relation layer class]`` (units open, of all units),
            ``parts`` float32 ``[subject relation+2]`` (sizes over the row's: components, intercept, residual),
            ``own`` int32 ``[subject relation]`` (right attribute, -1 absent, as index into ``attributes``),
            ``rank`` int32 (of the right attribute, 0 the first), ``own_logit`` float32,
            ``top`` int32 and ``top_logit`` float32 ``[subject relation 5]``. Logits are above their mean.
        answer: one sentence with the recall of what is shown, beside chance.
        note: what was left out; None when nothing was.
        warning: why the components may mislead; None when there is no reason.
    """

    data: dict[str, Any]
    answer: str
    note: str | None
    warning: str | None


def even_sample(length: int, most: int) -> Int[Tensor, " kept"]:
    """``most`` ids out of ``range(length)``, evenly spaced from 0; all of them when they fit."""
    kept = min(length, most)
    return torch.arange(kept) * length // kept


def build_walk(memory: FactMemory, analysis: Analysis, budget: int = BUDGET) -> Walk:
    """Run the network on the subjects shown and pack what it did.

    Args:
        memory: with a network.
        analysis: its measures: the maps for the components, the classes and the order of the units.
        budget: bytes that numbers and names may take; beyond it the subjects are an even sample by id.

    Raises:
        MeasureError: the memory has no network.
    """
    logits, pre_activations = memory.logits_for("the walk"), memory.pre_activations_for("the walk")
    facts, layers = memory.facts, analysis.gating.layers
    relations = even_sample(facts.n_relations, LARGEST_RELATIONS)
    orders = [unit_order(layer) for layer in layers]
    drawn = [order[even_sample(len(order), LARGEST_UNITS)] for order in orders]
    each = _bytes_each(memory, len(relations), [len(d) for d in drawn])
    subjects = even_sample(facts.n_subjects, max(1, budget // each))

    n_top = min(TOP, facts.n_attributes)
    found: dict[str, list[np.ndarray]] = {name: [] for name in ("open", "own", "rank", "own_logit", "top", "top_logit")}
    pre: list[list[Tensor]] = [[] for _ in layers]
    right = asked_facts = 0
    classes = [torch.nn.functional.one_hot(layer.classes.cpu().long(), len(UNIT_CLASSES)) for layer in layers]
    rows = memory.rows[subjects.to(memory.rows.device)]
    for relation in relations.tolist():
        asked = torch.full((len(subjects),), relation, dtype=torch.int64, device=rows.device)
        out = logits(rows, asked).detach().float().cpu()
        hidden = [x.detach().float().cpu() for x in pre_activations(rows, asked)]
        own = facts.answers[relation, subjects]
        present = own >= 0
        right += int(wins(out[present], own[present]).sum())
        asked_facts += int(present.sum())
        level = out - out.mean(1, keepdim=True)
        top = level.topk(n_top, dim=1)
        own_logit = level.gather(1, own.clamp(min=0)[:, None]).squeeze(1)
        found["top"].append(top.indices.numpy())
        found["top_logit"].append(top.values.numpy())
        found["own"].append(own.numpy())
        found["own_logit"].append(torch.where(present, own_logit, 0.0).numpy())
        found["rank"].append(((level >= own_logit[:, None]).sum(1) - 1).numpy())
        counts = [(x > 0).long() @ kinds for x, kinds in zip(hidden, classes, strict=True)]
        found["open"].append(torch.stack(counts, dim=1).numpy())
        for layer, x in enumerate(hidden):
            pre[layer].append(x[:, drawn[layer]])
    codes, scales = zip(*(half_bytes(torch.stack(p, dim=1)) for p in pre), strict=True)  # each [subject relation unit]
    stacked = {name: np.stack(parts, axis=1) for name, parts in found.items()}
    used, own, top = _local_ids(stacked["own"], stacked["top"])

    data = {
        "subjects": [clean(facts.subject_name(s)) for s in subjects.tolist()],
        "relations": [clean(facts.relation_name(r)) for r in relations.tolist()],
        "attributes": [clean(facts.attribute_name(a)) for a in used],
        "classes": list(UNIT_CLASSES),
        "layers": [
            {
                "units": d.tolist(),
                "kinds": layer.classes.cpu()[d].tolist(),
                "total": len(order),
                "largest": scale,
            }
            for layer, order, d, scale in zip(layers, orders, drawn, scales, strict=True)
        ],
        "top_count": n_top,
        "pre": _pairs(np.concatenate(codes, axis=2)),
        "open": _packed(stacked["open"], "<u2"),
        "parts": _packed(_parts(memory, analysis, subjects, relations), "<f4"),
        "own": _packed(own, "<i4"),
        "rank": _packed(stacked["rank"], "<i4"),
        "own_logit": _packed(stacked["own_logit"], "<f4"),
        "top": _packed(top, "<i4"),
        "top_logit": _packed(stacked["top_logit"], "<f4"),
    }
    return Walk(
        data=data,
        answer=(
            f"Of the {asked_facts} facts that can be walked through here, {right} come out right "
            f"({number(right / max(1, asked_facts))}), against {number(1 / facts.n_attributes)} by chance."
        ),
        note=notes(
            _left_out("subjects", len(subjects), facts.n_subjects),
            _left_out("relations", len(relations), facts.n_relations),
            _left_out("hidden units a layer", max(map(len, drawn)), max(map(len, orders))),
            "Pre-activations are drawn in seven steps of size; open and closed are exact.",
        ),
        warning=_components_warning(analysis.superposition),
    )


def _left_out(what: str, shown: int, total: int) -> str | None:
    return f"An even sample of {shown} of {total} {what} is shown." if shown < total else None


def _bytes_each(memory: FactMemory, n_relations: int, units: list[int]) -> int:
    """Bytes that one more subject costs: its numbers, its name, and names of attributes."""
    facts = memory.facts
    numbers = n_relations * (-(-sum(units) // 2) + 8 * len(units) + 16 + 8 * TOP) + 8
    names = [
        sum(len(name.encode("utf-8", "replace")) for name in given) // len(given) + 3 if given else 8
        for given in (facts.subject_names, facts.attribute_names)
    ]
    return numbers + names[0] + 2 * n_relations * names[1]


def half_bytes(pre: Float[Tensor, "subject relation unit"]) -> tuple[UInt8[np.ndarray, "subject relation unit"], float]:
    """Codes 0..15 of pre-activations, and the largest size L: 1..7 open, 8..15 closed.

    With m = code (open) or code - 8 (closed), the size is about L (m/7)^2: small ones keep their differences.
    """
    largest = float(pre.abs().max()) or 1.0
    steps = (7 * (pre.abs() / largest).sqrt()).round()
    codes = torch.where(pre > 0, steps.clamp(min=1), steps + 8)
    return codes.to(torch.uint8).numpy(), float(f"{largest:.6g}")


def _pairs(codes: UInt8[np.ndarray, "subject relation unit"]) -> str:
    """Half bytes two by two, the first in the upper half, as base64."""
    flat = codes.ravel()
    flat = np.append(flat, np.zeros(len(flat) % 2, dtype=np.uint8))
    return _packed(flat[0::2] * 16 + flat[1::2], "u1")


def _components_warning(fit: Superposition) -> str | None:
    if fit.saturated:
        return (
            f"the fit passes through any rows exactly ({fit.n_subjects} subjects, {fit.rank} free directions), so the "
            "components are one choice among many, and no residual can be left"
        )
    if not all(fit.identifiable):
        return "the components of some relations cannot be told apart, so their sizes are one choice among many"
    return None


def _parts(
    memory: FactMemory, analysis: Analysis, subjects: Int[Tensor, " shown"], relations: Int[Tensor, " asked"]
) -> Float[np.ndarray, "shown asked_and_two"]:
    """|A_q u| of the relations shown, |c|, and the size of the residual, over the size of the row."""
    fit, facts = analysis.superposition, memory.facts
    vectors = memory.attributes.detach().cpu().double()
    rows = memory.rows[subjects.to(memory.rows.device)].detach().cpu().double()
    whole = fit.intercept.double().expand_as(rows).clone()
    sizes = torch.zeros(facts.n_relations, len(subjects), dtype=torch.float64)
    for relation in range(facts.n_relations):
        answers = facts.answers[relation, subjects]
        component = vectors[answers.clamp(min=0)] @ fit.maps[relation].double().T * (answers >= 0)[:, None]
        sizes[relation] = component.norm(dim=1)
        whole += component
    intercept = fit.intercept.double().norm().expand(1, len(subjects))
    sizes = torch.cat([sizes[relations], intercept, (rows - whole).norm(dim=1)[None]])
    length = rows.norm(dim=1)
    return array(torch.where(length > 0, sizes / length, 0.0).T)


def _local_ids(
    own: Int[np.ndarray, "subject relation"], top: Int[np.ndarray, "subject relation k"]
) -> tuple[list[int], Int[np.ndarray, "subject relation"], Int[np.ndarray, "subject relation k"]]:
    """The attributes that occur, and both arrays as indices into them (-1 stays)."""
    used = np.unique(np.concatenate([own[own >= 0].ravel(), top.ravel()]))
    return used.tolist(), np.where(own >= 0, np.searchsorted(used, own), -1), np.searchsorted(used, top)


def _packed(values: np.ndarray, dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype=dtype).tobytes()).decode("ascii")
