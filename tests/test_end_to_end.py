"""Facts in, report out: the whole way through the command line, twice, to the same bytes."""

import hashlib
import json
from pathlib import Path

import pytest

from geointerp.cli import main

SMALL = ["--subjects", "150", "--relations", "2", "--d-model", "32", "--d-mlp", "64", "--steps", "150"]


def bytes_of(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--n-layers", "2", "--attention", "learned", "--batch-size", "0"]])
def test_the_same_seed_gives_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    said = []
    for name in ("one", "two"):
        assert main(["run", *SMALL, *options, "--json", "--out", str(tmp_path / name)]) == 0
        said.append(json.loads(capsys.readouterr().out))
    one, two = bytes_of(tmp_path / "one"), bytes_of(tmp_path / "two")
    assert one == two
    assert {
        "config.json",
        "facts.parquet",
        "model.safetensors",
        "metrics.jsonl",
        "analysis.json",
        "report.html",
    } <= set(one)
    assert "training.safetensors" not in one  # training is over
    for name in ("seconds", "report"):
        assert all(s.pop(name) for s in said)
    assert said[0] == said[1]


@pytest.mark.slow
def test_another_seed_gives_other_weights_and_the_steps_apart_give_the_run(tmp_path: Path) -> None:
    whole, apart, other = (str(tmp_path / name) for name in ("whole", "apart", "other"))
    assert main(["run", *SMALL, "--out", whole]) == 0
    assert main(["train", *SMALL, "--out", apart]) == 0
    assert main(["measure", apart]) == 0
    assert main(["report", apart]) == 0
    assert bytes_of(Path(whole)) == bytes_of(Path(apart))
    assert main(["train", *SMALL, "--seed", "1", "--out", other]) == 0
    assert bytes_of(Path(other))["model.safetensors"] != bytes_of(Path(whole))["model.safetensors"]
