"""The README's commands run, and the presets stay within the bands that it states."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from analyses.presets import BANDS, MARKS, RESULTS, VARIANTS, run_one, table

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.S)


def geointerp(command: str, folder: Path) -> str:
    words = shlex.split(command)
    assert words[0].endswith("geointerp")
    done = subprocess.run(
        [sys.executable, "-m", "geointerp.cli", *words[1:]], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_quick_start_and_the_ten_lines(tmp_path: Path) -> None:
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    command = re.search(r"^\t\$\(BIN\)/(geointerp run .*)$", targets, flags=re.M)
    assert command is not None
    assert "make run" in blocks("bash")[0]
    said = geointerp(command[1], tmp_path)
    assert re.search(r"^recall +1\.000 ", said, flags=re.M)
    assert (tmp_path / "runs/quick/report.html").stat().st_size < 6_000_000
    (python,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", python], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3


@pytest.mark.slow
def test_own_facts(tmp_path: Path) -> None:
    for command in blocks("bash")[1].splitlines():
        geointerp(command, tmp_path)
    assert json.loads((tmp_path / "runs/countries/analysis.json").read_text())["summary"]["recall"] == 1.0


def test_the_bands_in_the_readme_are_those_of_the_results() -> None:
    stated = README.split(MARKS[0])[1].split(MARKS[1])[0].strip()
    assert stated == table(json.loads(RESULTS.read_text(encoding="utf-8")))


def test_every_verb_is_in_the_table() -> None:
    from geointerp.cli import VERBS

    assert {f"geointerp {verb}" for verb in VERBS} == set(re.findall(r"^\| `(geointerp \w+)", README, flags=re.M))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("variant", [v for v in VARIANTS if "attention" not in v])
def test_presets_stay_within_the_bands(variant: str, seed: int, tmp_path: Path) -> None:
    stated = json.loads(RESULTS.read_text(encoding="utf-8"))["variants"][variant]["bands"]
    found = run_one(variant, seed, tmp_path)
    outside = {n: (found[n], stated[n]) for n in BANDS if not stated[n][0] <= found[n] <= stated[n][1]}
    assert not outside
