"""Options of the command line: what tyro reads, with the words shown by --help. Imports no torch."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import tyro

from geointerp.models.config import Activation, Attention
from geointerp.training.presets import PRESETS

if TYPE_CHECKING:
    from geointerp.facts.table import FactTable
    from geointerp.training.config import RunConfig

Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]


def _optional(kind: Callable[[str], Any], metavar: str, *choices: str) -> Any:
    """An option that keeps the preset's value when left out: None is its default, and can never be typed."""
    return (
        tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar=metavar,
            instance_from_str=lambda words: kind(words[0]),
            is_instance=lambda value: value is None or isinstance(value, str | int | float | Path),
            str_from_instance=lambda value: [str(value)],
            choices=choices or None,
        ),
        tyro.conf.arg(help_behavior_hint=""),
    )


def _choice(*choices: str) -> Any:
    return _optional(str, "{" + ",".join(choices) + "}", *choices)


Whole = Annotated[int | None, *_optional(int, "INT")]
Number = Annotated[float | None, *_optional(float, "FLOAT")]
Table = Annotated[str | None, *_optional(str, "FILE")]
AttentionChoice = Annotated[str | None, *_choice(*get_args(Attention))]
NormChoice = Annotated[str | None, *_choice("LN", "RMS")]
ActivationChoice = Annotated[str | None, *_choice(*get_args(Activation))]
FreezeChoice = Annotated[str | None, *_optional(str, "PARTS", "subjects", "attributes", "subjects,attributes")]
NewFolder = Annotated[Path | None, *_optional(Path, "FOLDER")]


@dataclass(frozen=True, kw_only=True)
class Output:
    json: bool = False
    """Print one JSON object on standard output instead of text."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Options that say what to train. Those left out keep the preset's value."""

    preset: Annotated[str, *_choice(*PRESETS)] = "quick"
    """Starting point: quick (a small world) or controlled (N=1024, R=4, one layer)."""
    facts: Table = None
    """Table to remember: a .csv, .tsv or .parquet file, or the name of a shipped table (countries)."""
    subjects: Whole = None
    """Subjects N of a random world."""
    relations: Whole = None
    """Relations R of a random world."""
    disjoint: bool = False
    """Give every relation of a random world attributes of its own."""
    seed: int = 0
    """Draws facts, weights, batches and noise, each through a sub-seed of its own."""
    d_model: Whole = None
    """Width of the residual stream and of subject rows."""
    n_layers: Whole = None
    """Transformer blocks."""
    n_heads: Whole = None
    """Attention heads; d_model must be a multiple."""
    d_mlp: Whole = None
    """Hidden units a layer."""
    attention: AttentionChoice = None
    """Softmax attention, a causal average, or none (embeddings are summed)."""
    normalization: NormChoice = None
    """Norm before attention, MLP and unembedding; left out: none."""
    act_fn: ActivationChoice = None
    """Activation of the hidden units."""
    positions: bool = False
    """Learn position embeddings."""
    biases: bool = True
    """Biases in attention and MLP."""
    tie_unembed: bool = False
    """Use attribute vectors as input embeddings of attribute tokens too."""
    freeze: FreezeChoice = None
    """What stays at its random start: subjects (rows), attributes (vectors), or subjects,attributes."""
    steps: Whole = None
    """Training steps, at most."""
    batch_size: Whole = None
    """Facts a step; 0: all of them."""
    learning_rate: Number = None
    """Peak of the cosine schedule."""
    warmup_steps: Whole = None
    """Steps of linear warm-up."""
    weight_decay: Number = None
    """Decoupled weight decay of matrices."""
    beta2: Number = None
    """AdamW's second-moment decay."""
    row_noise: Number = None
    """Gaussian noise on subject rows in training, in units of their own sd."""
    target_loss: Number = None
    """Stop once recall is 1 and the loss is at most this; 0: go on to the last step."""
    eval_every: Whole = None
    """Steps between evaluations on all facts."""
    snapshots: Whole = None
    """How many weights to keep along the way, at log-spaced steps."""

    def resolve(self) -> "tuple[RunConfig, FactTable]":
        """The configuration and the facts that these options name.

        Raises:
            ConfigError, FactsError: naming the option that does not fit.
        """
        from geointerp.facts.files import read_facts
        from geointerp.training.presets import plan

        named = {"preset", "facts", "subjects", "relations", "disjoint", "seed", "freeze"}
        changes = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(Plan)
            if field.name not in named and getattr(self, field.name) != field.default
        }
        for part, setting in (("subjects", "freeze_subjects"), ("attributes", "freeze_unembed")):
            if part in (self.freeze or "").split(","):
                changes[setting] = True
        return plan(
            self.preset,
            facts=None if self.facts is None else read_facts(self.facts, progress=True),
            source=None if self.facts is None else Path(self.facts).name,
            subjects=self.subjects,
            relations=self.relations,
            disjoint=self.disjoint,
            seed=self.seed,
            changes=changes,
        )
