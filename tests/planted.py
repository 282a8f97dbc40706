"""Memories whose every measure can be worked out by hand: the planted truth of the tests."""

import torch
from einops import einsum, rearrange
from torch import Tensor

from geointerp.facts.table import FactTable
from geointerp.measures.memory import FactMemory


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def exact_superposition(facts: FactTable, d_model: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(rows, attribute vectors, maps, intercept) with rows = intercept + sum_r A_r u, in float64."""
    attributes = normal(facts.n_attributes, d_model, seed=seed).double()
    maps = normal(facts.n_relations, d_model, d_model, seed=seed + 1).double()
    intercept = normal(d_model, seed=seed + 2).double()
    parts = attributes[facts.answers.clamp(min=0)] * facts.present[..., None]
    return intercept + einsum(maps, parts, "r m d, r s d -> s m"), attributes, maps, intercept


def sign_codes(n_attributes: int) -> Tensor:
    """Attribute a as the signs of its binary digits, ``[attribute bit]``: distinct, so u_a . u_a beats u_a . u_b."""
    bits = max(1, (n_attributes - 1).bit_length())
    return (torch.arange(n_attributes)[:, None] >> torch.arange(bits) & 1).float() * 2 - 1


def perfect_selector(facts: FactTable) -> FactMemory:
    """One hidden unit a code bit and relation; block r of a row is the code of its answer.

    Unit (r, j) is ReLU(x_rj + 4 [asked = r] - 2): x_rj + 2 > 0 when asked, x_rj - 2 < 0 otherwise.
    """
    codes = sign_codes(facts.n_attributes)
    n_relations, bits = facts.n_relations, codes.shape[1]
    blocks = codes[facts.answers.clamp(min=0)] * facts.present[..., None]

    def pre_activations(rows: Tensor, relations: Tensor) -> list[Tensor]:
        opened = torch.nn.functional.one_hot(relations, n_relations).repeat_interleave(bits, dim=1).to(rows.dtype)
        return [rows + 4 * opened - 2]

    def logits(rows: Tensor, relations: Tensor) -> Tensor:
        hidden = pre_activations(rows, relations)[0].relu()
        return (rearrange(hidden, "b (r j) -> b r j", r=n_relations).sum(1) - 2) @ codes.T

    return FactMemory(
        facts=facts,
        rows=rearrange(blocks, "r s j -> s (r j)"),
        attributes=codes,
        logits=logits,
        pre_activations=pre_activations,
    )


def lookup_table(facts: FactTable, d_model: int, seed: int = 0) -> FactMemory:
    """A key-value memory: random unit rows, one hidden unit a fact that knows its subject and relation by heart."""
    rows = torch.nn.functional.normalize(normal(facts.n_subjects, d_model, seed=seed), dim=1)
    attributes = normal(facts.n_attributes, d_model, seed=seed + 1)
    relation, subject = facts.fact_ids
    values = torch.nn.functional.one_hot(facts.answers[relation, subject], facts.n_attributes).float()

    def pre_activations(asked_rows: Tensor, relations: Tensor) -> list[Tensor]:
        return [asked_rows @ rows[subject].T + 2.0 * (relations[:, None] == relation) - 2.5]

    def logits(asked_rows: Tensor, relations: Tensor) -> Tensor:
        return pre_activations(asked_rows, relations)[0].relu() @ values

    return FactMemory(facts=facts, rows=rows, attributes=attributes, logits=logits, pre_activations=pre_activations)
