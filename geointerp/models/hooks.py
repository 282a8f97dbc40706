"""Hook points that refuse a hook's result when it could not stand in for the activation."""

from functools import wraps
from typing import Any, Literal

import torch
from transformer_lens.hook_points import HookPoint, LensHandle

from geointerp.errors import HookError


class CheckedHookPoint(HookPoint):
    """A TransformerLens HookPoint whose hooks must return None or a tensor of the same shape and dtype.

    A plain HookPoint lets a hook return, say, ``x.mean(0)``: broadcasting then repeats one example over the batch
    without a word.

    Raises:
        HookError: at the run, naming the hook point, and the shape or dtype that was expected and given.
    """

    def add_hook(  # pyright: ignore[reportIncompatibleMethodOverride] - the same parameters, passed through
        self, hook: Any, dir: Literal["fwd", "bwd"] = "fwd", *args: Any, **kwargs: Any
    ) -> LensHandle:
        user_hook = hook

        @wraps(user_hook)
        def checked(tensor: torch.Tensor, *, hook: HookPoint) -> Any:
            result = user_hook(tensor, hook=hook)
            if result is not None:
                self._check(tensor, result[0] if dir == "bwd" and isinstance(result, tuple) else result)
            return result

        handle = super().add_hook(checked, dir, *args, **kwargs)
        handle.user_hook = user_hook  # what list_hooks() shows
        return handle

    def _check(self, activation: torch.Tensor, result: object) -> None:
        if not isinstance(result, torch.Tensor):
            raise HookError(
                f"hook on {self.name} returned {type(result).__name__}; return None to leave the activation as it is, "
                f"or a tensor of shape {tuple(activation.shape)}"
            )
        if result.shape != activation.shape:
            raise HookError(
                f"hook on {self.name} returned shape {tuple(result.shape)}, expected {tuple(activation.shape)}; "
                f"expand it explicitly if broadcasting is meant"
            )
        if result.dtype != activation.dtype:
            raise HookError(
                f"hook on {self.name} returned dtype {result.dtype}, expected {activation.dtype}; "
                f"convert with .to({activation.dtype})"
            )
