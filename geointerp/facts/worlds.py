"""Random worlds: facts drawn from a seed."""

import torch

from geointerp.errors import ConfigError
from geointerp.facts.table import FactTable
from geointerp.randomness import generator


def random_bijections(n_subjects: int, n_relations: int, seed: int, *, disjoint: bool = False) -> FactTable:
    """R independent uniform bijections from N subjects to attributes.

    Args:
        n_subjects: N >= 2.
        n_relations: R >= 1.
        seed: draws the bijections, and nothing else.
        disjoint: False: one attribute set of size N that all relations share. True: relation r has the attributes
            r*N .. (r+1)*N - 1 to itself.

    Returns:
        A FactTable without names; answers ``[relation subject]``.

    Raises:
        ConfigError: fewer than two subjects, or no relation.
    """
    if n_subjects < 2:
        raise ConfigError(f"--subjects {n_subjects}: a world needs at least 2 subjects to tell apart")
    if n_relations < 1:
        raise ConfigError(f"--relations {n_relations}: a world needs at least 1 relation")
    rng = generator(seed, "facts")
    answers = torch.stack([torch.randperm(n_subjects, generator=rng) for _ in range(n_relations)])
    if disjoint:
        answers += n_subjects * torch.arange(n_relations)[:, None]
    return FactTable(answers=answers, n_attributes=n_subjects * (n_relations if disjoint else 1))
