"""A small FactTransformer of any shape, every weight random so that none hides behind its zero start."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from geointerp import FactTransformer, FactTransformerConfig

Build = Callable[..., FactTransformer]
SMALL: dict[str, Any] = {
    "n_subjects": 5,
    "n_relations": 3,
    "n_attributes": 7,
    "d_model": 8,
    "n_heads": 2,
    "d_mlp": 16,
    "n_ctx": 3,
}


@pytest.fixture
def build() -> Build:
    def built(*, fill: bool = True, **changes: Any) -> FactTransformer:
        model = FactTransformer(FactTransformerConfig(**{**SMALL, **changes}))
        rng = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in model.parameters() if fill else ():
                weight.copy_(0.5 * torch.randn(weight.shape, generator=rng))
        return model.eval()

    return built
