"""Gating and selector in blocks: sixteen times the facts, the same peak memory but for the answers themselves."""

import subprocess
import sys

import pytest

MEASURE = """
import resource, sys, torch
from geointerp import FactMemory, FactTable, decompose, gating, selector
torch.set_num_threads(1)
n_subjects, n_relations, n_attributes, width = int(sys.argv[1]), 8, 64, 256
rng = torch.Generator().manual_seed(0)
facts = FactTable(
    answers=torch.randint(n_attributes, (n_relations, n_subjects), generator=rng), n_attributes=n_attributes
)
rows, w_in = torch.randn(n_subjects, 8, generator=rng), torch.randn(8, width, generator=rng)
w_out, shift = torch.randn(width, n_attributes, generator=rng), torch.randn(n_relations, width, generator=rng)
pre = lambda rows, relations: [rows @ w_in + shift[relations]]
memory = FactMemory(
    facts=facts,
    rows=rows,
    attributes=torch.randn(n_attributes, 8, generator=rng),
    logits=lambda rows, relations: pre(rows, relations)[0].relu() @ w_out,
    pre_activations=pre,
)
few = FactMemory(
    facts=FactTable(answers=facts.answers[:, :500].contiguous(), n_attributes=n_attributes),
    rows=rows[:500], attributes=memory.attributes,
)
fit = decompose(few, permutations=1)
gating(memory, null_draws=2)
selector(memory, superposition=fit)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(peak - facts.answers.numel() * 8 - rows.numel() * 4)
"""


def peak_beyond_the_answers(n_subjects: int) -> int:
    done = subprocess.run([sys.executable, "-c", MEASURE, str(n_subjects)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
def test_peak_memory_does_not_grow_with_the_facts() -> None:
    small, large = peak_beyond_the_answers(4_096), peak_beyond_the_answers(65_536)
    answers = 8 * 65_536 * 8
    # partners, presence and the like are a few more arrays of the answers' shape; activations would be 500 MB
    assert large - small < 4 * answers
