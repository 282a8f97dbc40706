"""Run folders are read strictly, never unpickled, and written whole or not at all."""

import errno
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from geointerp import FactTable, FactTransformer, RunConfig, load_run, random_bijections, train_run, write_facts
from geointerp.errors import CheckpointError
from geointerp.training import checkpoint
from geointerp.training.checkpoint import (
    load_weights,
    read_config,
    read_tensors,
    remove_run,
    start_folder,
    write_atomically,
    write_json,
)

Tiny = Callable[..., tuple[RunConfig, FactTable]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; tests work on copies of it."""
    from geointerp import FactTransformerConfig, TrainConfig

    folder = tmp_path_factory.mktemp("trained") / "run"
    config = RunConfig(
        model=FactTransformerConfig(n_subjects=10, n_relations=3, n_attributes=10, d_model=8, d_mlp=16),
        training=TrainConfig(steps=6, batch_size=8, eval_every=2, warmup_steps=1, snapshots=2),
    )
    train_run(folder, config, random_bijections(10, 3, seed=0))
    return folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def refusal(folder: str | Path) -> str:
    """What load_run says of a folder that it refuses, in one line."""
    with pytest.raises(CheckpointError) as caught:
        load_run(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def edit_config(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    path = folder / "config.json"
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


# ---- what is in it ----


def test_a_run_folder_holds_what_it_should(trained: Path) -> None:
    assert {p.name for p in trained.iterdir()} == {
        "config.json",
        "facts.parquet",
        "model.safetensors",
        "metrics.jsonl",
        "steps",
    }
    content = json.loads((trained / "config.json").read_text())
    assert content["schema_version"] == 1
    assert content["versions"].keys() == {"python", "geointerp", "torch", "transformer-lens"}
    assert content["versions"]["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert content["threads"] == torch.get_num_threads()
    assert content["facts_digest"] == random_bijections(10, 3, seed=0).digest
    assert content["config"]["training"]["steps"] == 6


def test_metrics_are_json_without_nan(trained: Path) -> None:
    def no_constant(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    lines = (trained / "metrics.jsonl").read_text().splitlines()
    records = [json.loads(line, parse_constant=no_constant) for line in lines]
    assert [r["step"] for r in records] == [0, 2, 4, 6]
    assert records[0]["batch_loss"] is None
    assert all(isinstance(r["batch_loss"], float) for r in records[1:])
    keys = {"step", "learning_rate", "batch_loss", "loss", "recall", "recall_by_relation"}
    assert all(r.keys() == keys and len(r["recall_by_relation"]) == 3 for r in records)


def test_round_trip(trained: Path) -> None:
    run = load_run(trained)
    assert run.facts.digest == random_bijections(10, 3, seed=0).digest
    assert run.finished
    assert not run.model.training
    again = load_run(str(trained))
    tokens = torch.tensor([[s, 10 + r] for s in range(10) for r in range(3)])
    assert torch.equal(run.model(tokens), again.model(tokens))
    stored = load_file(trained / "model.safetensors")
    assert stored.keys() == dict(run.model.named_parameters()).keys()
    assert all(torch.equal(value, stored[name]) for name, value in run.model.named_parameters())
    fresh = FactTransformer(run.config.model)
    assert not torch.equal(fresh(tokens), run.model(tokens))


# ---- weights that do not fit (cases.md 7) ----

ROW, READ = "embed.W_subject", "blocks.0.mlp.W_in"
FLOAT = "model torch.float32"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop(ROW), f"missing {ROW}"),
        (lambda w: w.update(extra=torch.zeros(1)), "unexpected extra"),
        (lambda w: w.update(W_subject=w.pop(ROW)), f"missing {ROW}; unexpected W_subject"),
        (lambda w: w.update({READ: w[READ].T.contiguous()}), f"misshapen {READ} (file (16, 8), model (8, 16))"),
        (lambda w: w.update({ROW: w[ROW][:9]}), f"misshapen {ROW} (file (9, 8), model (10, 8))"),
        (
            lambda w: w.update({ROW: w[ROW].double()}),
            f"of another type {ROW} (file torch.float64, {FLOAT})",
        ),
        (lambda w: w.update({ROW: w[ROW].long()}), f"of another type {ROW} (file torch.int64, {FLOAT})"),
        (lambda w: w.clear(), "missing blocks.0."),
    ],
    ids=["dropped", "added", "renamed", "turned", "cut", "double", "whole numbers", "empty"],
)
def test_weights_that_do_not_fit_are_listed(run: Path, change: Callable[[Any], None], message: str) -> None:
    weights = load_file(run / "model.safetensors")
    change(weights)
    save_file(weights, run / "model.safetensors")
    assert refusal(run).startswith(f"{run / 'model.safetensors'} does not fit the model of its config.json: {message}")


def test_missing_unexpected_and_misshapen_are_listed_together(run: Path) -> None:
    weights = load_file(run / "model.safetensors")
    weights["oops"] = weights.pop(ROW)
    weights[READ] = torch.zeros(3)
    save_file(weights, run / "model.safetensors")
    assert f"missing {ROW}; unexpected oops; misshapen {READ} (file (3,), model (8, 16))" in refusal(run)


def test_weights_of_another_width_are_refused(run: Path) -> None:
    edit_config(run, lambda c: c["config"]["model"].update(d_model=16))
    text = refusal(run)
    assert "misshapen blocks.0.attn.W_O (file (1, 8, 8), model (1, 16, 16))" in text


def test_a_refused_load_changes_no_weight(trained: Path) -> None:
    run = load_run(trained)
    before = {name: value.detach().clone() for name, value in run.model.named_parameters()}
    weights = {name: torch.zeros_like(value) for name, value in before.items()}
    weights.pop(ROW)
    with pytest.raises(CheckpointError, match=f"^here does not fit .* missing {ROW}$"):
        load_weights(run.model, weights, "here")
    assert all(torch.equal(value, before[name]) for name, value in run.model.named_parameters())


# ---- nothing is executed, nothing is half read (cases.md 10) ----


class Bomb:
    """Unpickling it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


@pytest.fixture
def bomb(tmp_path: Path) -> tuple[Path, Path]:
    """(a .pt file, what appears once it is unpickled)."""
    mark = tmp_path / "executed"
    file = tmp_path / "model.pt"
    torch.save({"embed.W_subject": Bomb(mark)}, file)
    with pytest.raises(pickle.UnpicklingError):  # torch's own guard; the file is what it should be
        torch.load(file, weights_only=True)
    torch.load(file, weights_only=False)
    assert mark.is_dir()
    mark.rmdir()
    return file, mark


@pytest.mark.parametrize("name", ["model.safetensors", "facts.parquet", "config.json"])
def test_a_pickle_in_place_of_a_file_is_never_executed(run: Path, bomb: tuple[Path, Path], name: str) -> None:
    shutil.copy(bomb[0], run / name)
    assert name in refusal(run)
    assert not bomb[1].exists()


def test_a_pickle_beside_the_run_is_never_looked_at(run: Path, bomb: tuple[Path, Path]) -> None:
    for name in ("model.pt", "pytorch_model.bin", "optimizer.pt"):
        shutil.copy(bomb[0], run / name)
    load_run(run)
    assert not bomb[1].exists()


def test_a_pickle_given_as_the_run(bomb: tuple[Path, Path]) -> None:
    assert refusal(bomb[0]) == (
        f"{bomb[0]} is a file; give the run folder that holds config.json (nothing is ever unpickled)"
    )
    assert not bomb[1].exists()


@pytest.mark.parametrize("kept", [0, 1, 7, 8, 9, 300, -1])
def test_a_truncated_file_is_refused(run: Path, kept: int) -> None:
    path = run / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert refusal(run).startswith(f"{path} is not a whole safetensors file (")


def test_a_header_that_promises_too_much_is_refused(run: Path) -> None:
    (run / "model.safetensors").write_bytes(b"\xff" * 64)
    assert "is not a whole safetensors file" in refusal(run)


@pytest.mark.parametrize("name", ["model.safetensors", "facts.parquet", "config.json"])
def test_a_folder_in_place_of_a_file(run: Path, name: str) -> None:
    (run / name).unlink()
    (run / name).mkdir()
    text = refusal(run)
    assert name in text
    assert "folder" in text


@pytest.mark.parametrize("name", ["model.safetensors", "facts.parquet", "config.json"])
def test_a_missing_file(run: Path, name: str) -> None:
    (run / name).unlink()
    assert name in refusal(run)


def test_no_folder_at_all(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere").startswith(f"{tmp_path / 'nowhere'} is no run folder (no config.json in it)")


# ---- versions and settings (cases.md 9 and 11) ----


def test_a_newer_schema_names_both_versions(run: Path) -> None:
    edit_config(run, lambda c: c.update(schema_version=99))
    assert "has schema version 99 and this geointerp reads up to 1; install a newer geointerp" in refusal(run)


def test_an_older_schema_is_upgraded_with_a_notice(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def upgrade(content: dict[str, Any]) -> dict[str, Any]:
        model = content["config"]["model"]
        model["d_mlp"] = model.pop("width")
        return content

    monkeypatch.setattr(checkpoint, "SCHEMA_VERSION", 3)
    monkeypatch.setitem(checkpoint.UPGRADES, 1, upgrade)
    monkeypatch.setitem(checkpoint.UPGRADES, 2, lambda content: content)
    edit_config(run, lambda c: c["config"]["model"].update(width=c["config"]["model"].pop("d_mlp")))
    with pytest.warns(UserWarning, match="read schema version") as notices:
        assert load_run(run).config.model.d_mlp == 16
    assert [str(n.message).rsplit(": ", 1)[1] for n in notices] == [
        "read schema version 1 as version 2",
        "read schema version 2 as version 3",
    ]


def test_an_older_schema_without_a_way_up_is_refused(run: Path) -> None:
    edit_config(run, lambda c: c.update(schema_version=0))
    assert "has schema version 0, from which no upgrade to 1 is known" in refusal(run)


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("model", {"normalisation": "LN"}, "unknown setting 'normalisation'; did you mean 'normalization'?"),
        ("model", {"d_mpl": 4}, "unknown setting 'd_mpl'; did you mean 'd_mlp'?"),
        ("model", {"normalization": "none"}, "no norm is written null in JSON"),
        ("model", {"d_model": "8"}, "d_model='8' is not a whole number of at least 1"),
        ("training", {"step": 4}, "unknown setting 'step'; did you mean 'steps'?"),
    ],
)
@pytest.mark.usefixtures("as_users_run_it")
def test_settings_are_read_strictly(run: Path, part: str, change: dict[str, Any], message: str) -> None:
    edit_config(run, lambda c: c["config"][part].update(change))
    assert message in refusal(run)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"3",
        b"null",
        b"{}",
        b'{"schema_version": null}',
        b'{"schema_version": "one"}',
        b"\xff\xfe",
        b'{"schema_version": 1}',
        b'{"schema_version": 1, "config": []}',
        b'{"schema_version": 1, "config": {"model": null}}',
    ],
)
def test_what_is_no_config_is_refused(run: Path, content: bytes) -> None:
    (run / "config.json").write_bytes(content)
    assert refusal(run).startswith(str(run / "config.json"))


def test_facts_of_another_run_are_refused(run: Path) -> None:
    write_facts(random_bijections(10, 3, seed=1), run / "facts.parquet")
    assert "facts.parquet is not the table that config.json was written for; restore it" in refusal(run)


def test_a_cut_line_of_metrics_is_left_out(run: Path) -> None:
    path = run / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert [r["step"] for r in load_run(run).metrics] == [0, 2, 4]
    path.unlink()
    assert load_run(run).metrics == ()


# ---- writing ----


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "a.bin"
    write_atomically(path, b"old")

    def full(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(CheckpointError) as caught:
        write_atomically(path, b"new and longer")
    assert str(caught.value) == f"cannot write {path}: No space left on device; choose another folder or free space"
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a.bin": b"old"}


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_an_interrupted_write_leaves_no_stray_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "a.bin"
    write_atomically(path, b"old")

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == {"a.bin": b"old"}


def test_the_content_is_on_disk_before_the_name_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, done = tmp_path / "a.bin", []
    fsync, replace = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        done.append(("fsync", os.fstat(descriptor).st_size))
        fsync(descriptor)

    def renamed(source: Path, target: Path) -> None:
        done.append(("replace", source.stat().st_size))
        assert source.parent == target.parent  # on the same file system, so that the rename is atomic
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_atomically(path, b"12345")
    assert done == [("fsync", 5), ("replace", 5)]


def test_json_never_holds_nan(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert not list(tmp_path.iterdir())


def test_a_file_in_the_way_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="cannot write"):
        write_atomically(tmp_path / "file" / "a.bin", b"")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_tensor_file_keeps_metadata(tmp_path: Path) -> None:
    checkpoint.write_tensors(tmp_path / "t.safetensors", {"x": torch.arange(6).view(2, 3).T}, step="7")
    tensors, metadata = read_tensors(tmp_path / "t.safetensors")
    assert metadata == {"step": "7"}
    assert tensors["x"].tolist() == [[0, 3], [1, 4], [2, 5]]


def test_starting_where_a_run_lies_is_refused(run: Path, tiny: Tiny) -> None:
    before = {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()}
    config, facts = tiny()
    with pytest.raises(CheckpointError, match="already holds a run; choose another --out, replace it with --force"):
        start_folder(run, config, facts)
    assert {p.name: p.read_bytes() for p in run.iterdir() if p.is_file()} == before


def test_starting_where_a_file_lies_is_refused(tmp_path: Path, tiny: Tiny) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(CheckpointError, match="is a file, and a run is a folder"):
        start_folder(tmp_path / "file", *tiny())
    with pytest.raises(CheckpointError, match="cannot make folder"):
        start_folder(tmp_path / "file" / "below", *tiny())
    assert (tmp_path / "file").read_text() == "mine"


# ---- deleting ----


def test_remove_run_deletes_a_run_and_nothing_else(run: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    remove_run(run)
    assert [p.name for p in tmp_path.iterdir()] == ["other"]
    remove_run(run)  # nothing there: nothing happens
    remove_run(tmp_path / "other")  # empty: a run may go there
    assert (tmp_path / "other").is_dir()


def other_tools_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"name": "my web app", "schema_version": 1, "config": {"port": 80}}')


@pytest.mark.parametrize(
    "fill",
    [
        lambda folder: (folder / "thesis.tex").write_text("mine"),
        lambda folder: (folder / "sub").mkdir(),
        lambda folder: (folder / "config.json").write_text("{}"),
        lambda folder: (folder / "config.json").write_text("not json"),
        lambda folder: (folder / "config.json").mkdir(),
        other_tools_config,
    ],
)
def test_remove_run_never_deletes_what_is_no_run(tmp_path: Path, fill: Callable[[Path], None]) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    fill(folder)
    before = sorted(p.relative_to(folder) for p in folder.rglob("*"))
    with pytest.raises(CheckpointError):
        remove_run(folder)
    assert sorted(p.relative_to(folder) for p in folder.rglob("*")) == before


def test_remove_run_never_deletes_a_file_or_follows_a_link(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(CheckpointError, match="holds no run, so it is not replaced"):
        remove_run(file)
    link = tmp_path / "link"
    link.symlink_to(run, target_is_directory=True)
    with pytest.raises(CheckpointError, match=r"cannot replace .*link"):
        remove_run(link)
    assert file.read_text() == "mine"
    load_run(run)


def test_read_config_gives_the_whole_file(trained: Path) -> None:
    config, content = read_config(trained)
    assert content == json.loads((trained / "config.json").read_text())
    assert config.to_dict() == content["config"]


# ---- the rest of the folder ----


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"step": 1}\n', "line 1: not an evaluation"),
        (b"[1]\n", "line 1: not an evaluation"),
        (b"\xff\xfe\x00", "cannot be read"),
    ],
    ids=["too little", "a list", "not UTF-8"],
)
def test_metrics_that_are_no_evaluations_are_refused(run: Path, content: bytes, message: str) -> None:
    (run / "metrics.jsonl").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        load_run(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c | {"extra": 1}, "look at extra"),
        (lambda c: {k: v for k, v in c.items() if k != "versions"}, "look at versions"),
        (lambda c: c | {"schema_version": True}, "True, which is not a whole number"),
        (lambda c: c | {"schema_version": "1"}, "'1', which is not a whole number"),
    ],
    ids=["unknown key", "missing key", "true", "text"],
)
def test_the_whole_config_file_is_read_strictly(
    run: Path, change: Callable[[dict[str, Any]], dict[str, Any]], message: str
) -> None:
    path = run / "config.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(CheckpointError, match=message):
        load_run(run)


def test_a_model_that_no_memory_holds_is_refused(run: Path) -> None:
    path = run / "config.json"
    content = json.loads(path.read_text())
    content["config"]["model"]["d_mlp"] = 10**15
    path.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="cannot be made"):
        load_run(run)
