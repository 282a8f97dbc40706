"""Token layout: how a question about a fact is written for a transformer.

The input vocabulary is ``[subjects | relations | attributes]``: subject s is token s, relation r is token N + r, and
attribute a, where a model has input tokens for attributes at all, is token N + R + a. A query is ``[s, N + r]`` and its
answer is read at the last position, over the attributes alone.
"""

import torch
from jaxtyping import Int
from torch import Tensor

from geointerp.errors import FactsError


def relation_token(relation: Int[Tensor, "*shape"], n_subjects: int) -> Int[Tensor, "*shape"]:
    """Tokens of relation ids."""
    return relation + n_subjects


def check_ids(kind: str, ids: Int[Tensor, "*shape"], count: int) -> None:
    """Raise FactsError naming the first id outside ``0 .. count - 1`` and where it stands."""
    if ids.numel() == 0:
        return
    low, high = ids.aminmax()
    if int(low) < 0 or int(high) >= count:
        where = ((ids < 0) | (ids >= count)).nonzero()[0].tolist()
        place = f"row {where[0]}" + (f", position {where[1]}" if len(where) > 1 else "")
        raise FactsError(f"{kind} id {int(ids[tuple(where)])} in {place} is outside 0..{count - 1}")


def queries(
    subjects: Int[Tensor, " batch"], relations: Int[Tensor, " batch"], *, n_subjects: int, n_relations: int
) -> Int[Tensor, "batch pos=2"]:
    """Tokens ``[s, N + r]`` that ask relation r of subject s.

    Raises:
        FactsError: an id is out of range.
    """
    check_ids("subject", subjects, n_subjects)
    check_ids("relation", relations, n_relations)
    return torch.stack([subjects, relation_token(relations, n_subjects)], dim=-1)
