"""plan: a preset, and what changes it."""

from dataclasses import fields
from typing import Any

import pytest
import torch

from geointerp import PRESETS, FactTable, FactTransformerConfig, TrainConfig, plan, random_bijections
from geointerp.errors import ConfigError, FactsError


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_is_its_settings_over_the_defaults(name: str) -> None:
    config, facts = plan(name, seed=3)
    preset = PRESETS[name]
    assert (facts.n_subjects, facts.n_relations, facts.attribute_sets) == (preset.subjects, preset.relations, "shared")
    assert facts.digest == random_bijections(preset.subjects, preset.relations, 3).digest
    sizes = {"n_subjects": facts.n_subjects, "n_relations": facts.n_relations, "n_attributes": facts.n_attributes}
    assert config.model == FactTransformerConfig(**{**sizes, "init_seed": 3, **preset.model})
    assert config.training == TrainConfig(**{"seed": 3, **preset.training})
    assert (config.facts.source, config.facts.seed, config.facts.disjoint) == ("random bijections", 3, False)


def test_the_controlled_preset_is_the_papers_world() -> None:
    config, facts = plan("controlled")
    assert (facts.n_subjects, facts.n_relations, config.model.n_layers, config.model.d_model) == (1024, 4, 1, 64)
    assert set(facts.relation_kinds) == {"bijection"}


def test_seeds_draw_other_worlds_and_sizes_other_shapes() -> None:
    assert not torch.equal(plan(seed=0)[1].answers, plan(seed=1)[1].answers)
    config, facts = plan(subjects=7, relations=3, disjoint=True)
    assert (config.model.n_subjects, config.model.n_relations, config.model.n_attributes) == (7, 3, 21)
    assert facts.attribute_sets == "disjoint"
    assert config.facts.disjoint


@pytest.mark.parametrize("field", [f for kind in (FactTransformerConfig, TrainConfig) for f in fields(kind)])
def test_every_setting_can_be_changed_by_name(field: Any) -> None:
    if field.name.startswith("n_") and field.name not in ("n_layers", "n_heads", "n_ctx"):
        return  # the facts decide
    config, _ = plan(subjects=6, relations=2)
    part = config.model if field.name in {f.name for f in fields(FactTransformerConfig)} else config.training
    old = getattr(part, field.name)
    others = {"attention": "learned", "normalization": "RMS", "act_fn": "silu"}
    new = others[field.name] if field.name in others else (not old if isinstance(old, bool) else old / 2)
    if isinstance(old, int) and not isinstance(old, bool):
        new = 2 * old + 2
    if field.name == "n_heads":
        new = 4
    assert new != old or old == 0
    changed, _ = plan(subjects=6, relations=2, changes={field.name: new, "d_model": 64} | {field.name: new})
    expected = {field.name: new}
    for before, after in ((config.model, changed.model), (config.training, changed.training)):
        for f in fields(before):
            if f.name != "d_model" or field.name == "d_model":
                assert getattr(after, f.name) == expected.get(f.name, getattr(before, f.name)), f.name


def test_none_changes_nothing() -> None:
    names = {f.name for kind in (FactTransformerConfig, TrainConfig) for f in fields(kind)}
    assert plan(changes=dict.fromkeys(names))[0] == plan()[0]


def test_ones_own_facts() -> None:
    mine = random_bijections(12, 5, seed=9)
    config, facts = plan(facts=mine, source="mine.csv", seed=2)
    assert facts is mine
    assert (config.model.n_subjects, config.model.n_relations, config.model.n_attributes) == (12, 5, 12)
    assert (config.facts.source, config.model.init_seed, config.training.seed) == ("mine.csv", 2, 2)
    clash: dict[str, Any]
    for clash in ({"subjects": 5}, {"relations": 2}, {"disjoint": True}):
        with pytest.raises(ConfigError, match="--facts brings its own subjects and relations"):
            plan(facts=mine, **clash)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"preset": "controled"}, "preset='controled' is not one of 'quick', 'controlled'; did you mean 'controlled'?"),
        ({"changes": {"d_mpl": 3}}, "setting='d_mpl' is not one of .*; did you mean 'd_mlp'?"),
        ({"changes": {"d_mlp": 0}}, "d_mlp=0 is not a whole number of at least 1"),
        ({"changes": {"n_heads": 5}}, "d_model=64 is not a multiple of n_heads=5"),
        ({"changes": {"learning_rate": -1.0}}, "learning_rate=-1.0 is not a finite number above 0"),
        ({"subjects": 1}, "--subjects 1"),
        ({"relations": 0}, "--relations 0"),
    ],
)
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan(**arguments)


@pytest.mark.parametrize("answers", [[[0, 1]], [[0, 0, 0, 0]]], ids=["two subjects", "one attribute"])
def test_a_table_too_small_to_measure_is_refused_before_training(answers: list[list[int]]) -> None:
    facts = FactTable(answers=torch.tensor(answers), n_attributes=max(map(max, answers)) + 1)
    with pytest.raises(FactsError, match=r"mine\.csv: . subjects with facts .* at least 3 subjects and 2 attributes"):
        plan(facts=facts, source="mine.csv")
