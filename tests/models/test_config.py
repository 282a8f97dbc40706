"""FactTransformerConfig and strict settings: nothing is ignored, nothing is guessed."""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest

from geointerp import FactTransformerConfig, RunConfig, TrainConfig
from geointerp.errors import ConfigError
from geointerp.training.config import FactsConfig

SIZES: dict[str, Any] = {"n_subjects": 5, "n_relations": 3, "n_attributes": 7}


@pytest.fixture(autouse=True)
def as_users_run_it() -> Iterator[None]:
    """Without the tests' run-time type checks, which would refuse wrong types before our own checks see them."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def config(**changes: Any) -> FactTransformerConfig:
    return FactTransformerConfig(**{**SIZES, **changes})


def other(value: object) -> object:
    """Something valid that no field has by default."""
    return {"uniform": "learned", None: "LN", "relu": "gelu"}.get(value, value)  # pyright: ignore[reportArgumentType, reportCallIssue] - any key


@pytest.mark.parametrize(
    ("name", "least"),
    [
        ("n_subjects", 1),
        ("n_relations", 1),
        ("n_attributes", 2),
        ("d_model", 1),
        ("n_layers", 1),
        ("n_heads", 1),
        ("d_mlp", 1),
        ("n_ctx", 2),
        ("init_seed", 0),
    ],
)
def test_sizes_are_whole_numbers_with_a_least_value(name: str, least: int) -> None:
    assert getattr(config(**{"d_model": 64, name: least}), name) == least
    for bad in (least - 1, -1, 2.0, "3", True, None):
        with pytest.raises(ConfigError, match=f"^{name}={bad!r} is not a whole number of at least {least}; give one$"):
            config(**{name: bad})


@pytest.mark.parametrize("name", ["positions", "biases", "tie_unembed", "freeze_subjects", "freeze_unembed"])
def test_switches_are_true_or_false(name: str) -> None:
    for good in (True, False):
        assert getattr(config(**{name: good}), name) is good
    for bad in (1, 0, "true", None):
        with pytest.raises(ConfigError, match=f"^{name}={bad!r} is not one of True, False"):
            config(**{name: bad})


@pytest.mark.parametrize(
    ("name", "good", "bad", "hint"),
    [
        ("attention", ["learned", "uniform", "none"], "uniforn", "did you mean 'uniform'?"),
        ("attention", [], None, "not one of 'learned', 'uniform', 'none'"),
        ("act_fn", ["relu", "gelu", "gelu_new", "silu"], "Relu", "did you mean 'relu'?"),
        ("normalization", ["LN", "RMS", None], "RNS", "did you mean 'RMS'?"),
        ("normalization", [], "none", "no norm is written null in JSON and None in Python"),
        ("normalization", [], "None", "no norm is written null"),
        ("normalization", [], "", "no norm is written null"),
        ("normalization", [], False, "not one of 'LN', 'RMS', null"),
    ],
)
def test_choices(name: str, good: list[str | None], bad: Any, hint: str) -> None:
    for value in good:
        assert getattr(config(**{name: value}), name) == value
    with pytest.raises(ConfigError) as caught:
        config(**{name: bad})
    assert str(caught.value).startswith(f"{name}={bad!r} is not one of ")
    assert hint in str(caught.value)


def test_heads_must_divide_the_width() -> None:
    assert config(d_model=12, n_heads=3).d_head == 4
    with pytest.raises(ConfigError, match="d_model=64 is not a multiple of n_heads=3"):
        config(n_heads=3)


def test_vocabulary_holds_attributes_only_where_tied() -> None:
    assert config().d_vocab == 5 + 3
    assert config(tie_unembed=True).d_vocab == 5 + 3 + 7


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("steps", 1, 0),
        ("batch_size", 0, -1),
        ("warmup_steps", 0, -1),
        ("eval_every", 1, 0),
        ("snapshots", 0, -1),
        ("seed", 0, -1),
        ("learning_rate", 1e-9, 0),
        ("learning_rate", 1, float("inf")),
        ("learning_rate", 1, float("nan")),
        ("learning_rate", 1, "0.1"),
        ("learning_rate", 1, True),
        ("weight_decay", 0, -0.1),
        ("row_noise", 0, -0.1),
        ("target_loss", 0, -0.1),
        ("beta2", 0, -0.1),
        ("beta2", 0.999, 1.0),
    ],
)
def test_training_settings_have_ranges(name: str, good: Any, bad: Any) -> None:
    assert getattr(TrainConfig(**{name: good}), name) == good
    with pytest.raises(ConfigError, match=f"^{name}="):
        TrainConfig(**{name: bad})


def test_facts_settings_have_ranges() -> None:
    bad: Any
    for name, bad in (("disjoint", 1), ("seed", -1), ("seed", 0.5)):
        with pytest.raises(ConfigError, match=f"^{name}="):
            FactsConfig(**{name: bad})


def every_setting_changed() -> RunConfig:
    def changed(settings: type, **fixed: Any) -> Any:
        values: dict[str, Any] = {}
        for field in dataclasses.fields(settings):
            old = field.default
            if isinstance(old, bool):
                values[field.name] = not old
            elif isinstance(old, int):
                values[field.name] = old + 1
            elif isinstance(old, float):
                values[field.name] = old / 2 + 0.25
            elif field.name not in fixed:
                values[field.name] = other(old)
        return settings(**(values | fixed))

    model = changed(FactTransformerConfig, **SIZES, d_model=66, n_heads=3)
    return RunConfig(model=model, facts=changed(FactsConfig, source="a"), training=changed(TrainConfig))


def test_json_round_trip_keeps_every_setting() -> None:
    changed = every_setting_changed()
    default = RunConfig(model=config())
    for part in ("facts", "training", "model"):
        for field in dataclasses.fields(getattr(changed, part)):
            if field.name not in SIZES:
                assert getattr(getattr(changed, part), field.name) != getattr(getattr(default, part), field.name)
    assert RunConfig.from_dict(json.loads(json.dumps(changed.to_dict()))) == changed
    assert RunConfig.from_dict(json.loads(json.dumps(default.to_dict()))) == default


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [  # cases.md 9
        (
            "model",
            {"normalisation": "LN"},
            "here, model: unknown setting 'normalisation'; did you mean 'normalization'",
        ),
        ("model", {"d_mpl": 5}, "here, model: unknown setting 'd_mpl'; did you mean 'd_mlp'?"),
        ("model", {"normalization": "none"}, "normalization='none' is not one of 'LN', 'RMS', null"),
        ("model", {"xyzzy": 1}, "here, model: unknown setting 'xyzzy'; known: n_subjects, n_relations"),
        (
            "training",
            {"learning_rat": 1},
            "here, training: unknown setting 'learning_rat'; did you mean 'learning_rate'",
        ),
        ("facts", {"sede": 1}, "here, facts: unknown setting 'sede'; did you mean 'seed'?"),
        ("training", {"steps": "100"}, "steps='100' is not a whole number of at least 1"),
    ],
)
def test_unknown_and_bad_settings_are_refused_with_a_hint(part: str, change: dict[str, Any], message: str) -> None:
    given = RunConfig(model=config()).to_dict()
    given[part] |= change
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_dict(given, "here")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "here: expected a mapping of settings, got list"),
        (None, "here: expected a mapping of settings, got NoneType"),
        ({}, "here: missing model, which has no default; add it"),
        ({"model": {}}, "here, model: missing n_subjects, n_relations, n_attributes, which has no default; add it"),
        ({"model": 3}, "here, model: expected a mapping of settings, got int"),
        ({"model": SIZES, "trainig": {}}, "here: unknown setting 'trainig'; did you mean 'training'?"),
    ],
)
def test_what_is_no_configuration_is_refused(given: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_dict(given, "here")
    assert str(caught.value) == message


def test_frozen_and_keyword_only() -> None:
    frozen = config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        frozen.d_model = 3  # pyright: ignore[reportAttributeAccessIssue] - the point
    with pytest.raises(TypeError):
        FactTransformerConfig(5, 3, 7)  # pyright: ignore[reportCallIssue] - the point
