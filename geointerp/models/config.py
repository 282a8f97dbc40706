"""FactTransformerConfig: every choice that shapes a FactTransformer, checked when it is made. Imports no torch."""

from dataclasses import dataclass
from typing import Literal, get_args

from geointerp.errors import ConfigError
from geointerp.settings import check_choice, check_integer

Attention = Literal["learned", "uniform", "none"]
Normalization = Literal["LN", "RMS"] | None
Activation = Literal["relu", "gelu", "gelu_new", "silu"]


@dataclass(frozen=True, kw_only=True)
class FactTransformerConfig:
    """Sizes and switches of a FactTransformer; JSON types only.

    Raises:
        ConfigError: a value has the wrong type or range, or two values contradict each other.
    """

    n_subjects: int  # N, input tokens 0 .. N-1
    n_relations: int  # R, input tokens N .. N+R-1
    n_attributes: int  # A, the output vocabulary
    d_model: int = 64  # width of the residual stream, and of subject rows
    n_layers: int = 1
    n_heads: int = 1  # d_head = d_model / n_heads
    d_mlp: int = 256  # hidden units a layer
    n_ctx: int = 2  # longest query; 2 = subject, relation
    attention: Attention = "uniform"  # softmax; causal average; none: the first layer sums the embeddings
    positions: bool = False  # learned position embeddings
    normalization: Normalization = None  # before attention, MLP and unembedding; None (JSON null) means no norm
    act_fn: Activation = "relu"
    biases: bool = True  # in attention and MLP; the unembedding never has one
    tie_unembed: bool = False  # attribute vectors are also input embeddings of attribute tokens
    freeze_subjects: bool = False  # subject rows stay at their random start
    freeze_unembed: bool = False  # attribute vectors stay at their random start
    init_seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("n_subjects", 1),
            ("n_relations", 1),
            ("n_attributes", 2),
            ("d_model", 1),
            ("n_layers", 1),
            ("n_heads", 1),
            ("d_mlp", 1),
            ("n_ctx", 2),
            ("init_seed", 0),
        ):
            check_integer(name, getattr(self, name), least)
        check_choice("attention", self.attention, get_args(Attention))
        check_choice("normalization", self.normalization, ("LN", "RMS", None))
        check_choice("act_fn", self.act_fn, get_args(Activation))
        for name in ("positions", "biases", "tie_unembed", "freeze_subjects", "freeze_unembed"):
            check_choice(name, getattr(self, name), (True, False))
        if self.d_model % self.n_heads:
            raise ConfigError(
                f"d_model={self.d_model} is not a multiple of n_heads={self.n_heads}, so heads have no whole width; "
                f"change one of them"
            )

    @property
    def d_head(self) -> int:
        return self.d_model // self.n_heads

    @property
    def d_vocab(self) -> int:
        """Input tokens: subjects, relations, and attributes where they are tied to the unembedding."""
        return self.n_subjects + self.n_relations + (self.n_attributes if self.tie_unembed else 0)
