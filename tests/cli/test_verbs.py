"""geointerp run, train, measure, report, info: what they print, what they leave, and how they fail."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import geointerp.measures.analysis
from geointerp import Trainer, load_run
from geointerp.cli import VERBS, main

TINY = ["--subjects=40", "--relations=2", "--d-model=8", "--d-mlp=16", "--steps=30", "--eval-every=10", "--snapshots=2"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run after train, measure and report; tests work on copies of it."""
    folder = tmp_path_factory.mktemp("measured") / "run"
    for arguments in (["train", *TINY, "--out", str(folder)], ["measure", str(folder)], ["report", str(folder)]):
        assert main(arguments) == 0
    return folder


@pytest.fixture
def run(measured: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(measured, tmp_path / "run"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a file, an empty folder, and a folder of other people's work in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "empty").mkdir()
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("mine")
    return tmp_path


def fails(capsys: Capture, *arguments: str | Path) -> tuple[int, str]:
    """(exit code, message) of a command that fails, as text and with --json, after checking the form of both."""
    words = [str(a) for a in arguments]
    capsys.readouterr()
    code = main(words)
    out, err = capsys.readouterr()
    assert re.fullmatch(r"geointerp: [^\n]+\n", err), err
    assert "Traceback" not in out + err
    if "--json" in words:
        assert out.count("\n") == 1
        assert list(json.loads(out)) == ["error"]
        assert " ".join(json.loads(out)["error"].split()) == err.removeprefix("geointerp: ").rstrip("\n")
    return code, err.removeprefix("geointerp: ").strip()


# ---- what they do ----


def test_train_json(here: Path, capsys: Capture) -> None:
    assert main(["train", *TINY, "--out", "run", "--json"]) == 0
    out, err = capsys.readouterr()
    result = json.loads(out)
    assert out.count("\n") == 1
    assert err == ""  # no progress bar where there is no terminal
    assert result.keys() == {"run", "steps", "recall", "loss", "seconds"}
    assert (result["run"], result["steps"]) == ("run", 30)
    last = load_run("run").metrics[-1]
    assert (result["recall"], result["loss"]) == (last["recall"], last["loss"])


def test_train_says_plainly_whether_recall_was_reached(here: Path, capsys: Capture) -> None:
    assert main(["train", *TINY, "--steps=1", "--out", "run"]) == 0
    out, _ = capsys.readouterr()
    recall = load_run("run").metrics[-1]["recall"]
    assert out.splitlines()[0].startswith("80 facts: 40 subjects x 2 relations, 0 absent; 40 attributes, shared")
    assert f"recall 1 was NOT reached: recall {recall:.4f} after 1 steps" in out
    assert out.rstrip().endswith("next: geointerp measure run")
    few = ["--subjects=4", "--relations=1", "--steps=200", "--learning-rate=0.02", "--warmup-steps=5", "--row-noise=0"]
    assert main(["train", *TINY, *few, "--out", "easy"]) == 0
    assert "\nrecall 1 after 200 steps, loss " in capsys.readouterr().out


def test_measure_report_and_info(run: Path, capsys: Capture) -> None:
    assert main(["measure", str(run), "--json", "--permutations=20"]) == 0
    result = json.loads(capsys.readouterr().out)
    needed = {"recall", "r2_in_sample", "r2_leave_one_out", "r2_null", "selectivity", "transfer", "chance", "seconds"}
    assert needed <= result.keys()
    assert result["chance"] == 1 / 40
    assert result["recall"] == load_run(run).metrics[-1]["recall"]
    assert result["analysis"] == str(run / "analysis.json")
    stored = json.loads((run / "analysis.json").read_text())["summary"]
    assert {key: result[key] for key in stored} == stored

    assert main(["report", str(run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == {"report": str(run / "report.html"), "bytes": (run / "report.html").stat().st_size}

    assert main(["info", str(run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["summary"] == stored
    assert result["report"] == str(run / "report.html")
    assert (result["finished"], result["schema_version"], result["last"]["step"]) == (True, 1, 30)
    # rows 40x8, relations 2x8, W_in and W_out 8x16, b_in 16, b_out 8, W_U 8x40
    assert result["parameters"] == 320 + 16 + 256 + 24 + 320
    assert result["config"] == json.loads((run / "config.json").read_text())["config"]


def test_text_of_measure_report_and_info(run: Path, capsys: Capture) -> None:
    assert main(["measure", str(run)]) == 0
    out = capsys.readouterr().out
    for word in ("recall", "leave-one-out; null", "selectivity", "transfer", "chance 0.0250", str(run)):
        assert word in out
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'report.html'}\n"
    assert main(["info", str(run)]) == 0
    assert "facts: 80 facts: 40 subjects x 2 relations" in capsys.readouterr().out


def test_report_opens_the_page_when_asked(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main(["report", str(run)]) == 0
    assert opened == []
    assert main(["report", str(run), "--open"]) == 0
    assert opened == [(run / "report.html").resolve().as_uri()]


def test_run_json(here: Path, capsys: Capture) -> None:
    assert main(["run", *TINY, "--out", "deep/er/run", "--json"]) == 0
    out, err = capsys.readouterr()
    assert (out.count("\n"), err) == (1, "")
    result = json.loads(out)
    for key in (
        "recall",
        "r2_in_sample",
        "r2_leave_one_out",
        "r2_null",
        "selectivity",
        "transfer",
        "chance",
        "seconds",
    ):
        assert isinstance(result[key], float), key
    assert Path(result["report"]).read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")
    assert Path("deep/er/run/analysis.json").is_file()


def test_run_on_ones_own_table(here: Path, capsys: Capture) -> None:
    names = [f"animal {i}" for i in range(30)]
    lines = ["animal,sound,colour"] + [f"{name},s{i}," + (f"c{i}" if i % 3 else "") for i, name in enumerate(names)]
    Path("mine.csv").write_text("\r\n".join(lines), encoding="utf-8-sig")
    size = [option for option in TINY if "subjects" not in option and "relations" not in option]
    assert main(["run", *size, "--facts", "mine.csv", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("50 facts: 30 subjects x 2 relations, 10 absent; ")
    stored = load_run("run")
    assert stored.facts.subject_names == tuple(names)
    assert stored.config.facts.source == "mine.csv"
    assert "animal 7" in Path("run/report.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_run_on_the_shipped_table(here: Path, capsys: Capture) -> None:
    assert main(["run", "--facts", "countries", "--steps=60", "--out", "run", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert 0 < result["recall"] <= 1
    assert Path(result["report"]).stat().st_size < 6e6
    assert load_run("run").facts.n_facts == 1988


@pytest.mark.parametrize("verb", list(VERBS))
def test_help(verb: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert not stop.value.code
    out = capsys.readouterr().out
    assert f"geointerp {verb}" in out
    assert (VERBS[verb].__doc__ or "?") in " ".join(out.split())
    assert "--json" in out


# ---- typed nonsense: exit code 2 ----


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["run", "train", "measure", "report", "info"]),
        (["trian"], ["trian", "train"]),
        (["train", "--stepz", "3", "--out", "a"], ["--stepz", "--steps"]),
        (["train", "--learning_rat=3", "--out", "a"], ["learning", "rat"]),
        (["train", "--steps", "many", "--out", "a"], ["--steps", "'many'"]),
        (["train", "--steps", "1.5", "--out", "a"], ["--steps", "'1.5'"]),
        (["train", "--learning-rate", "fast", "--out", "a"], ["--learning-rate", "'fast'"]),
        (["train", "--steps", "-5", "--out", "a"], ["steps=-5 is not a whole number of at least 1"]),
        (["train", "--steps=0", "--out", "a"], ["steps=0"]),
        (["train", "--learning-rate=-1", "--out", "a"], ["learning_rate=-1.0 is not a finite number above 0"]),
        (["train", "--learning-rate=nan", "--out", "a"], ["learning_rate=nan"]),
        (["train", "--learning-rate=inf", "--out", "a"], ["learning_rate=inf"]),
        (["train", "--beta2=1", "--out", "a"], ["beta2=1.0 is not below 1"]),
        (["train", "--d-model=10", "--n-heads=3", "--out", "a"], ["d_model=10", "n_heads=3"]),
        (["train", "--subjects=1", "--out", "a"], ["--subjects 1"]),
        (["train", "--subjects=-4", "--out", "a"], ["--subjects -4"]),
        (["train", "--relations=0", "--out", "a"], ["--relations 0"]),
        (["train", "--seed=-1", "--out", "a"], ["seed=-1"]),
        (["train", "--preset=qick", "--out", "a"], ["'qick'", "--preset", "'quick'"]),
        (["train", "--attention=uniforn", "--out", "a"], ["'uniforn'", "--attention", "'uniform'"]),
        (["train", "--normalization=none", "--out", "a"], ["'none'", "--normalization", "'LN', 'RMS'"]),
        (["train", "--freeze=rows", "--out", "a"], ["'rows'", "--freeze", "'subjects'"]),
        (["train", "--facts=countries", "--subjects=9", "--out", "a"], ["--facts brings its own subjects"]),
        (["train"], ["exactly one of --out FOLDER", "--resume FOLDER"]),
        (["train", "--out", "a", "--resume", "b"], ["exactly one of --out FOLDER"]),
        (["train", "--out"], ["--out"]),
        (["run"], ["--out"]),
        (["train", "a", "--out", "b"], ["a"]),
        (["measure"], ["RUN"]),
        (["measure", "a", "b"], ["b"]),
        (["measure", "a", "--permutations=x"], ["--permutations", "'x'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_bad_usage(here: Path, capsys: Capture, arguments: list[str], parts: list[str], as_json: list[str]) -> None:
    before = sorted(here.rglob("*"))
    code, message = fails(capsys, *arguments, *(as_json if arguments else []))
    assert code == 2
    for part in parts:
        assert part in message
    assert sorted(here.rglob("*")) == before


def test_a_near_miss_is_named(capsys: Capture) -> None:
    _, message = fails(capsys, "train", "--stepz", "3")
    assert re.search(r"Perhaps you meant: --steps\b", message)


@pytest.mark.parametrize("permutations", ["0", "-3"])
def test_measure_needs_permutations(run: Path, capsys: Capture, permutations: str) -> None:
    code, message = fails(capsys, "measure", run, f"--permutations={permutations}")
    assert code == 2
    assert f"permutations={permutations}" in message


# ---- things that are not there or in the way: exit code 1 ----


@pytest.mark.parametrize("verb", ["measure", "report", "info"])
@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("nowhere", "nowhere is no run folder (no config.json in it)"),
        ("empty", "empty is no run folder (no config.json in it)"),
        ("thesis", "thesis is no run folder (no config.json in it)"),
        ("file", "file is a file; give the run folder that holds config.json (nothing is ever unpickled)"),
    ],
)
@pytest.mark.parametrize("as_json", [[], ["--json"]], ids=["text", "json"])
def test_no_run_there(here: Path, capsys: Capture, verb: str, what: str, message: str, as_json: list[str]) -> None:
    code, said = fails(capsys, verb, what, *as_json)
    assert code == 1
    assert said.startswith(message)


def test_resume_of_nothing_and_of_a_finished_run(here: Path, run: Path, capsys: Capture) -> None:
    assert fails(capsys, "train", "--resume", "nowhere")[0] == 1
    code, message = fails(capsys, "train", "--resume", run, "--json")
    assert code == 1
    assert message == f"training of {run} is already over; measure it with: geointerp measure {run}"


def test_resume_with_other_settings(run: Path, capsys: Capture) -> None:
    code, message = fails(capsys, "train", "--resume", run, "--steps=9", "--no-biases", "--seed=3", "--force")
    assert code == 2
    for option in ("--steps", "--biases", "--seed", "--force"):
        assert option in message


def test_an_existing_run_is_kept(run: Path, capsys: Capture) -> None:
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    for verb in ("train", "run"):
        code, message = fails(capsys, verb, *TINY, "--out", run)
        assert code == 1
        assert f"{run} already holds a run; choose another --out, replace it with --force" in message
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


def test_force_replaces_a_run_and_all_that_was_measured(run: Path, capsys: Capture) -> None:
    assert (run / "report.html").exists()
    assert main(["train", *TINY, "--seed=5", "--force", "--out", str(run)]) == 0
    assert load_run(run).config.training.seed == 5
    assert not (run / "report.html").exists()
    assert not (run / "analysis.json").exists()


def test_force_with_bad_options_deletes_nothing(run: Path, capsys: Capture) -> None:
    assert fails(capsys, "train", *TINY, "--beta2=2", "--force", "--out", run)[0] == 2
    assert fails(capsys, "train", "--facts=nowhere.csv", "--force", "--out", run)[0] == 1
    load_run(run)


@pytest.mark.parametrize("what", ["thesis", "file"])
@pytest.mark.parametrize("force", [[], ["--force"]], ids=["", "force"])
def test_other_peoples_work_is_never_deleted(here: Path, capsys: Capture, what: str, force: list[str]) -> None:
    code = main(["train", *TINY, *force, "--out", what])
    assert (here / "file").read_text() == "mine"
    assert (here / "thesis" / "chapter.tex").read_text() == "mine"
    assert code == (0 if (what, force) == ("thesis", []) else 1)
    if force:
        assert f"{what} holds no run, so it is not replaced; choose another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ("nowhere.csv", "'nowhere.csv': there is no such file"),
        ("thesis", "'thesis' is a folder"),
        ("file", "'file' ends in no suffix"),
        ("empty.csv", "empty.csv"),
    ],
)
def test_a_table_that_cannot_be_read(here: Path, capsys: Capture, facts: str, message: str) -> None:
    Path("empty.csv").touch()
    code, said = fails(capsys, "train", "--facts", facts, "--out", "a", "--json")
    assert code == 1
    assert message in said
    assert not Path("a").exists()


def test_a_report_needs_an_analysis(run: Path, capsys: Capture) -> None:
    (run / "analysis.json").unlink()
    code, message = fails(capsys, "report", run)
    assert (code, message) == (1, f"{run} has not been measured (no analysis.json); run: geointerp measure {run}")


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "{}", '{"analysis_version": 1}'])
def test_a_damaged_analysis(run: Path, capsys: Capture, content: str) -> None:
    (run / "analysis.json").write_text(content)
    for verb in ("report", "info"):
        code, message = fails(capsys, verb, run)
        assert code == 1
        assert "analysis.json" in message
        assert "measure" in message


def test_a_damaged_run(run: Path, capsys: Capture) -> None:
    (run / "model.safetensors").write_bytes(b"cut")
    for verb in ("measure", "report", "info"):
        code, message = fails(capsys, verb, run, "--json")
        assert code == 1
        assert "is not a whole safetensors file" in message


def test_divergence(here: Path, capsys: Capture) -> None:
    code, message = fails(capsys, "run", *TINY, "--learning-rate=1e30", "--out", "run", "--json")
    assert code == 1
    assert re.search(r"the loss is (nan|inf) at step \d+ with learning rate \d", message)
    assert "lower --learning-rate" in message


# ---- Ctrl-C ----


@pytest.mark.parametrize("verb", ["train", "run"])
def test_ctrl_c_while_training(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    advance = Trainer.advance

    def interrupted(trainer: Trainer) -> float:
        if trainer.step == 7:
            signal.raise_signal(signal.SIGINT)
        return advance(trainer)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "advance", interrupted)
        code, message = fails(capsys, verb, *TINY, "--out", "run", "--json")
    assert code == 1
    assert message == "interrupted; nothing is lost, go on with: geointerp train --resume run"
    assert not Path("run/analysis.json").exists()
    assert main(["info", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["finished"] is False
    assert main(["train", "--resume", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 30
    main(["train", *TINY, "--out", "whole"])
    assert Path("run/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()


def test_ctrl_c_while_measuring(run: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **kwargs: Any) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(geointerp.measures.analysis, "measure", interrupted)
    before = (run / "analysis.json").read_bytes()
    code, message = fails(capsys, "measure", run)
    assert (code, message) == (
        1,
        f"interrupted; the trained model is whole, go on with: geointerp measure {run}",
    )
    assert (run / "analysis.json").read_bytes() == before


def test_ctrl_c_elsewhere(run: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("geointerp.training.checkpoint.load_run", interrupted)
    assert fails(capsys, "info", run, "--json") == (1, "interrupted")


# ---- as a process ----


def process(*arguments: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "geointerp.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"}, **options)


def test_help_and_bad_usage_import_nothing_heavy() -> None:
    code = """
import sys
from geointerp.cli import VERBS, main
for arguments in [["--help"], [], ["trian"], ["train", "--stepz"]] + [[verb, "--help"] for verb in VERBS]:
    try:
        main(arguments)
    except SystemExit:
        pass
heavy = {"torch", "transformer_lens", "plotly", "numpy", "pandas", "pyarrow", "jaxtyping"} & sys.modules.keys()
print("heavy:", sorted(heavy), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "heavy: []"
    assert done.stdout.count("--json") >= len(VERBS)


def test_the_installed_command_reports_its_exit_code() -> None:
    script = Path(sys.executable).with_name("geointerp")
    done = subprocess.run([script, "measure"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("geointerp: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error(measured: Path) -> None:
    command = [sys.executable, "-m", "geointerp.cli", "info", str(measured)]
    # a pipe is written when Python exits, unless it is told otherwise
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for extra in ([], ["--json"]):
        child = subprocess.Popen([*command, *extra], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        assert child.stderr.read() == ""
        child.stderr.close()
        assert child.wait() == 0


@pytest.mark.slow
def test_failures_of_a_process_are_one_line(measured: Path, tmp_path: Path) -> None:
    """In process the tests' type checks and warnings are on; a user has neither."""
    config = json.loads((measured / "config.json").read_text())
    folder = tmp_path / "run"
    shutil.copytree(measured, folder)
    changes: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
        (lambda c: c["config"]["model"].update(normalization="none"), "no norm is written null in JSON"),
        (lambda c: c["config"]["model"].update(d_model="8"), "d_model='8' is not a whole number"),
        (lambda c: c.update(schema_version=99), "has schema version 99 and this geointerp reads up to 1"),
    ]
    for change, message in changes:
        edited = json.loads(json.dumps(config))
        change(edited)
        (folder / "config.json").write_text(json.dumps(edited))
        done = process("info", folder)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
        assert message in done.stderr


def test_the_version(capsys: Capture) -> None:
    from importlib.metadata import version

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == version("geointerp")


def test_a_file_that_may_not_be_read_is_one_line(here: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Path, *args: object, **kwargs: object) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", refused)
    assert main(["info", "closed"]) == 1
    said = capsys.readouterr().err.strip()
    assert "closed" in said
    assert "Permission denied; check the path" in said
    assert "\n" not in said
