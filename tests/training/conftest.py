"""A tiny world whose training takes a blink, with everything switched on that resuming could get wrong."""

from collections.abc import Callable, Iterator
from typing import Any

import jaxtyping
import pytest
import torch

from geointerp import FactTable, FactTransformer, FactTransformerConfig, RunConfig, TrainConfig, random_bijections

Tiny = Callable[..., tuple[RunConfig, FactTable]]


@pytest.fixture
def tiny() -> Tiny:
    """Settings and facts: 10 subjects, 3 relations; keywords change settings of the model or of training."""

    def made(facts: FactTable | None = None, **changes: Any) -> tuple[RunConfig, FactTable]:
        facts = random_bijections(10, 3, seed=0) if facts is None else facts
        model: dict[str, Any] = {
            "n_subjects": facts.n_subjects,
            "n_relations": facts.n_relations,
            "n_attributes": facts.n_attributes,
            "d_model": 8,
            "d_mlp": 16,
        }
        training: dict[str, Any] = {
            "steps": 24,
            "batch_size": 8,
            "learning_rate": 0.02,
            "warmup_steps": 3,
            "row_noise": 0.3,
            "eval_every": 5,
            "snapshots": 3,
        }
        for name, value in changes.items():
            (model if name in FactTransformerConfig.__dataclass_fields__ else training)[name] = value
        return RunConfig(model=FactTransformerConfig(**model), training=TrainConfig(**training)), facts

    return made


@pytest.fixture
def as_users_run_it() -> Iterator[None]:
    """Without the tests' run-time type checks, which would refuse wrong types before our own checks see them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def weights() -> Callable[[FactTransformer], dict[str, torch.Tensor]]:
    """A model's weights as they are now."""
    return lambda model: {name: value.detach().clone() for name, value in model.named_parameters()}
