"""Cross-entropy straight from residuals and unembedding, in blocks: the logits of a batch never exist at once."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

BLOCK_LOGITS = 1 << 19  # numbers in a block of logits: 2 MB in float32, small enough to stay in a core's cache


class _ReadoutLoss(torch.autograd.Function):
    """Mean cross-entropy of ``softmax(x W)``. The gradient is (softmax - one-hot) / batch carried back through the
    product; it is formed block by block in the forward pass, while the block's logits are at hand."""

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride] - torch's own signature is open
        ctx: Any,
        x: Float[Tensor, "batch d_model"],
        w: Float[Tensor, "d_model attribute"],
        answers: Int[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        batch, n_attributes = x.shape[0], w.shape[1]
        grad_x = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        grad_w = torch.zeros_like(w) if ctx.needs_input_grad[1] else None
        total = torch.zeros((), dtype=torch.float32, device=x.device)
        step = max(1, BLOCK_LOGITS // n_attributes)
        for start in range(0, batch, step):
            part, answer = x[start : start + step], answers[start : start + step, None]
            logits = (part @ w).float()
            logits -= logits.amax(1, keepdim=True)
            own = logits.gather(1, answer)
            sums = logits.exp_().sum(1, keepdim=True)
            total += (sums.log() - own).sum()
            slope = logits.div_(sums * batch)
            slope.scatter_add_(1, answer, torch.full_like(own, -1 / batch))
            slope = slope.to(x.dtype)
            if grad_x is not None:
                torch.mm(slope, w.T, out=grad_x[start : start + step])
            if grad_w is not None:
                grad_w.addmm_(part.T, slope)
        ctx.save_for_backward(grad_x, grad_w)
        return total / batch

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        grad_x, grad_w = ctx.saved_tensors
        (scale,) = upstream
        return None if grad_x is None else grad_x * scale, None if grad_w is None else grad_w * scale, None


def readout_loss(
    x: Float[Tensor, "batch d_model"], w: Float[Tensor, "d_model attribute"], answers: Int[Tensor, " batch"]
) -> Float[Tensor, ""]:
    """Mean cross-entropy in nats of the logits ``x @ w`` against ``answers``, differentiable in x and w.

    Equal to ``F.cross_entropy(x @ w, answers)`` up to rounding, in memory that does not grow with the batch beyond x.
    """
    return _ReadoutLoss.apply(x, w, answers)  # pyright: ignore[reportReturnType] - torch types apply as Any or None
