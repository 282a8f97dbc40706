"""The run folder: what is in it, written so that a killed run leaves the last whole one, and read strictly.

    config.json           schema, versions, whole config, threads, hash of the facts
    facts.parquet         the table
    model.safetensors     weights
    metrics.jsonl         one evaluation a line
    training.safetensors  weights and optimizer moments, while training is unfinished
    steps/000100.safetensors  weights along the way

Nothing here unpickles.
"""

import json
import os
import platform
import shutil
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from geointerp.errors import CheckpointError, ConfigError, GeointerpError, one_line
from geointerp.facts.files import read_facts, write_facts
from geointerp.facts.table import FactTable
from geointerp.models.transformer import FactTransformer
from geointerp.training.config import RunConfig
from geointerp.training.loop import Evaluation

SCHEMA_VERSION = 1
EVALUATION_KEYS = {field.name for field in fields(Evaluation)}
CONFIG_KEYS = {"schema_version", "versions", "threads", "facts_digest", "config"}
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""From schema v to v + 1: a function of the whole config.json."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run folder, read.

    Attributes:
        folder: where it lies.
        config: its whole configuration.
        facts: its table.
        model: weights loaded, in evaluation mode.
        metrics: one dict an evaluation, oldest first.
        finished: False while training can be resumed.
    """

    folder: Path
    config: RunConfig
    facts: FactTable
    model: FactTransformer
    metrics: tuple[dict[str, Any], ...]
    finished: bool


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name beside ``path``, then rename: readers see the old file or the whole new one.

    Raises:
        CheckpointError: the folder cannot be written (missing rights, disk full); the old file is untouched.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise CheckpointError(f"cannot write {path}: {error.strerror}; choose another folder or free space") from error
    finally:
        with suppress(OSError):  # gone where all went well; Ctrl-C too leaves no stray file
            temporary.unlink()


def write_json(path: Path, content: Any) -> None:
    """Indented JSON; a NaN in the content is a ValueError (``plain`` makes it None)."""
    write_atomically(path, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def write_tensors(path: Path, tensors: dict[str, Tensor], **metadata: str) -> None:
    """One safetensors file."""
    write_atomically(path, save({name: t.detach().cpu().contiguous() for name, t in tensors.items()}, metadata))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and metadata of a safetensors file.

    Raises:
        CheckpointError: missing, a folder, empty, truncated, or not safetensors.
    """
    if not path.is_file():
        raise CheckpointError(f"{path} is {'a folder' if path.is_dir() else 'missing'}; expected a safetensors file")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118 - safe_open is no dict
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file ({one_line(error)}); it may be cut off: restore it or train again"
        ) from error


def start_folder(folder: Path, config: RunConfig, facts: FactTable) -> None:
    """Create the run folder with its config and facts.

    Raises:
        CheckpointError: a run lies there already, or the folder cannot be made.
    """
    if (folder / "config.json").exists():
        raise CheckpointError(
            f"{folder} already holds a run; choose another --out, replace it with --force, "
            f"or continue it with: geointerp train --resume {folder}"
        )
    if folder.exists() and not folder.is_dir():
        raise CheckpointError(f"{folder} is a file, and a run is a folder; choose another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"cannot make folder {folder}: {error.strerror}; choose another --out") from error
    write_facts(facts, folder / "facts.parquet")
    write_json(
        folder / "config.json",
        {
            "schema_version": SCHEMA_VERSION,
            "versions": {"python": platform.python_version()}
            | {name: version(name) for name in ("geointerp", "torch", "transformer-lens")},
            "threads": torch.get_num_threads(),
            "facts_digest": facts.digest,
            "config": config.to_dict(),
        },
    )


def remove_run(folder: Path) -> None:
    """Delete a run folder with all that is in it; nothing happens where none is.

    Raises:
        CheckpointError: the folder is not empty and does not hold a run, so it is not ours to delete; or it cannot be.
    """
    if not folder.exists():
        return
    if folder.is_dir() and (folder / "config.json").is_file():
        read_config(folder)
        try:
            shutil.rmtree(folder)
        except OSError as error:  # missing rights, or a symbolic link
            raise CheckpointError(f"cannot replace {folder}: {one_line(error)}; choose another --out") from error
    elif not folder.is_dir() or any(folder.iterdir()):
        raise CheckpointError(f"{folder} holds no run, so it is not replaced; choose another --out")


def read_config(folder: Path) -> tuple[RunConfig, dict[str, Any]]:
    """The configuration of a run, and the whole config.json it stands in.

    Raises:
        CheckpointError: no run folder; not JSON; a newer schema (naming both versions); an unknown or bad setting.
    """
    path = folder / "config.json"
    if folder.is_file():
        raise CheckpointError(
            f"{folder} is a file; give the run folder that holds config.json (nothing is ever unpickled)"
        )
    if not path.is_file():
        raise CheckpointError(
            f"{folder} is no run folder (no config.json in it); make one with: geointerp train --out {folder}"
        )
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = content["schema_version"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(
            f"{path} is not the config.json of a run ({type(error).__name__}: {one_line(error)})"
        ) from error
    if type(found) is not int:
        raise CheckpointError(f"{path} has schema version {found!r}, which is not a whole number; restore the file")
    if found > SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has schema version {found} and this geointerp reads up to {SCHEMA_VERSION}; "
            "install a newer geointerp"
        )
    while found < SCHEMA_VERSION:
        if found not in UPGRADES:
            raise CheckpointError(
                f"{path} has schema version {found}, from which no upgrade to {SCHEMA_VERSION} is known"
            )
        content = UPGRADES[found](content)
        warnings.warn(f"{path}: read schema version {found} as version {found + 1}", stacklevel=2)
        found += 1
    if set(content) != CONFIG_KEYS:
        odd = ", ".join(sorted(set(content) ^ CONFIG_KEYS))
        raise CheckpointError(f"{path} must have exactly the keys {', '.join(sorted(CONFIG_KEYS))}; look at {odd}")
    try:
        return RunConfig.from_dict(content["config"], str(path)), content
    except ConfigError as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise CheckpointError(f"{where}{error}") from error


def load_weights(model: FactTransformer, weights: dict[str, Tensor], where: str) -> None:
    """Copy weights into a model, every one of them or none.

    Raises:
        CheckpointError: listing what is missing, unexpected, misshapen and of another number type.
    """
    own = dict(model.named_parameters())
    faults = [
        f"{kind} {', '.join(sorted(names)[:6])}"
        for kind, names in (
            ("missing", own.keys() - weights.keys()),
            ("unexpected", weights.keys() - own.keys()),
            (
                "misshapen",
                {
                    f"{n} (file {tuple(weights[n].shape)}, model {tuple(own[n].shape)})"
                    for n in own.keys() & weights.keys()
                    if weights[n].shape != own[n].shape
                },
            ),
            (
                "of another type",
                {
                    f"{n} (file {weights[n].dtype}, model {own[n].dtype})"
                    for n in own.keys() & weights.keys()
                    if weights[n].dtype != own[n].dtype
                },
            ),
        )
        if names
    ]
    if faults:
        raise CheckpointError(f"{where} does not fit the model of its config.json: {'; '.join(faults)}")
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(weights[name])


def load_run(folder: str | Path, device: str | torch.device = "cpu") -> Run:
    """Read a run folder.

    Args:
        folder: made by ``geointerp train`` or ``geointerp run``.
        device: where the model goes, whatever it was trained on.

    Raises:
        CheckpointError: something is missing, damaged, from a newer version, or does not fit; one line says what.
    """
    folder = Path(folder)
    config, content = read_config(folder)
    try:
        facts = read_facts(folder / "facts.parquet")
    except GeointerpError as error:
        raise CheckpointError(f"the facts of {folder} cannot be read: {error}") from error
    if facts.digest != content.get("facts_digest"):
        raise CheckpointError(
            f"{folder / 'facts.parquet'} is not the table that config.json was written for; restore it"
        )
    try:
        model = FactTransformer(config.model)
    except RuntimeError as error:  # sizes that no memory holds
        raise CheckpointError(f"the model of {folder / 'config.json'} cannot be made: {one_line(error)}") from error
    model.check_fits(facts)
    load_weights(model, read_tensors(folder / "model.safetensors")[0], str(folder / "model.safetensors"))
    return Run(
        folder=folder,
        config=config,
        facts=facts,
        model=model.to(device).eval(),
        metrics=tuple(read_metrics(folder)),
        finished=not (folder / "training.safetensors").exists(),
    )


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Evaluations of a run, oldest first; a last line cut off by a kill is left out.

    Raises:
        CheckpointError: unreadable, or a line is not an evaluation.
    """
    path = folder / "metrics.jsonl"
    records: list[dict[str, Any]] = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read ({one_line(error)}); restore it") from error
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
        except ValueError:
            break
        if not isinstance(record, dict) or set(record) != EVALUATION_KEYS:
            raise CheckpointError(f"{path}, line {number}: not an evaluation with {', '.join(sorted(EVALUATION_KEYS))}")
        records.append(record)
    return records


def write_metrics(folder: Path, records: Iterable[dict[str, Any]]) -> None:
    """All evaluations, one a line, replacing the file whole."""
    write_atomically(folder / "metrics.jsonl", "".join(json.dumps(r) + "\n" for r in records).encode())
