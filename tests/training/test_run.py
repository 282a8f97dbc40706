"""train_run and resume_run: interrupted or killed at any moment, a run ends in the same bytes as the unbroken one."""

import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from geointerp import (
    FactTable,
    FactTransformer,
    RunConfig,
    Trainer,
    load_run,
    random_bijections,
    resume_run,
    train_run,
)
from geointerp.errors import CheckpointError, FactsError, TrainingError
from geointerp.training import run as run_module
from geointerp.training.run import interruption, snapshot_steps

Tiny = Callable[..., tuple[RunConfig, FactTable]]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def unbroken(tiny: Tiny, tmp_path: Path) -> dict[str, bytes]:
    """Every file of the run that nothing disturbed."""
    train_run(tmp_path / "unbroken", *tiny())
    return contents(tmp_path / "unbroken")


@pytest.fixture
def before_step(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[int, Callable[[], None]]], None]:
    """Do something in the middle of training: a function by the number of steps done before it."""

    def arrange(events: dict[int, Callable[[], None]]) -> None:
        advance = Trainer.advance

        def disturbed(trainer: Trainer) -> float:
            event = events.pop(trainer.step, None)
            if event is not None:
                event()
            return advance(trainer)

        monkeypatch.setattr(Trainer, "advance", disturbed)

    return arrange


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours may catch it."""


def kill() -> None:
    raise Killed


# ---- snapshots ----


@pytest.mark.parametrize(
    ("steps", "count", "expected"),
    [
        (1000, 4, {1, 10, 100, 1000}),
        (100, 3, {1, 10, 100}),
        (64, 7, {1, 2, 4, 8, 16, 32, 64}),
        (50, 2, {1, 50}),
        (50, 0, set()),
        (1, 5, {1}),
        (3, 100, {1, 2, 3}),
    ],
)
def test_snapshots_are_log_spaced(steps: int, count: int, expected: set[int]) -> None:
    assert snapshot_steps(steps, count) == expected


def test_snapshots_are_the_weights_after_their_step(tiny: Tiny, unbroken: dict[str, bytes], tmp_path: Path) -> None:
    config, facts = tiny()
    names = sorted(name for name in unbroken if name.startswith("steps"))
    assert names == [f"steps/{step:06d}.safetensors" for step in (1, 5, 24)]  # 24 ** (i / 2)
    trainer = Trainer(FactTransformer(config.model), facts, config.training)
    while trainer.step < 24:
        trainer.advance()
        path = tmp_path / "unbroken" / "steps" / f"{trainer.step:06d}.safetensors"
        if path.exists():
            stored = load_file(path)
            ours = dict(trainer.model.named_parameters())
            assert stored.keys() == ours.keys()
            assert all(torch.equal(stored[name], ours[name]) for name in ours)


# ---- the same bytes ----


def test_a_second_run_of_the_same_settings_is_the_same(tiny: Tiny, unbroken: dict[str, bytes], tmp_path: Path) -> None:
    torch.manual_seed(123)
    torch.rand(7)
    train_run(tmp_path / "again", *tiny())
    assert contents(tmp_path / "again") == unbroken
    assert "training.safetensors" not in unbroken
    train_run(tmp_path / "other", *tiny(seed=1))
    assert contents(tmp_path / "other")["model.safetensors"] != unbroken["model.safetensors"]


@pytest.mark.parametrize("step", [0, 4, 5, 12, 22])
def test_ctrl_c_then_resume_ends_in_the_same_bytes(
    tiny: Tiny, unbroken: dict[str, bytes], tmp_path: Path, before_step: Any, step: int
) -> None:
    folder = tmp_path / "run"
    handler = signal.getsignal(signal.SIGINT)
    before_step({step: ctrl_c})
    run = train_run(folder, *tiny())
    assert signal.getsignal(signal.SIGINT) is handler
    assert not run.finished
    assert (folder / "training.safetensors").exists()
    again = load_run(folder)  # loadable as it stands: the weights after the step that was under way
    trainer = Trainer(FactTransformer(run.config.model), run.facts, run.config.training)
    for _ in range(step + 1):
        trainer.advance()
    now = dict(trainer.model.named_parameters())
    assert all(torch.equal(value, now[name]) for name, value in again.model.named_parameters())
    assert [r["step"] for r in again.metrics] == [s for s in (0, 5, 10, 15, 20) if s <= step + 1]
    assert resume_run(folder).finished
    assert contents(folder) == unbroken


def test_ctrl_c_again_and_again(tiny: Tiny, unbroken: dict[str, bytes], tmp_path: Path, before_step: Any) -> None:
    folder = tmp_path / "run"
    before_step(dict.fromkeys((2, 3, 9, 17, 22), ctrl_c))
    train_run(folder, *tiny())
    for _ in range(4):
        assert not resume_run(folder).finished
    assert resume_run(folder).finished
    assert contents(folder) == unbroken


def test_ctrl_c_in_the_last_step_is_no_interruption(
    tiny: Tiny, unbroken: dict[str, bytes], tmp_path: Path, before_step: Any
) -> None:
    before_step({23: ctrl_c})
    assert train_run(tmp_path / "run", *tiny()).finished
    assert contents(tmp_path / "run") == unbroken


def test_a_second_ctrl_c_in_the_middle_of_a_step_keeps_the_last_whole_checkpoint(
    tiny: Tiny, unbroken: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    step = torch.optim.AdamW.step

    def torn(optimizer: torch.optim.AdamW, *args: Any, **kwargs: Any) -> Any:
        result = step(optimizer, *args, **kwargs)
        if int(next(iter(optimizer.state.values()))["step"]) == 7:  # weights have moved, the trainer's count has not
            ctrl_c()
            ctrl_c()
        return result

    with monkeypatch.context() as patch:
        patch.setattr(run_module, "SAVE_SECONDS", 0.0)
        patch.setattr(torch.optim.AdamW, "step", torn)
        with pytest.raises(KeyboardInterrupt):
            train_run(folder, *tiny())
    load_run(folder)
    resume_run(folder)
    assert contents(folder) == unbroken


@pytest.mark.parametrize("save_seconds", [0.0, 1000.0])
@pytest.mark.parametrize("step", [0, 1, 5, 23])
def test_killed_between_steps(
    tiny: Tiny,
    unbroken: dict[str, bytes],
    tmp_path: Path,
    before_step: Any,
    monkeypatch: pytest.MonkeyPatch,
    step: int,
    save_seconds: float,
) -> None:
    folder = tmp_path / "run"
    before_step({step: kill})
    monkeypatch.setattr(run_module, "SAVE_SECONDS", save_seconds)
    with pytest.raises(Killed):
        train_run(folder, *tiny())
    load_run(folder)
    resume_run(folder)
    assert contents(folder) == unbroken


@pytest.mark.slow
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_at_any_write(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """With a checkpoint every step, die around the n-th rename, for n = 1, 2, ... until the run gets through."""
    replace = os.replace
    monkeypatch.setattr(run_module, "SAVE_SECONDS", 0.0)
    train_run(tmp_path / "calm", *tiny(steps=3, eval_every=2))
    expected = contents(tmp_path / "calm")
    renames, died = 0, True
    while died:
        renames += 1
        left = [renames]

        def dying(source: Any, target: Any, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0 and when == "before":
                raise Killed
            replace(source, target)
            if left[0] == 0:
                raise Killed

        folder = tmp_path / "run"
        monkeypatch.setattr(os, "replace", dying)
        try:
            train_run(folder, *tiny(steps=3, eval_every=2))
            died = False
        except Killed:
            pass
        monkeypatch.setattr(os, "replace", replace)
        if (folder / "config.json").exists():
            if (folder / "model.safetensors").exists():
                load_run(folder)
            if died:
                resume_run(folder)
        else:
            train_run(folder, *tiny(steps=3, eval_every=2))
        assert contents(folder) == expected, f"{when} rename {renames}"
        shutil.rmtree(folder)
    assert renames > 15


def test_killed_before_training_state_was_removed(
    tiny: Tiny, unbroken: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda path, missing_ok=False: kill() if path.name[0] == "t" else None)
        with pytest.raises(Killed):
            train_run(tmp_path / "run", *tiny())
    assert not load_run(tmp_path / "run").finished
    assert resume_run(tmp_path / "run").finished
    assert contents(tmp_path / "run") == unbroken


# ---- what cannot go on ----


def test_a_finished_run_is_not_resumed(tiny: Tiny, tmp_path: Path) -> None:
    train_run(tmp_path / "run", *tiny(steps=2))
    with pytest.raises(CheckpointError, match=r"already over; measure it with: geointerp measure .*run$"):
        resume_run(tmp_path / "run")
    with pytest.raises(CheckpointError, match="already holds a run"):
        train_run(tmp_path / "run", *tiny(steps=2))


def test_nothing_to_resume(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no run folder"):
        resume_run(tmp_path / "nowhere")


def test_a_damaged_training_state_is_refused(tiny: Tiny, tmp_path: Path, before_step: Any) -> None:
    folder = tmp_path / "run"
    before_step({3: ctrl_c})
    train_run(folder, *tiny())
    state = folder / "training.safetensors"
    whole = state.read_bytes()
    state.write_bytes(whole[:-1])
    with pytest.raises(CheckpointError, match="is not a whole safetensors file"):
        resume_run(folder)
    shutil.copy(folder / "model.safetensors", state)  # weights without moments, and without their names
    with pytest.raises(TrainingError, match="the training state does not fit the model"):
        resume_run(folder)
    run_module.write_tensors(state, load_file(folder / "model.safetensors"))
    with pytest.raises(CheckpointError, match="does not say which step"):
        resume_run(folder)
    state.write_bytes(whole)
    assert resume_run(folder).finished


def test_resuming_drops_what_was_measured_on_the_old_weights(tiny: Tiny, tmp_path: Path, before_step: Any) -> None:
    folder = tmp_path / "run"
    before_step({5: ctrl_c})
    assert not train_run(folder, *tiny()).finished
    stale = [folder / name for name in ("analysis.json", "analysis.safetensors", "report.html")]
    for path in stale:
        path.write_text("of the weights after 5 steps")
    assert resume_run(folder).finished
    assert not any(path.exists() for path in stale)


def test_divergence_leaves_the_weights_from_before_the_step(tiny: Tiny, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    config, facts = tiny(learning_rate=1e30, warmup_steps=0)
    with pytest.raises(TrainingError, match="with learning rate"):
        train_run(folder, config, facts)
    run = load_run(folder)
    assert not run.finished
    trainer = Trainer(FactTransformer(config.model), facts, config.training)
    with pytest.raises(TrainingError) as first:
        trainer.run()
    with pytest.raises(TrainingError) as again:
        resume_run(folder)
    assert str(again.value) == str(first.value)  # at the same step
    now = dict(trainer.model.named_parameters())
    for name, value in run.model.named_parameters():
        assert torch.equal(value.nan_to_num(nan=7.0), now[name].nan_to_num(nan=7.0))


def test_weights_that_are_not_numbers_never_replace_a_checkpoint(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    config, facts = tiny()
    step = Trainer.advance

    def spoiled(self: Trainer) -> float:
        if self.step == 2:
            self.model.embed.W_subject.data[0, 0] = float("nan")
        return step(self)

    monkeypatch.setattr(Trainer, "advance", spoiled)
    with pytest.raises(TrainingError, match="at step 2"):
        train_run(folder, config, facts)
    start = dict(FactTransformer(config.model).named_parameters())
    for name, value in load_run(folder).model.named_parameters():
        assert torch.equal(value, start[name])


def test_a_table_that_does_not_fit_leaves_no_folder(tiny: Tiny, tmp_path: Path) -> None:
    config, _ = tiny()
    with pytest.raises(FactsError, match="the model has 10 subjects"):
        train_run(tmp_path / "run", config, random_bijections(11, 3, seed=0))
    assert not (tmp_path / "run").exists()


def test_the_first_ctrl_c_is_kept_and_the_second_raised() -> None:
    with interruption() as caught:
        assert not caught
        ctrl_c()
        assert caught == [signal.SIGINT]
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
    with pytest.raises(KeyboardInterrupt):  # and afterwards it is Python's own again
        ctrl_c()


def test_training_works_outside_the_main_thread(tiny: Tiny, unbroken: dict[str, bytes], tmp_path: Path) -> None:
    thread = threading.Thread(target=train_run, args=(tmp_path / "run", *tiny()))
    thread.start()
    thread.join()
    assert contents(tmp_path / "run") == unbroken
