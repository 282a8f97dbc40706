"""Analysis: every measure of one run, kept in the run folder."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from geointerp.errors import CheckpointError, one_line
from geointerp.facts.table import FactTable
from geointerp.measures.gating import Gating, gating
from geointerp.measures.memory import Source, as_memory
from geointerp.measures.selector import Selector, selector
from geointerp.measures.superposition import Superposition, decompose
from geointerp.measures.transfer import Transfer, transfer
from geointerp.plain import plain
from geointerp.training.checkpoint import read_tensors, write_json, write_tensors

ANALYSIS_VERSION = 1
MEASURES = ("superposition", "gating", "selector", "transfer")


@dataclass(frozen=True, kw_only=True, eq=False)
class Analysis:
    """What was measured on one model.

    Attributes:
        superposition: fit with a matrix a relation; the maps of selector and transfer.
        superposition_scalar: fit with a number a relation; None where rows and attribute vectors differ in width.
        gating, selector, transfer: see their modules.
    """

    superposition: Superposition
    superposition_scalar: Superposition | None
    gating: Gating
    selector: Selector
    transfer: Transfer

    def summary(self) -> dict[str, float | None]:
        """The headline numbers, each with its null: what ``run --json`` prints."""
        fit = self.superposition
        return plain(
            {
                "recall": fit.recall_rows,
                "r2_in_sample": fit.r2_in_sample,
                "r2_leave_one_out": fit.r2_leave_one_out,
                "r2_null": fit.null_leave_one_out.mean,
                "r2_in_sample_null": fit.null_in_sample.mean,
                "saturated": fit.saturated,
                "selectivity": self.selector.selectivity,
                "selectivity_null": self.selector.selectivity_null,
                "isolation": self.selector.isolation,
                "isolation_null": self.selector.isolation_null,
                "transfer": self.transfer.recall,
                "transfer_shuffled": self.transfer.shuffled,
                "chance": self.transfer.chance,
            }
        )


def measure(
    source: Source,
    facts: FactTable | None = None,
    *,
    permutations: int = 100,
    seed: int = 0,
    on_measure: Callable[[str], None] | None = None,
) -> Analysis:
    """Run every measure on one source.

    Args:
        source, facts: as for ``decompose``.
        permutations: draws of the permutation null.
        seed: of every draw that measures make; the bijections of ``transfer`` are never those of training.
        on_measure: called with the name of each measure before it starts.
    """
    tell = on_measure or (lambda name: None)
    memory = as_memory(source, facts)
    tell("superposition")
    fit = decompose(memory, permutations=permutations, seed=seed)
    scalar = None
    if memory.rows.shape[1] == memory.attributes.shape[1]:
        scalar = decompose(memory, maps="scalar", permutations=permutations, seed=seed)
    tell("gating")
    gates = gating(memory, seed=seed)
    tell("selector")
    matrix = selector(memory, superposition=fit, seed=seed)
    tell("transfer")
    moved = transfer(memory, superposition=fit, seed=seed)
    return Analysis(superposition=fit, superposition_scalar=scalar, gating=gates, selector=matrix, transfer=moved)


def write_analysis(folder: Path, analysis: Analysis) -> None:
    """Write ``analysis.json`` (scalars and small arrays) and ``analysis.safetensors`` (every array) into a run folder.

    The JSON carries hashes of the weights that were measured and of its own content, arrays included.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    arrays: dict[str, Tensor] = {}
    content = _pack(analysis, "", arrays)
    write_tensors(folder / "analysis.safetensors", arrays)
    write_json(
        folder / "analysis.json",
        {
            "analysis_version": ANALYSIS_VERSION,
            "weights": _hash_of(folder / "model.safetensors"),
            "content": _hash(content, folder),
            "summary": analysis.summary(),
            "measures": content,
        },
    )


def read_analysis(folder: str | Path) -> Analysis:
    """The Analysis that ``write_analysis`` left in a run folder, equal in every value.

    Raises:
        CheckpointError: not measured yet, measured on other weights than the folder's, another version, or damaged.
    """
    folder = Path(folder)
    path = folder / "analysis.json"
    again = f"measure again: geointerp measure {folder}"
    if not path.is_file():
        raise CheckpointError(f"{folder} has not been measured (no analysis.json); run: geointerp measure {folder}")
    arrays, _ = read_tensors(folder / "analysis.safetensors")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = {key: content[key] for key in ("analysis_version", "weights", "content", "measures")}
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged ({type(error).__name__}: {one_line(error)}); {again}") from error
    if found["analysis_version"] != ANALYSIS_VERSION:
        raise CheckpointError(
            f"{path} has version {found['analysis_version']} and this geointerp reads {ANALYSIS_VERSION}; {again}"
        )
    if found["content"] != _hash(found["measures"], folder):
        raise CheckpointError(f"{path} or the arrays beside it were changed or belong to another measurement; {again}")
    if found["weights"] != _hash_of(folder / "model.safetensors"):
        raise CheckpointError(f"{path} was measured on other weights than those in {folder} now; {again}")
    return _unpack(Analysis, found["measures"], "", arrays)


def _hash_of(path: Path) -> str | None:
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest() if path.is_file() else None


def _hash(content: Any, folder: Path) -> str:
    """Of the measures as JSON and of the arrays' file."""
    text = json.dumps(content, sort_keys=True) + str(_hash_of(folder / "analysis.safetensors"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _pack(value: Any, at: str, arrays: dict[str, Tensor]) -> Any:
    """Plain JSON types of a result, its tensors put aside under their dotted path (small ones stay readable too)."""
    if not hasattr(value, "__dataclass_fields__"):
        if isinstance(value, tuple) and value and hasattr(value[0], "__dataclass_fields__"):
            return [_pack(item, f"{at}{i}.", arrays) for i, item in enumerate(value)]
        return plain(value)
    out = {}
    for field in fields(value):
        item = getattr(value, field.name)
        if isinstance(item, Tensor):
            arrays[at + field.name] = item
            if not field.metadata.get("large"):
                out[field.name] = plain(item)
        else:
            out[field.name] = _pack(item, f"{at}{field.name}.", arrays)
    return out


def _unpack(kind: Any, content: Any, at: str, arrays: dict[str, Tensor]) -> Any:
    """Inverse of ``_pack`` for the type ``kind``; None stands for a number that is not finite where none is allowed."""
    if get_origin(kind) in (Union, UnionType):
        kinds = [k for k in get_args(kind) if k is not type(None)]
        return None if content is None else _unpack(kinds[0], content, at, arrays)
    if get_origin(kind) is tuple:
        return tuple(_unpack(get_args(kind)[0], item, f"{at}{i}.", arrays) for i, item in enumerate(content))
    if hasattr(kind, "__dataclass_fields__"):
        hints = get_type_hints(kind)
        return kind(
            **{
                field.name: arrays[at + field.name]
                if at + field.name in arrays
                else _unpack(hints[field.name], content[field.name], f"{at}{field.name}.", arrays)
                for field in fields(kind)
            }
        )
    if kind is float:
        return float("nan") if content is None else float(content)
    return content
