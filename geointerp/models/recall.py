"""Recall: the share of facts whose attribute has the strictly largest logit."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from geointerp.facts.table import FactTable

AnswerLogits = Callable[[Float[Tensor, "batch d_model"], Int[Tensor, " batch"]], Float[Tensor, "batch attribute"]]
"""A model as a function of subject rows and the relations asked of them."""

BLOCK_ELEMENTS = 1 << 22  # of the largest intermediate tensor: 16 MB in float32, whatever N and R are


def block_length(elements_each: int) -> int:
    """How many items to take at once when each needs a tensor of ``elements_each`` numbers."""
    return max(1, BLOCK_ELEMENTS // max(1, elements_each))


@dataclass(frozen=True, kw_only=True)
class Recall:
    """Recall over the facts present.

    Attributes:
        overall: share of facts recalled, 0..1; a tie between attributes counts as wrong.
        by_relation: the same a relation, NaN where a relation has no fact.
        loss: mean cross-entropy in nats.
        n_facts: facts asked.
    """

    overall: float
    by_relation: tuple[float, ...]
    loss: float
    n_facts: int


@torch.no_grad()
def recall(logits: AnswerLogits, rows: Float[Tensor, "subject d_model"], facts: FactTable) -> Recall:
    """Ask every fact of ``facts`` with the given subject rows, in blocks.

    Args:
        logits: the model as a function of rows and relations, e.g. ``model.answer_logits``.
        rows: subject rows e_s to ask with, on the model's device.
        facts: answers to compare with; absent facts are not asked.

    Returns:
        Recall; memory does not grow with the number of facts.
    """
    relations, subjects = facts.fact_ids
    hits = torch.zeros(facts.n_relations, dtype=torch.int64)
    loss = 0.0
    step = block_length(facts.n_attributes)
    for start in range(0, facts.n_facts, step):
        relation, subject = relations[start : start + step], subjects[start : start + step]
        answer = facts.answers[relation, subject].to(rows.device)
        out = logits(rows[subject.to(rows.device)], relation.to(rows.device)).float()
        loss += float(F.cross_entropy(out, answer, reduction="sum"))
        hits += torch.bincount(relation, weights=wins(out, answer).cpu().double(), minlength=facts.n_relations).long()
    asked = facts.present.sum(1)
    return Recall(
        overall=int(hits.sum()) / facts.n_facts,
        by_relation=tuple((hits.double() / asked).tolist()),
        loss=loss / facts.n_facts,
        n_facts=facts.n_facts,
    )


def wins(logits: Float[Tensor, "batch attribute"], attribute: Int[Tensor, " batch"]) -> "torch.Tensor":
    """Bool ``[batch]``: the attribute's logit is strictly the largest (ties and NaN are not wins)."""
    own = logits.gather(1, attribute[:, None])
    others = logits.scatter(1, attribute[:, None], float("-inf")).amax(1, keepdim=True)
    return (own > others).squeeze(1)
