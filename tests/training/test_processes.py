"""The same in processes of their own: equal bytes from equal seeds, and real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
OPTIONS = [
    "--subjects=40",
    "--relations=3",
    "--d-model=16",
    "--d-mlp=32",
    "--batch-size=32",
    "--row-noise=0.3",
    "--steps=1500",
    "--eval-every=50",
    "--snapshots=8",
]
# the command line with checkpoints every 50 ms instead of every 15 s
EAGER = "import sys, geointerp.training.run as r, geointerp.cli as c; r.SAVE_SECONDS = 0.05; sys.exit(c.main())"


def environment(hash_seed: str) -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": hash_seed}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", EAGER, *arguments]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("unbroken") / "run"
    subprocess.run(
        command("train", *OPTIONS, "--out", str(folder)), check=True, env=environment("1"), capture_output=True
    )
    return contents(folder)


def started(folder: Path) -> "subprocess.Popen[str]":
    """A training process that is past its tenth step."""
    process = subprocess.Popen(
        command("train", *OPTIONS, "--out", str(folder)),
        env=environment("2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not any(int(p.stem) > 10 for p in folder.glob("steps/*.safetensors")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return process


def test_equal_seeds_give_equal_bytes(unbroken: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    subprocess.run(
        command("train", *OPTIONS, "--out", str(folder)), check=True, env=environment("2"), capture_output=True
    )
    assert contents(folder) == unbroken


def test_killed_and_resumed(unbroken: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started(folder)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert (folder / "training.safetensors").exists()
    subprocess.run(command("train", "--resume", str(folder)), check=True, env=environment("3"), capture_output=True)
    left = contents(folder)
    assert {name: left[name] for name in unbroken} == unbroken
    assert all(name.endswith(".tmp") for name in left.keys() - unbroken.keys())


def test_ctrl_c_at_the_command_line(unbroken: dict[str, bytes], tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started(folder)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.splitlines() == [
        f"geointerp: interrupted; nothing is lost, go on with: geointerp train --resume {folder}"
    ]
    assert "Traceback" not in out
    done = subprocess.run(
        command("train", "--resume", str(folder), "--json"), check=True, env=environment("3"), capture_output=True
    )
    assert json.loads(done.stdout)["steps"] == 1500
    assert contents(folder) == unbroken
