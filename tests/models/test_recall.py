"""recall: ties and NaN are wrong, absent facts are not asked, blocks change nothing."""

import math

import pytest
import torch
from planted import normal

from geointerp import FactTable, recall
from geointerp.models import recall as recall_module
from geointerp.models.recall import block_length, wins

# the row of a subject is its three logits, whatever the relation
ROWS = torch.tensor([[2.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 3.0], [math.nan, 0.0, 0.0]])


def as_given(rows: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
    return rows


def test_counts_by_hand() -> None:
    # subject 0 right in r0; subject 1 is a tie, so wrong in r0 and r1; subject 2 right in r1, absent in r0
    answers = torch.tensor([[0, 0, -1, -1], [-1, 1, 2, -1], [-1, -1, -1, -1]])
    result = recall(as_given, ROWS, FactTable(answers=answers, n_attributes=3))
    assert result.n_facts == 4
    assert result.overall == 2 / 4
    assert result.by_relation[:2] == (1 / 2, 1 / 2)
    assert math.isnan(result.by_relation[2])
    softmaxes = [
        math.exp(2) / (math.exp(2) + math.e + 1),
        math.e / (2 * math.e + 1),
        math.e / (2 * math.e + 1),
        math.exp(3) / (math.exp(3) + 2),
    ]
    assert result.loss == pytest.approx(-sum(map(math.log, softmaxes)) / 4, rel=1e-6)


def test_not_a_number_is_wrong_whatever_the_answer() -> None:
    for answer in range(3):
        answers = torch.tensor([[0, 0, 2, answer]])
        result = recall(as_given, ROWS, FactTable(answers=answers, n_attributes=3))
        assert result.overall == 2 / 4  # subjects 0 and 2
        assert math.isnan(result.loss)


def test_wins_is_strict() -> None:
    inf = math.inf
    logits = torch.tensor([[1.0, 0], [1, 1], [0, 1], [-inf, -inf], [inf, inf], [inf, 0], [math.nan, 0], [0, math.nan]])
    assert wins(logits, torch.zeros(8, dtype=torch.int64)).tolist() == [True] + [False] * 4 + [True] + [False] * 2


@pytest.mark.parametrize("elements", [1, 7 * 3, 7 * 10, 1 << 22])
def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch, elements: int) -> None:
    answers = torch.randint(-1, 7, (3, 11), generator=torch.Generator().manual_seed(0))
    facts = FactTable(answers=answers, n_attributes=7)
    rows, reads = normal(11, 7), normal(3, 7, 7, seed=1)
    sizes: list[int] = []

    def logits(rows: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        sizes.append(len(rows))
        return torch.einsum("bd,bda->ba", rows, reads[relations])

    every = torch.einsum("sd,rda->rsa", rows.double(), reads.double())
    present = answers >= 0
    right = (every.argmax(-1) == answers) & present
    log_p = every.log_softmax(-1).gather(-1, answers.clamp(min=0)[..., None])[..., 0]

    monkeypatch.setattr(recall_module, "BLOCK_ELEMENTS", elements)
    result = recall(logits, rows, facts)
    assert max(sizes) == min(facts.n_facts, max(1, elements // 7))
    assert sum(sizes) == facts.n_facts == int(present.sum())
    assert result.overall == int(right.sum()) / facts.n_facts
    assert result.by_relation == tuple(int(right[r].sum()) / int(present[r].sum()) for r in range(3))
    assert result.loss == pytest.approx(-float(log_p[present].mean()), rel=1e-5)


def test_block_length_is_never_zero() -> None:
    assert block_length(1 << 30) == 1
    assert block_length(0) == 1 << 22
    assert block_length(1 << 20) == 4
