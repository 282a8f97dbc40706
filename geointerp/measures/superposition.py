"""Superposition: are subject rows sums of linear images of their attribute vectors?

Fits e_s = c + sum_r A_r u_{g_r(s)} by least squares and reports what keeps the fit honest beside it. Definition: the
project's own, after the claim of arXiv 2605.12426 that "subject embeddings encode linear superpositions of their
associated attribute vectors".
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from geointerp.errors import MeasureError
from geointerp.facts.table import FactTable
from geointerp.measures.least_squares import LinearMaps, ScalarMaps, relative_tolerance
from geointerp.measures.memory import AttributeVectors, FactMemory, Source, as_memory
from geointerp.models.recall import recall
from geointerp.plain import plain
from geointerp.randomness import generator
from geointerp.settings import check_choice, check_integer

Maps = Literal["linear", "scalar"]


@dataclass(frozen=True, kw_only=True)
class Null:
    """The same statistic on permuted answers.

    Attributes:
        mean, sd: over the draws.
        p: share of draws at least as large as what was observed, the observation counted among them.
        draws: how many.
    """

    mean: float
    sd: float
    p: float
    draws: int

    @classmethod
    def of(cls, observed: float, drawn: list[float]) -> "Null":
        values = torch.tensor(drawn, dtype=torch.float64)
        return cls(
            mean=float(values.mean()),
            sd=float(values.std(correction=0)),
            p=math.nan if math.isnan(observed) else (1 + int((values >= observed).sum())) / (1 + len(drawn)),
            draws=len(drawn),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Superposition:
    """A fit of subject rows as superpositions of attribute vectors, with its companions.

    R2 is variance-weighted over coordinates, about the mean row.

    Attributes:
        kind: 'linear' (A_r a matrix) or 'scalar' (A_r a number times the identity).
        vectors: attribute vectors used, 'unembed' or 'embed'.
        n_subjects: subjects with at least one fact; the others are left out. An absent fact contributes nothing.
        n_features: columns of the design, R*d or R.
        rank: of the centred design; the intercept would add 1.
        condition: largest over smallest singular value kept.
        r2_in_sample: about rank/(N-1) even for random rows.
        r2_leave_one_out: each subject predicted from the fit to all the others; at most 0 for random rows.
        null_in_sample, null_leave_one_out: the same when rows are permuted between subjects.
        saturated: N <= rank + 1, so that any rows at all are fitted exactly and r2_in_sample means nothing.
        identifiable: a relation's component is determined: it varies, and the other relations explain none of it.
        shares: leave-one-out R2 lost when the relation is dropped.
        shares_in_sample: in-sample R2 lost likewise.
        recall_rows: recall with the rows themselves; None without a network.
        recall_reconstructed: recall with the fitted rows in their place; None without a network.
        maps: A_r ``[relation d_model d_attribute]``, minimum norm.
        intercept: c ``[d_model]``.
    """

    kind: Maps
    vectors: AttributeVectors
    seed: int
    n_subjects: int
    n_features: int
    rank: int
    condition: float
    r2_in_sample: float
    r2_leave_one_out: float
    null_in_sample: Null
    null_leave_one_out: Null
    saturated: bool
    identifiable: tuple[bool, ...]
    shares: tuple[float, ...]
    shares_in_sample: tuple[float, ...]
    recall_rows: float | None
    recall_reconstructed: float | None
    maps: Float[Tensor, "relation d_model d_attribute"] = field(metadata={"large": True})
    intercept: Float[Tensor, " d_model"] = field(metadata={"large": True})

    @property
    def warning(self) -> str | None:
        """Why no conclusion may rest on r2_in_sample, or None."""
        if math.isnan(self.r2_in_sample):
            return "the rows are all the same, so there is nothing to explain and R2 is not defined"
        if self.saturated:
            return (
                f"in-sample R2 is meaningless here: {self.n_subjects} subjects and {self.rank} free directions fit any "
                f"rows exactly (N <= rank + 1); look at the leave-one-out R2 and its null, or use more subjects"
            )
        if not all(self.identifiable):
            lost = [r for r, known in enumerate(self.identifiable) if not known]
            return f"relations {lost} cannot be told apart from the others; their maps and shares are not determined"
        return None

    def rows(
        self, facts: FactTable, attributes: Float[Tensor, "attribute d_attribute"]
    ) -> Float[Tensor, "subject d_model"]:
        """The superpositions c + sum_r A_r u_{g_r(s)} of any facts: the old ones, or new ones never trained on."""
        return self.intercept + self.components(facts, attributes).sum(0)

    def components(
        self, facts: FactTable, attributes: Float[Tensor, "attribute d_attribute"]
    ) -> Float[Tensor, "relation subject d_model"]:
        """A_r u_{g_r(s)}, float64 on the CPU; zero where the fact is absent."""
        return einsum(self.maps, answer_vectors(facts, attributes), "r m d, r s d -> r s m")

    def check_fits(self, memory: FactMemory) -> None:
        """Raise MeasureError, naming the sizes, unless the maps lead from the memory's vectors to its rows."""
        n_relations, d_model, d_attribute = self.maps.shape
        have = (n_relations, d_model, d_attribute)
        need = (memory.facts.n_relations, memory.rows.shape[1], memory.attributes.shape[1])
        if have != need:
            raise MeasureError(
                f"the superposition has maps of {have[0]} relations, {have[1]} x {have[2]}, and the source needs "
                f"{need[0]} relations, {need[1]} x {need[2]}; decompose the same source"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, arrays included."""
        return plain(self) | {"warning": self.warning}


def answer_vectors(
    facts: FactTable, attributes: Float[Tensor, "attribute d_attribute"]
) -> Float[Tensor, "relation subject d_attribute"]:
    """u_{g_r(s)} of every fact in float64 on the CPU, zero where it is absent."""
    vectors = attributes.detach().cpu().double()[facts.answers.clamp(min=0)]
    return vectors * facts.present[..., None]


def decompose(
    source: Source,
    facts: FactTable | None = None,
    *,
    maps: Maps = "linear",
    vectors: AttributeVectors = "unembed",
    permutations: int = 100,
    seed: int = 0,
) -> Superposition:
    """Fit every subject row as c + sum_r A_r u_{g_r(s)}.

    Args:
        source: a run folder, a FactTransformer, a FactMemory, or bare tensors ``(rows [subject d_model],
            attribute vectors [attribute d_attribute])``, of any floating dtype.
        facts: the table; needed for a model or tensors.
        maps: 'linear', or 'scalar' (which needs d_attribute = d_model).
        vectors: attribute vectors of a model: columns of W_U ('unembed') or input embeddings ('embed').
        permutations: draws of the null, at least 1. Rows are permuted between subjects: the design stays the same, so
            a draw costs one projection.
        seed: of the permutations.

    Returns:
        Superposition; computed in float64, with a rank tolerance from the dtype of the data.

    Raises:
        MeasureError: values that are not finite (naming the first subject), or shapes that do not fit.
    """
    check_choice("maps", maps, ("linear", "scalar"))
    check_integer("permutations", permutations, 1)
    memory = as_memory(source, facts, vectors)
    facts = memory.facts
    used = facts.present.any(0)
    rows = memory.rows.cpu().double()[used]
    components = answer_vectors(facts, memory.attributes)[:, used]
    n_subjects = rows.shape[0]
    if n_subjects < 3:
        raise MeasureError(f"{n_subjects} subjects with facts: a fit that can fail needs at least 3")
    if maps == "scalar" and rows.shape[1] != components.shape[2]:
        raise MeasureError(
            f"scalar maps need rows and attribute vectors of one width, got {rows.shape[1]} and {components.shape[2]}; "
            "use maps='linear'"
        )
    data_dtype = max((memory.rows.dtype, memory.attributes.dtype), key=lambda t: torch.finfo(t).eps)
    tolerance = relative_tolerance(data_dtype, n_subjects, components.shape[0] * components.shape[2])
    design = LinearMaps.of(components, tolerance) if maps == "linear" else ScalarMaps(components, tolerance)
    mean = rows.mean(0)
    centred = rows - mean

    in_sample, leave_one_out = _r2(design, centred)
    drawn = []
    for draw in range(permutations):
        order = torch.randperm(n_subjects, generator=generator(seed, "permutation null", draw))
        drawn.append(_r2(design, centred[order]))
    shares, lost_ranks = [], []
    for relation in range(facts.n_relations):  # one at a time: each reduced design is as large as the whole
        rest = design.without(relation)
        shares.append(_r2(rest, centred))
        lost_ranks.append(design.rank - rest.rank)
    fitted_maps = design.maps(centred)
    intercept = mean - einsum(fitted_maps, components.mean(1), "r m d, r d -> m")

    result = Superposition(
        kind=maps,
        vectors=memory.vectors,
        seed=seed,
        n_subjects=n_subjects,
        n_features=design.n_features,
        rank=design.rank,
        condition=design.condition,
        r2_in_sample=in_sample,
        r2_leave_one_out=leave_one_out,
        null_in_sample=Null.of(in_sample, [d[0] for d in drawn]),
        null_leave_one_out=Null.of(leave_one_out, [d[1] for d in drawn]),
        saturated=maps == "linear" and n_subjects <= design.rank + 1,
        identifiable=tuple(0 < own == lost for own, lost in zip(design.own_ranks(), lost_ranks, strict=True)),
        shares=tuple(leave_one_out - s[1] for s in shares),
        shares_in_sample=tuple(in_sample - s[0] for s in shares),
        recall_rows=None if memory.logits is None else recall(memory.logits, memory.rows, facts).overall,
        recall_reconstructed=None,
        maps=fitted_maps,
        intercept=intercept,
    )
    if memory.logits is None:
        return result
    reconstructed = result.rows(facts, memory.attributes).to(memory.rows)
    found = recall(memory.logits, reconstructed, facts).overall
    return replace(result, recall_reconstructed=found)


def _r2(design: LinearMaps | ScalarMaps, centred: Float[Tensor, "subject d_model"]) -> tuple[float, float]:
    """(in-sample, leave-one-subject-out) R2 of centred rows; rows without variance have nothing to explain: NaN."""
    total = centred.pow(2).sum()
    if float(total) == 0.0:
        return float("nan"), float("nan")
    fitted = design.fitted(centred)
    left_out = design.left_out(centred, fitted)
    return 1 - float((centred - fitted).pow(2).sum() / total), 1 - float(left_out.pow(2).sum() / total)
