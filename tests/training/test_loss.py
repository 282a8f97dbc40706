"""readout_loss: torch's own cross-entropy, value and gradients, whatever the blocks."""

import pytest
import torch
import torch.nn.functional as F
from planted import normal

from geointerp.training import loss as loss_module
from geointerp.training.loss import readout_loss


@pytest.mark.parametrize("block_logits", [1, 50, 1 << 19], ids=["a fact a block", "uneven blocks", "one block"])
def test_value_and_gradients_are_those_of_cross_entropy(monkeypatch: pytest.MonkeyPatch, block_logits: int) -> None:
    monkeypatch.setattr(loss_module, "BLOCK_LOGITS", block_logits)
    x, w = normal(23, 6, seed=0).double(), normal(6, 11, seed=1).double()
    answers = torch.randint(0, 11, (23,), generator=torch.Generator().manual_seed(2))
    ours = [t.float().clone().requires_grad_() for t in (x, w)]
    theirs = [t.clone().requires_grad_() for t in (x, w)]
    loss = readout_loss(ours[0], ours[1], answers)
    reference = F.cross_entropy(theirs[0] @ theirs[1], answers)
    (3 * loss).backward()
    (3 * reference).backward()
    assert loss.item() == pytest.approx(reference.item(), rel=1e-5)
    for mine, exact in zip(ours, theirs, strict=True):
        assert mine.grad is not None
        assert exact.grad is not None
        torch.testing.assert_close(mine.grad, exact.grad.float(), atol=1e-6, rtol=1e-4)


def test_a_frozen_side_gets_no_gradient() -> None:
    x, w, answers = normal(5, 3).requires_grad_(), normal(3, 4, seed=1), torch.tensor([0, 1, 2, 3, 0])
    readout_loss(x, w, answers).backward()
    assert x.grad is not None
    assert w.grad is None


def test_huge_logits_give_a_finite_loss() -> None:  # cases.md 19
    x, w = normal(8, 4), 1e4 * normal(4, 6, seed=1)
    answers = torch.zeros(8, dtype=torch.int64)
    loss = readout_loss(x, w, answers)
    assert torch.isfinite(loss)
    assert float(loss) == pytest.approx(float(F.cross_entropy(x @ w, answers)), rel=1e-5)


def test_not_a_number_comes_through() -> None:
    x = normal(4, 3)
    x[2, 1] = float("nan")
    assert torch.isnan(readout_loss(x, normal(3, 5, seed=1), torch.zeros(4, dtype=torch.int64)))
