"""Results and settings as plain JSON types."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import torch


def plain(value: Any) -> Any:
    """Dataclasses become dicts (with ``settings`` and scalars alike), tensors nested lists, tuples lists, and numbers
    that are not finite None, so that any JSON reader takes the result."""
    if isinstance(value, torch.Tensor):
        return plain(value.detach().cpu().tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
