"""Transfer: do facts never trained on come out right when nothing but the subject rows is rewritten?

Form (a) of the project's design, zero-shot by least squares: the maps A_r and intercept of ``decompose`` on the trained
rows give new rows c + sum_r A_r u_{g'_r(s)} for new bijections g'. After the claim of arXiv 2605.12426 that "the MLP
transfers zero-shot to entirely new bijections when subject embeddings are appropriately re-initialized".
"""

from dataclasses import dataclass, replace
from typing import Any

import torch

from geointerp.facts.table import FactTable
from geointerp.measures.memory import FactMemory, Source, as_memory
from geointerp.measures.superposition import Superposition, decompose
from geointerp.models.recall import AnswerLogits, recall
from geointerp.plain import plain
from geointerp.settings import check_integer


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """Zero-shot recall of new facts, beside its controls.

    Attributes:
        recalls: recall of each new world, everything but the subject rows frozen.
        recall: their mean.
        sd: their standard deviation.
        chance: 1/A, a blind guess over all attributes.
        chance_in_relation: a blind guess among the attributes that the relation uses, averaged over facts.
        shuffled: the same worlds with every map given to the next relation, mean; None with a single relation.
        trained: recall of the trained facts through rows rebuilt by the same maps: an upper reference, not zero-shot.
        saturated: the maps come from a fit that any rows pass exactly; see ``Superposition.saturated``.
        worlds, seed: how many new worlds, and what drew them.
    """

    recalls: tuple[float, ...]
    recall: float
    sd: float
    chance: float
    chance_in_relation: float
    shuffled: float | None
    trained: float
    saturated: bool
    worlds: int
    seed: int

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return plain(self)


def transfer(
    source: Source,
    facts: FactTable | None = None,
    *,
    superposition: Superposition | None = None,
    worlds: int = 5,
    seed: int = 0,
) -> Transfer:
    """Rewrite the subject rows for new facts of the same kind and ask them all.

    Args:
        source: a run folder, a FactTransformer, or a FactMemory with ``logits``.
        facts: the table; needed for a model.
        superposition: the maps to write rows with; by default ``decompose(source)``.
        worlds: new worlds, each ``facts.redrawn(seed, i)``: answers permuted among the subjects of a relation.
        seed: of the new worlds.

    Returns:
        Transfer.

    Raises:
        MeasureError: the network is missing, or the maps do not fit the source.
    """
    check_integer("worlds", worlds, 1)
    memory = as_memory(source, facts)
    logits = memory.logits_for("transfer")
    if superposition is None:
        superposition = decompose(memory, permutations=1)
    superposition.check_fits(memory)
    new = [memory.facts.redrawn(seed, i) for i in range(worlds)]
    recalls = torch.tensor([_recall(logits, memory, superposition, world) for world in new], dtype=torch.float64)
    shuffled = None
    if memory.facts.n_relations > 1:
        given_on = replace(superposition, maps=superposition.maps.roll(1, 0))
        shuffled = float(torch.tensor([_recall(logits, memory, given_on, world) for world in new]).mean())
    used = [len(row[here].unique()) for row, here in zip(memory.facts.answers, memory.facts.present, strict=True)]
    asked = memory.facts.present.sum(1)
    return Transfer(
        recalls=tuple(recalls.tolist()),
        recall=float(recalls.mean()),
        sd=float(recalls.std(correction=0)),
        chance=1 / memory.facts.n_attributes,
        chance_in_relation=float((asked / torch.tensor(used).clamp(min=1)).sum() / asked.sum()),
        shuffled=shuffled,
        trained=_recall(logits, memory, superposition, memory.facts),
        saturated=superposition.saturated,
        worlds=worlds,
        seed=seed,
    )


def _recall(logits: AnswerLogits, memory: FactMemory, fit: Superposition, facts: FactTable) -> float:
    """Recall of ``facts`` through the rows that ``fit`` writes for them."""
    return recall(logits, fit.rows(facts, memory.attributes).to(memory.rows), facts).overall
