"""Plan: every setting a user may choose is an option, and an option changes that setting alone."""

import dataclasses
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import tyro

from geointerp import FactTransformerConfig, RunConfig, TrainConfig, plan
from geointerp.options import Plan

# settings that are no option of their own, and why
NO_OPTION = {
    "n_subjects": "--subjects, or the table",
    "n_relations": "--relations, or the table",
    "n_attributes": "the table",
    "n_ctx": "queries have two tokens",
    "init_seed": "--seed",
    "seed": "--seed",
    "freeze_subjects": "--freeze",
    "freeze_unembed": "--freeze",
}
# an option on the command line, and what its setting then is
TYPED: dict[str, tuple[str, Any]] = {
    "d_model": ("--d-model=32", 32),
    "n_layers": ("--n-layers=2", 2),
    "n_heads": ("--n-heads=4", 4),
    "d_mlp": ("--d-mlp=48", 48),
    "attention": ("--attention=learned", "learned"),
    "normalization": ("--normalization=RMS", "RMS"),
    "act_fn": ("--act-fn=gelu_new", "gelu_new"),
    "positions": ("--positions", True),
    "biases": ("--no-biases", False),
    "tie_unembed": ("--tie-unembed", True),
    "steps": ("--steps=77", 77),
    "batch_size": ("--batch-size=0", 0),
    "learning_rate": ("--learning-rate=1e-2", 0.01),
    "warmup_steps": ("--warmup-steps=0", 0),
    "weight_decay": ("--weight-decay=0", 0.0),
    "beta2": ("--beta2=0.5", 0.5),
    "row_noise": ("--row-noise=0", 0.0),
    "target_loss": ("--target-loss=0.25", 0.25),
    "eval_every": ("--eval-every=9", 9),
    "snapshots": ("--snapshots=0", 0),
}
SETTINGS = [f.name for kind in (FactTransformerConfig, TrainConfig) for f in fields(kind)]


def resolved(*arguments: str) -> RunConfig:
    return tyro.cli(Plan, args=["--subjects=6", "--relations=2", *arguments]).resolve()[0]


def settings(config: RunConfig) -> dict[str, Any]:
    training = {
        ("training " if key == "seed" else "") + key: v for key, v in dataclasses.asdict(config.training).items()
    }
    return dataclasses.asdict(config.model) | training


def test_every_setting_is_an_option_or_has_a_reason() -> None:
    options = {f.name for f in fields(Plan)}
    assert set(SETTINGS) - options == set(NO_OPTION) - options
    assert set(SETTINGS) == set(NO_OPTION) | set(TYPED)
    assert options - set(SETTINGS) == {"preset", "facts", "subjects", "relations", "disjoint", "freeze"}


@pytest.mark.parametrize("name", list(TYPED))
def test_an_option_changes_its_setting_and_nothing_else(name: str) -> None:
    typed, value = TYPED[name]
    before, after = settings(resolved()), settings(resolved(typed))
    assert after == before | {name: value}
    assert type(after[name]) is type(value)
    if name not in ("batch_size", "snapshots", "positions", "tie_unembed"):
        assert before[name] != value


@pytest.mark.parametrize("preset", ["quick", "controlled"])
def test_without_options_it_is_the_preset(preset: str) -> None:
    assert tyro.cli(Plan, args=[f"--preset={preset}"]).resolve()[0] == plan(preset)[0]


@pytest.mark.parametrize(
    ("freeze", "subjects", "unembed"),
    [("subjects", True, False), ("attributes", False, True), ("subjects,attributes", True, True)],
)
def test_freeze(freeze: str, subjects: bool, unembed: bool) -> None:
    model = resolved(f"--freeze={freeze}").model
    assert (model.freeze_subjects, model.freeze_unembed) == (subjects, unembed)
    assert not resolved().model.freeze_subjects


def test_seed_draws_facts_weights_batches_and_noise() -> None:
    config = resolved("--seed=7")
    assert (config.model.init_seed, config.training.seed, config.facts.seed) == (7, 7, 7)
    first, second = (tyro.cli(Plan, args=[f"--seed={s}"]).resolve()[1].digest for s in (0, 1))
    assert first != second


def test_a_world_of_ones_own_size() -> None:
    config, facts = tyro.cli(Plan, args=["--subjects=9", "--relations=3", "--disjoint"]).resolve()
    assert (facts.n_subjects, facts.n_relations, facts.n_attributes) == (9, 3, 27)
    assert (config.model.n_subjects, config.model.n_relations, config.model.n_attributes) == (9, 3, 27)
    assert config.facts.disjoint


def test_a_table_is_recorded_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("who\tlikes\nann\ttea\nbob\tjam\ncy\ttea\n")
    config, facts = tyro.cli(Plan, args=["--facts", str(path)]).resolve()
    assert config.facts.source == "mine.tsv"  # no path of this machine
    assert facts.attribute_names == ("tea", "jam")
    assert tyro.cli(Plan, args=["--facts=countries"]).resolve()[0].facts.source == "countries"


def test_every_option_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        tyro.cli(Plan, args=["--help"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for field in fields(Plan):
        assert f"--{field.name.replace('_', '-')}" in text
    for words in ("{quick,controlled}", "{learned,uniform,none}", "{LN,RMS}", "{relu,gelu,gelu_new,silu}"):
        assert words in text
