"""FactMemory: the little that a measure needs to know of a model, and how to get it from what a user has."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from geointerp.errors import MeasureError
from geointerp.facts.table import FactTable
from geointerp.models.recall import AnswerLogits
from geointerp.models.transformer import FactTransformer
from geointerp.settings import check_choice
from geointerp.training.checkpoint import Run, load_run

PreActivations = Callable[[Float[Tensor, "batch d_model"], Int[Tensor, " batch"]], list[Float[Tensor, "batch d_mlp"]]]
"""Pre-activations at the answer position, one tensor a layer, of rows and the relations asked of them."""

AttributeVectors = Literal["unembed", "embed"]


@dataclass(frozen=True, kw_only=True, eq=False)
class FactMemory:
    """A model of facts as measures see it. Build one by hand to measure any ``nn.Module`` of your own.

    Attributes:
        facts: what it was trained on.
        rows: subject rows e_s ``[subject d_model]``.
        attributes: attribute vectors u_a ``[attribute d_attribute]``, d_model wide in a transformer.
        logits: rows ``[batch d_model]`` and relations ``[batch]`` to logits ``[batch attribute]``; None when only the
            geometry is known.
        pre_activations: rows and relations to one ``[batch d_mlp]`` a layer; None likewise.
        vectors: which attribute vectors these are: 'unembed' (columns of W_U) or 'embed' (input embeddings).

    Raises:
        MeasureError: shapes that do not fit the table, or a value that is not finite (naming the first subject).
    """

    facts: FactTable
    rows: Float[Tensor, "subject d_model"]
    attributes: Float[Tensor, "attribute d_attribute"]
    logits: AnswerLogits | None = None
    pre_activations: PreActivations | None = None
    vectors: AttributeVectors = "unembed"

    def __post_init__(self) -> None:
        check_choice("vectors", self.vectors, get_args(AttributeVectors))
        for kind, tensor, count in (
            ("subject", self.rows, self.facts.n_subjects),
            ("attribute", self.attributes, self.facts.n_attributes),
        ):
            if not isinstance(tensor, Tensor) or tensor.ndim != 2 or not tensor.is_floating_point():
                given = f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
                raise MeasureError(
                    f"{kind} vectors must be a floating-point torch tensor [{kind} d], got {given}; "
                    "convert with torch.as_tensor(...).float()"
                )
            if tensor.shape[0] != count:
                raise MeasureError(
                    f"{tensor.shape[0]} {kind} vectors given for a table of {count} {kind}s; "
                    f"give one row a {kind}, in the order of the table's ids"
                )
            finite = torch.isfinite(tensor).all(1)
            if not bool(finite.all()):
                first = int((~finite).nonzero()[0])
                name = self.facts.subject_name(first) if kind == "subject" else self.facts.attribute_name(first)
                raise MeasureError(
                    f"the vector of {kind} {first} ({name}) holds a value that is not finite; "
                    f"{int((~finite).sum())} of {count} {kind}s do: look for the step at which training diverged"
                )

    def logits_for(self, measure: str) -> AnswerLogits:
        """``logits``, or MeasureError that says which measure wanted them."""
        if self.logits is None:
            raise MeasureError(f"{measure} runs the network, and this FactMemory has logits=None; give a callable")
        return self.logits

    def pre_activations_for(self, measure: str) -> PreActivations:
        """``pre_activations``, or MeasureError that says which measure wanted them."""
        if self.pre_activations is None:
            raise MeasureError(
                f"{measure} reads hidden units, and this FactMemory has pre_activations=None; give a callable"
            )
        return self.pre_activations


Source = (
    str
    | Path
    | Run
    | FactTransformer
    | FactMemory
    | tuple[Float[Tensor, "subject d_model"], Float[Tensor, "attribute d_attribute"]]
)
"""What measures accept: a run folder or Run, a model, a FactMemory, or bare tensors (rows, attribute vectors)."""


def as_memory(source: Source, facts: FactTable | None, vectors: AttributeVectors = "unembed") -> FactMemory:
    """The FactMemory of a run folder, a model with its facts, or bare tensors (rows, attribute vectors) with facts.

    Args:
        source: see ``Source``.
        facts: the table; needed for a model or tensors; a run and a FactMemory bring their own.
        vectors: which attribute vectors of a model: columns of W_U ('unembed') or input embeddings ('embed').

    Raises:
        MeasureError: facts are missing or given twice, or the model has no input embeddings of attributes.
        FactsError: the model does not fit the table.
    """
    check_choice("vectors", vectors, get_args(AttributeVectors))
    if isinstance(source, FactMemory):
        if facts is not None and facts is not source.facts:
            raise MeasureError("a FactMemory brings its own facts; leave facts out, or build the FactMemory with them")
        return source
    if isinstance(source, str | Path | Run):
        run = source if isinstance(source, Run) else load_run(source)
        if facts is not None and facts.digest != run.facts.digest:
            raise MeasureError(
                f"the facts given are not those of run {run.folder}; leave facts out to use the run's own"
            )
        return as_memory(run.model, run.facts, vectors)
    if not isinstance(source, FactTransformer | tuple) or (isinstance(source, tuple) and len(source) != 2):
        raise MeasureError(
            f"cannot measure a {type(source).__name__}; give a run folder, a Run, a FactTransformer, a FactMemory, "
            "or the pair (rows, attribute vectors)"
        )
    if facts is None:
        raise MeasureError(f"a {type(source).__name__} does not say what it should recall; pass facts=FactTable(...)")
    if isinstance(source, tuple):
        rows, attributes = (part.detach() if isinstance(part, Tensor) else part for part in source)
        return FactMemory(facts=facts, rows=rows, attributes=attributes, vectors=vectors)
    source.check_fits(facts)
    if vectors == "embed":
        if source.embed.W_attribute is None:
            raise MeasureError(
                "this model has no input embeddings of attributes (its attributes are output tokens alone); "
                "use vectors='unembed', or train with tie_unembed=True"
            )
        attributes = source.embed.W_attribute.detach()
    else:
        attributes = source.attribute_vectors
    return FactMemory(
        facts=facts,
        rows=source.subject_rows,
        attributes=attributes,
        logits=torch.no_grad()(source.answer_logits),
        pre_activations=partial(model_pre_activations, source),
        vectors=vectors,
    )


@torch.no_grad()
def model_pre_activations(
    model: FactTransformer, rows: Float[Tensor, "batch d_model"], relations: Int[Tensor, " batch"]
) -> list[Float[Tensor, "batch d_mlp"]]:
    """Pre-activations of every layer's MLP at the answer position, read at ``blocks.{layer}.mlp.hook_pre``."""
    found: list[Tensor] = []

    def keep(activation: Tensor, hook: object) -> None:
        found.append(activation[:, -1])

    with model.hooks(fwd_hooks=[(f"blocks.{layer}.mlp.hook_pre", keep) for layer in range(model.config.n_layers)]):
        model.answer_logits(rows, relations)
    return found
