"""Gating: does the relation decide which hidden units are on?

A unit is on for (subject, relation) when its pre-activation at the answer position is above 0 (exactly zero is off).
Definitions: the project's own, after the claim of arXiv 2605.12426 that the MLP is "a relation-conditioned selector".
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from einops import einsum, rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geointerp.errors import ConfigError, MeasureError
from geointerp.facts.table import FactTable
from geointerp.measures.memory import Source, as_memory
from geointerp.models.recall import block_length
from geointerp.plain import plain
from geointerp.randomness import generator
from geointerp.settings import check_integer, check_number

UNIT_CLASSES = ("always-on", "always-off", "gate", "data-dependent")


@dataclass(frozen=True, kw_only=True, eq=False)
class LayerGating:
    """One layer's MLP over all facts present.

    Attributes:
        firing_rate: share of subjects for which the unit is on ``[relation unit]``; NaN where a relation has no fact.
        classes: index into UNIT_CLASSES ``[unit]``.
        class_counts: units of each class, in the order of UNIT_CLASSES.
        gates_null: expected number of 'gate' units when relation labels are shuffled within each subject.
        information: mutual information between firing and relation, bits ``[unit]``.
        information_mean, information_null: its mean over units, and the same with shuffled labels.
        variance: shares of the pre-activation variance, summed over units: relation, subject, interaction; NaN when
            nothing varies or no subject has every relation.
        variance_by_unit: the same a unit ``[unit 3]``.
        overlap: mean Jaccard overlap of the sets of open units of the same subject under two relations
            ``[relation relation]``; NaN where no subject has both.
    """

    firing_rate: Float[Tensor, "relation unit"] = field(metadata={"large": True})
    classes: Int[Tensor, " unit"] = field(metadata={"large": True})
    class_counts: tuple[int, ...]
    gates_null: float
    information: Float[Tensor, " unit"] = field(metadata={"large": True})
    information_mean: float
    information_null: float
    variance: tuple[float, ...]
    variance_by_unit: Float[Tensor, "unit 3"] = field(metadata={"large": True})
    overlap: Float[Tensor, "relation relation"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Gating:
    """Gating of every layer, with the settings that made it.

    Attributes:
        layers: one LayerGating a layer.
        near: a firing rate within this of 0 or 1 counts as off or on.
        null_draws, seed: of the shuffled relation labels.
        n_facts: facts asked.
        n_complete: subjects with every relation, on which the variance split rests.
    """

    layers: tuple[LayerGating, ...]
    near: float
    null_draws: int
    seed: int
    n_facts: int
    n_complete: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, arrays included."""
        return plain(self)


def gating(
    source: Source | Float[Tensor, "relation subject unit"],
    facts: FactTable | None = None,
    *,
    near: float = 0.05,
    null_draws: int = 10,
    seed: int = 0,
) -> Gating:
    """Which units open under which relation, over all facts, in blocks of subjects.

    Args:
        source: a run folder, a FactTransformer, a FactMemory, or pre-activations ``[relation subject unit]``.
        facts: the table; needed for a model or for pre-activations.
        near: threshold of the classes. A unit is 'always-on' (or 'always-off', dead) when its firing rate is within
            ``near`` of 1 (of 0) in every relation, 'gate' when it is near 0 or 1 in every relation and not the same
            in all, else 'data-dependent'.
        null_draws: shuffles of relation labels within each subject.
        seed: of the shuffles.

    Returns:
        Gating. Peak memory does not grow with the number of facts.

    Raises:
        MeasureError: a pre-activation that is not a number, naming layer, subject and relation; or no network given.
    """
    check_number("near", near, 0)
    if near >= 0.5:
        raise ConfigError(f"near={near:g} calls one firing rate both off and on; give less than 0.5")
    check_integer("null_draws", null_draws, 1)
    if isinstance(source, Tensor):
        if facts is None:
            raise MeasureError("pre-activations do not say which facts they belong to; pass facts=FactTable(...)")
        if source.shape[:2] != facts.answers.shape:
            raise MeasureError(
                f"pre-activations of shape {tuple(source.shape)} for a table of {facts.n_relations} relations and "
                f"{facts.n_subjects} subjects; give [relation subject unit]"
            )
        tensor, width = source.detach(), source.shape[2]

        def blocks(subjects: Int[Tensor, " block"]) -> list[Tensor]:
            return [tensor[:, subjects]]
    else:
        memory = as_memory(source, facts)
        facts, n_relations = memory.facts, memory.facts.n_relations
        run = memory.pre_activations_for("gating")
        asked = torch.zeros(1, dtype=torch.int64, device=memory.rows.device)
        width = max(layer.shape[1] for layer in run(memory.rows[:1], asked))

        def blocks(subjects: Int[Tensor, " block"]) -> list[Tensor]:
            rows = repeat(memory.rows[subjects.to(memory.rows.device)], "s d -> (r s) d", r=n_relations)
            relations = torch.arange(n_relations, device=rows.device).repeat_interleave(len(subjects))
            return [rearrange(x, "(r s) u -> r s u", r=n_relations) for x in run(rows, relations)]

    step = block_length(facts.n_relations * width)
    tallies: list[_Tally] = []
    for start in range(0, facts.n_subjects, step):
        subjects = torch.arange(start, min(start + step, facts.n_subjects))
        shuffles = [
            _shuffled_labels(facts.present[:, subjects], generator(seed, "relation labels", draw, start))
            for draw in range(null_draws)
        ]
        for layer, pre in enumerate(blocks(subjects)):
            if layer == len(tallies):
                tallies.append(_Tally(facts.n_relations, pre.shape[2], null_draws))
            pre = pre.cpu().double()
            _check_numbers(pre, facts, subjects, layer)
            tallies[layer].add(pre, facts.present[:, subjects], shuffles)
    return Gating(
        layers=tuple(tally.result(facts, near) for tally in tallies),
        near=float(near),
        null_draws=null_draws,
        seed=seed,
        n_facts=facts.n_facts,
        n_complete=int(facts.present.all(0).sum()),
    )


class _Tally:
    """Running sums over blocks of subjects: everything a LayerGating follows from."""

    def __init__(self, n_relations: int, n_units: int, null_draws: int) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(*shape, dtype=torch.float64)

        self.on = zeros(n_relations, n_units)
        self.on_null = zeros(null_draws, n_relations, n_units)
        self.overlap, self.pairs = zeros(n_relations, n_relations), zeros(n_relations, n_relations)
        self.sums, self.squares, self.subject_squares = zeros(n_relations, n_units), zeros(n_units), zeros(n_units)

    def add(
        self,
        pre: Float[Tensor, "relation block unit"],
        present: Bool[Tensor, "relation block"],
        shuffles: list[Int[Tensor, "relation block"]],
    ) -> None:
        on = (pre > 0) & present[..., None]
        self.on += on.sum(1)
        for draw, order in enumerate(shuffles):
            self.on_null[draw] += on.gather(0, order[..., None].expand_as(on)).sum(1)
        open_units = on.float()
        both = einsum(open_units, open_units, "r s u, q s u -> r q s").double()
        counts = on.sum(2).double()
        either = counts[:, None] + counts[None, :] - both
        here = present[:, None] & present[None, :] & (either > 0)
        self.overlap += torch.where(here, both / either.clamp(min=1), 0.0).sum(2)
        self.pairs += here.sum(2)
        complete = pre[:, present.all(0)]
        self.sums += complete.sum(1)
        self.squares += complete.pow(2).sum((0, 1))
        self.subject_squares += complete.mean(0).pow(2).sum(0)

    def result(self, facts: FactTable, near: float) -> LayerGating:
        asked = facts.present.sum(1).double()
        rate = self.on / asked[:, None]
        null_rates = self.on_null / asked[:, None]
        classes = _classify(rate, near)
        information = _information(rate, asked)
        split = self._variance(facts)
        return LayerGating(
            firing_rate=rate.float(),
            classes=classes,
            class_counts=tuple(torch.bincount(classes, minlength=len(UNIT_CLASSES)).tolist()),
            gates_null=sum(int((_classify(r, near) == UNIT_CLASSES.index("gate")).sum()) for r in null_rates)
            / len(null_rates),
            information=information.float(),
            information_mean=float(information.mean()),
            information_null=float(torch.stack([_information(r, asked).mean() for r in null_rates]).mean()),
            variance=tuple((split.sum(0) / split.sum()).tolist()),
            variance_by_unit=(split / split.sum(1, keepdim=True)).float(),
            overlap=(self.overlap / self.pairs).float(),
        )

    def _variance(self, facts: FactTable) -> Float[Tensor, "unit 3"]:
        """Sums of squares of relation, subject and interaction (balanced two-way layout, complete subjects)."""
        n_relations, n_subjects = facts.n_relations, int(facts.present.all(0).sum())
        if n_subjects == 0:
            return torch.full((self.squares.numel(), 3), float("nan"), dtype=torch.float64)
        means = self.sums / n_subjects
        grand = means.mean(0)
        relation = n_subjects * (means - grand).pow(2).sum(0)
        subject = n_relations * (self.subject_squares - n_subjects * grand.pow(2))
        total = self.squares - n_relations * n_subjects * grand.pow(2)
        rounding = 1e-12 * self.squares  # differences below this are float64 rounding of equal numbers
        parts = torch.stack([relation, subject, total - relation - subject], dim=1)
        return torch.where(parts > rounding[:, None], parts, 0.0)


def _classify(rate: Float[Tensor, "relation unit"], near: float) -> Int[Tensor, " unit"]:
    """Index into UNIT_CLASSES a unit; relations without facts (NaN) do not count."""
    known = rate[~rate.isnan().any(1)]
    on, off = known >= 1 - near, known <= near
    classes = torch.full((rate.shape[1],), UNIT_CLASSES.index("data-dependent"))
    classes[(on | off).all(0)] = UNIT_CLASSES.index("gate")
    classes[on.all(0)] = UNIT_CLASSES.index("always-on")
    classes[off.all(0)] = UNIT_CLASSES.index("always-off")
    return classes


def _information(rate: Float[Tensor, "relation unit"], asked: Float[Tensor, " relation"]) -> Float[Tensor, " unit"]:
    """I(on; relation) in bits, relations weighted by their facts."""
    weight = (asked / asked.sum())[:, None]
    rate = rate.nan_to_num(0.0)

    def entropy(p: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return -(torch.xlogy(p, p) + torch.xlogy(1 - p, 1 - p)) / torch.log(torch.tensor(2.0))

    return (entropy((weight * rate).sum(0)) - (weight * entropy(rate)).sum(0)).clamp(min=0)


def _shuffled_labels(present: Bool[Tensor, "relation block"], rng: torch.Generator) -> Int[Tensor, "relation block"]:
    """For each subject, a permutation of its facts among themselves: entry r says which relation's answer r takes."""
    keys = torch.rand(present.shape, generator=rng) + 2.0 * ~present  # absent facts sort last, and map to themselves
    natural = (~present).to(torch.int8).argsort(dim=0, stable=True)
    return torch.empty_like(natural).scatter_(0, natural, keys.argsort(0))


def _check_numbers(
    pre: Float[Tensor, "relation block unit"], facts: FactTable, subjects: Int[Tensor, " block"], layer: int
) -> None:
    if bool(pre.isfinite().all()):
        return
    relation, at, unit = (~pre.isfinite()).nonzero()[0].tolist()
    subject = int(subjects[at])
    raise MeasureError(
        f"pre-activation of unit {unit} in layer {layer} is {float(pre[relation, at, unit])} for subject {subject} "
        f"({facts.subject_name(subject)}) under relation {relation} ({facts.relation_name(relation)}); "
        "a unit that is not a number is neither on nor off: look for the step at which training diverged"
    )
