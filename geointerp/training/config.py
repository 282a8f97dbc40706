"""Settings of training and of a whole run. Imports no torch."""

from dataclasses import asdict, dataclass, field
from typing import Any

from geointerp.errors import ConfigError
from geointerp.models.config import FactTransformerConfig
from geointerp.settings import check_choice, check_integer, check_number, from_dict


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """How a model is trained: AdamW with decoupled weight decay on matrices, cosine schedule with warm-up.

    Raises:
        ConfigError: a value has the wrong type or range.
    """

    steps: int = 2000  # at most; training ends earlier only by target_loss
    batch_size: int = 2048  # facts a step; 0, or at least the number of facts: all of them every step
    learning_rate: float = 3e-3  # the peak, after warm-up; falls to 0 along a cosine
    warmup_steps: int = 100
    weight_decay: float = 0.1  # on matrices and embeddings; never on biases and norms
    beta2: float = 0.98  # AdamW's second-moment decay
    row_noise: float = 0.0  # sd of Gaussian noise on subject rows while training, in units of the rows' own sd
    target_loss: float = 0.0  # stop when recall is 1 and the noise-free loss is at most this; 0: go on to the last step
    eval_every: int = 100  # steps between evaluations on all facts
    snapshots: int = 12  # weights kept along the way, at log-spaced steps
    seed: int = 0  # draws batches and noise

    def __post_init__(self) -> None:
        for name, least in (
            ("steps", 1),
            ("batch_size", 0),
            ("warmup_steps", 0),
            ("eval_every", 1),
            ("snapshots", 0),
            ("seed", 0),
        ):
            check_integer(name, getattr(self, name), least)
        check_number("learning_rate", self.learning_rate, 0, above=True)
        for name in ("weight_decay", "row_noise", "target_loss", "beta2"):
            check_number(name, getattr(self, name), 0)
        if self.beta2 >= 1:
            raise ConfigError(f"beta2={self.beta2} is not below 1, so second moments would never be updated")


@dataclass(frozen=True, kw_only=True)
class FactsConfig:
    """Where the facts came from; the facts themselves lie in the run folder.

    Raises:
        ConfigError: a value has the wrong type or range.
    """

    source: str = "random bijections"  # or the name of the file they were read from
    disjoint: bool = False  # random worlds: an attribute set of its own for every relation
    seed: int = 0  # random worlds: draws the bijections

    def __post_init__(self) -> None:
        check_choice("disjoint", self.disjoint, (True, False))
        check_integer("seed", self.seed, 0)


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Everything that a run's weights follow from, given its facts."""

    model: FactTransformerConfig
    facts: FactsConfig = field(default_factory=FactsConfig)
    training: TrainConfig = field(default_factory=TrainConfig)

    def to_dict(self) -> dict[str, Any]:
        """Nested plain JSON types; ``from_dict`` inverts it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: object, where: str = "config") -> "RunConfig":
        """Strict inverse of ``to_dict``.

        Raises:
            ConfigError: an unknown, missing or bad setting, with a did-you-mean.
        """
        parts = {"facts": FactsConfig, "model": FactTransformerConfig, "training": TrainConfig}
        if isinstance(given, dict):
            given = {
                key: from_dict(parts[key], value, f"{where}, {key}") if key in parts else value
                for key, value in given.items()
            }
        return from_dict(cls, given, where)
