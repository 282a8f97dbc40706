"""Sub-seeds: every purpose draws from a CPU generator of its own, so that changing one draw leaves the others alone."""

import hashlib

import torch


def generator(seed: int, purpose: str, *counters: int) -> torch.Generator:
    """A CPU generator for one purpose of one seed.

    The state depends on ``(seed, purpose, *counters)`` alone, so a draw at training step 700 needs no memory of
    the 699 before it: this is what makes resuming exact. Equal arguments give equal streams on every machine.
    """
    text = ":".join([str(seed), purpose, *map(str, counters)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
