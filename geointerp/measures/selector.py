"""Selector matrix: asked relation r, how far does the answer follow component q of the subject's row?

Definition: the project's own; a perfect selector is the identity. Component q of subject s is swapped for that of
another subject s': e_s + A_q (u_{g_q(s')} - u_{g_q(s)}), with the maps of ``decompose``; the row keeps its residual.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from geointerp.facts.table import FactTable
from geointerp.measures.memory import FactMemory, Source, as_memory
from geointerp.measures.superposition import Superposition, decompose
from geointerp.models.recall import block_length, wins
from geointerp.plain import plain
from geointerp.randomness import generator
from geointerp.settings import check_integer


@dataclass(frozen=True, kw_only=True, eq=False)
class Selector:
    """Matrices ``[relation asked, component swapped]``; NaN where no subject has both facts.

    Attributes:
        follows: S, rate at which the answer becomes g_q(s'), the swapped-in attribute.
        stays: K, rate at which the right answer g_r(s) is still given: 0 on the diagonal and 1 off it when perfect.
        linear: mean change of the logit of g_q(s').
        follows_null, stays_null: the same for a random displacement of the row, as long as the swap's.
        counts: swaps behind each entry.
        selectivity: mean diagonal of ``follows`` minus its mean off-diagonal; NaN with a single relation.
        isolation: mean off-diagonal of ``stays`` minus its mean diagonal. High isolation with a low diagonal of S
            means inexact maps A_r, not a weak selector.
        selectivity_null, isolation_null: of the random displacements.
        seed: draws the partners s' and the random displacements.
    """

    follows: Float[Tensor, "relation relation"]
    stays: Float[Tensor, "relation relation"]
    linear: Float[Tensor, "relation relation"]
    follows_null: Float[Tensor, "relation relation"]
    stays_null: Float[Tensor, "relation relation"]
    counts: Int[Tensor, "relation relation"]
    selectivity: float
    isolation: float
    selectivity_null: float
    isolation_null: float
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return plain(self)


def selector(
    source: Source,
    facts: FactTable | None = None,
    *,
    superposition: Superposition | None = None,
    seed: int = 0,
) -> Selector:
    """Swap each component of each row for another subject's and ask every relation.

    Args:
        source: a run folder, a FactTransformer, or a FactMemory with ``logits``.
        facts: the table; needed for a model.
        superposition: the maps to swap with; by default ``decompose(source)``.
        seed: draws partners and random displacements.

    Returns:
        Selector. One swap a (subject, component), asked of every relation; in blocks, so that peak memory does not
        grow with the number of facts.

    Raises:
        MeasureError: the network is missing, or the maps do not fit the table.
    """
    check_integer("seed", seed, 0)
    memory = as_memory(source, facts)
    logits, device = memory.logits_for("selector"), memory.rows.device

    def ask(rows: Tensor, relation: int) -> Tensor:
        asked = torch.full((len(rows),), relation, dtype=torch.int64, device=device)
        return logits(rows.to(device), asked).float().cpu()

    if superposition is None:
        superposition = decompose(memory, permutations=1)
    facts = memory.facts
    superposition.check_fits(memory)
    n_relations = facts.n_relations
    partner = torch.stack(
        [torch.randperm(facts.n_subjects, generator=generator(seed, "swap partners", q)) for q in range(n_relations)]
    )
    sums = {name: torch.zeros(n_relations, n_relations, dtype=torch.float64) for name in _STATISTICS}
    counts = torch.zeros(n_relations, n_relations, dtype=torch.int64)
    step = block_length(n_relations * facts.n_attributes)  # the logits before the swap, of every relation
    for start in range(0, facts.n_subjects, step):
        subjects = torch.arange(start, min(start + step, facts.n_subjects))
        rows = memory.rows[subjects.to(memory.rows.device)].cpu()  # all but the network itself runs on the CPU
        before = [ask(rows, r) for r in range(n_relations)]
        for q in range(n_relations):
            swap = _swap(memory, superposition, q, subjects, partner[q, subjects])
            noise = torch.randn(swap.delta.shape, generator=generator(seed, "random displacement", q, start))
            random = (noise * (swap.delta.float().norm(dim=1) / noise.norm(dim=1))[:, None]).to(swap.delta)
            for r in range(n_relations):
                own = facts.answers[r, subjects]
                counted = swap.counted & facts.present[r, subjects] & ((own != swap.attribute) | (r == q))
                if not bool(counted.any()):
                    continue
                new, old = swap.attribute[counted], own[counted]
                out = ask(rows[counted] + swap.delta[counted], r)
                null = ask(rows[counted] + random[counted], r)
                change = out.gather(1, new[:, None]) - before[r][counted].gather(1, new[:, None])
                counts[r, q] += int(counted.sum())
                for name, value in zip(
                    _STATISTICS, (wins(out, new), wins(out, old), change, wins(null, new), wins(null, old)), strict=True
                ):
                    sums[name][r, q] += float(value.double().sum())
    rates = {name: (total / counts).float() for name, total in sums.items()}
    return Selector(
        **rates,
        counts=counts,
        selectivity=contrast(rates["follows"]),
        isolation=-contrast(rates["stays"]),
        selectivity_null=contrast(rates["follows_null"]),
        isolation_null=-contrast(rates["stays_null"]),
        seed=seed,
    )


_STATISTICS = ("follows", "stays", "linear", "follows_null", "stays_null")


@dataclass(frozen=True, kw_only=True, eq=False)
class _Swap:
    delta: Float[Tensor, "block d_model"]  # A_q (u_{g_q(s')} - u_{g_q(s)})
    attribute: Int[Tensor, " block"]  # g_q(s')
    counted: Bool[Tensor, " block"]  # both have the fact, and it differs


def _swap(
    memory: FactMemory, fit: Superposition, q: int, subjects: Int[Tensor, " block"], partners: Int[Tensor, " block"]
) -> _Swap:
    old, new = memory.facts.answers[q, subjects], memory.facts.answers[q, partners]
    vectors = memory.attributes.detach().cpu().double()
    delta = (vectors[new.clamp(min=0)] - vectors[old.clamp(min=0)]) @ fit.maps[q].T
    return _Swap(delta=delta.to(memory.rows.dtype), attribute=new, counted=(old >= 0) & (new >= 0) & (old != new))


def contrast(matrix: Float[Tensor, "relation relation"]) -> float:
    """Mean of the diagonal minus mean of the rest, over the entries that exist; NaN without a rest."""
    diagonal = torch.eye(len(matrix), dtype=torch.bool)
    known = ~matrix.isnan()
    return float(matrix[diagonal & known].mean() - matrix[~diagonal & known].mean())
