"""Train in a run folder: start, interrupt, resume."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from geointerp.errors import CheckpointError, TrainingError
from geointerp.facts.files import read_facts
from geointerp.facts.table import FactTable
from geointerp.models.transformer import FactTransformer
from geointerp.training.checkpoint import (
    Run,
    load_run,
    read_config,
    read_metrics,
    read_tensors,
    start_folder,
    write_metrics,
    write_tensors,
)
from geointerp.training.config import RunConfig
from geointerp.training.loop import Evaluation, Trainer

SAVE_SECONDS = 15.0  # between checkpoints: what a kill can cost


def snapshot_steps(steps: int, count: int) -> set[int]:
    """About ``count`` steps from 1 to ``steps``, evenly spaced in the logarithm, the last included."""
    if count == 0:
        return set()
    return {round(steps ** (i / max(1, count - 1))) for i in range(count)} | {steps}


def train_run(folder: str | Path, config: RunConfig, facts: FactTable, *, device: str = "cpu") -> Run:
    """Train a new model in a new run folder.

    Returns:
        The run as read back from the folder. ``run.finished`` is False after Ctrl-C; ``resume_run`` goes on.

    Raises:
        CheckpointError: the folder already holds a run or cannot be written.
        TrainingError: the loss is not finite.
    """
    folder = Path(folder)
    trainer = Trainer(FactTransformer(config.model).to(device), facts, config.training)
    start_folder(folder, config, facts)
    return _train(folder, trainer)


def resume_run(folder: str | Path, *, device: str = "cpu") -> Run:
    """Go on with an interrupted or killed run; it ends in the same weights, bit for bit, as an unbroken one.

    Raises:
        CheckpointError: no run there, its training state is missing or does not fit, or training is already over.
    """
    folder = Path(folder)
    config, _ = read_config(folder)
    if not (folder / "model.safetensors").exists():  # killed before its first checkpoint: nothing but the start is lost
        trainer = Trainer(
            FactTransformer(config.model).to(device), read_facts(folder / "facts.parquet"), config.training
        )
        return _train(folder, trainer)
    run = load_run(folder, device)
    if run.finished:
        raise CheckpointError(f"training of {folder} is already over; measure it with: geointerp measure {folder}")
    trainer = Trainer(run.model, run.facts, config.training)
    state, metadata = read_tensors(folder / "training.safetensors")
    if not metadata.get("step", "").isdigit():
        raise CheckpointError(f"{folder / 'training.safetensors'} does not say which step it is of; start anew")
    trainer.restore(state, int(metadata["step"]))
    return _train(folder, trainer)


def _train(folder: Path, trainer: Trainer) -> Run:
    """Advance to the end or to Ctrl-C, keeping the folder whole at every moment."""
    for name in ("analysis.json", "analysis.safetensors", "report.html"):  # of weights that are about to change
        (folder / name).unlink(missing_ok=True)
    records = [r for r in read_metrics(folder) if r["step"] <= trainer.step]
    keep = snapshot_steps(trainer.config.steps, trainer.config.snapshots)
    saved = time.monotonic()

    def save() -> None:
        nonlocal saved
        write_metrics(folder, records)
        write_tensors(folder / "training.safetensors", trainer.state(), step=str(trainer.step))
        write_tensors(folder / "model.safetensors", dict(trainer.model.named_parameters()), step=str(trainer.step))
        saved = time.monotonic()

    def on_evaluation(evaluation: Evaluation) -> None:
        records.append(evaluation.to_dict())
        bar.set_postfix_str(f"loss {evaluation.loss:.3g}, recall {evaluation.recall:.4f}")

    def on_step(step: int) -> bool:
        bar.update()
        if step in keep:  # before the checkpoint: a run killed between the two takes this step again
            write_tensors(folder / "steps" / f"{step:06d}.safetensors", dict(trainer.model.named_parameters()))
        if time.monotonic() - saved > SAVE_SECONDS:
            save()
        return bool(interrupted)

    with interruption() as interrupted, _bar(trainer) as bar:
        if not records:
            records.append(trainer.evaluate().to_dict())
        save()
        try:
            trainer.run(on_evaluation, on_step)
        except TrainingError:  # the weights are those from before the failed step, which an earlier one may have spoilt
            if all(bool(p.isfinite().all()) for p in trainer.model.parameters()):
                save()
            raise
        save()  # not after a second Ctrl-C: it may have come in the middle of a step, and the last checkpoint is whole
    if trainer.finished is not None:
        (folder / "training.safetensors").unlink(missing_ok=True)
    return load_run(folder, trainer.device)


def _bar(trainer: Trainer) -> Any:
    return tqdm(desc="training", total=trainer.config.steps, initial=trainer.step, unit="step", disable=None, delay=1)


@contextmanager
def interruption() -> Iterator[list[int]]:
    """Collect Ctrl-C instead of raising in the middle of a step; a second one raises. Elsewhere than in the main
    thread signals cannot be caught, and nothing changes."""
    caught: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield caught
        return

    def note(signum: int, frame: object) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(signum)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield caught
    finally:
        signal.signal(signal.SIGINT, before)
