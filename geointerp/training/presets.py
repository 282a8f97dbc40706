"""Presets: named starting points of a run, and how options change them. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from geointerp.errors import ConfigError, FactsError
from geointerp.models.config import FactTransformerConfig
from geointerp.settings import check_choice
from geointerp.training.config import FactsConfig, RunConfig, TrainConfig

if TYPE_CHECKING:
    from geointerp.facts.table import FactTable


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A world and the settings that differ from the defaults. Chosen on seeds of 100 and up, see LOG.md."""

    subjects: int
    relations: int
    model: dict[str, Any]
    training: dict[str, Any]


PRESETS = {
    "quick": Preset(  # trained and measured in under a minute
        subjects=512,
        relations=2,
        model={"d_model": 64, "d_mlp": 256, "attention": "none"},
        training={"steps": 1000, "batch_size": 512, "row_noise": 1.0},
    ),
    "controlled": Preset(
        subjects=1024,
        relations=4,
        model={"d_model": 64, "d_mlp": 256, "attention": "none"},
        training={"steps": 1500, "batch_size": 1024, "row_noise": 0.5, "weight_decay": 0.01},
    ),
}


def plan(
    preset: str = "quick",
    *,
    facts: "FactTable | None" = None,
    source: str | None = None,
    subjects: int | None = None,
    relations: int | None = None,
    disjoint: bool = False,
    seed: int = 0,
    changes: Mapping[str, Any] | None = None,
) -> "tuple[RunConfig, FactTable]":
    """Settings and facts of a run: a preset, with changes.

    Args:
        preset: a name in PRESETS.
        facts: the table to remember; None draws random bijections.
        source: where ``facts`` came from, for the record.
        subjects, relations, disjoint: of the random world; None takes the preset's.
        seed: of facts, weights, batches and noise, each through a sub-seed of its own.
        changes: settings of FactTransformerConfig or TrainConfig by name; None values change nothing.

    Raises:
        ConfigError: an unknown preset or setting, a bad value, or both facts and a size of a random world.
        FactsError: too few subjects or attributes to measure anything.
    """
    from geointerp.facts.worlds import random_bijections

    check_choice("preset", preset, tuple(PRESETS))
    chosen = PRESETS[preset]
    if facts is not None and (subjects is not None or relations is not None or disjoint):
        raise ConfigError(
            "--facts brings its own subjects and relations, so --subjects, --relations and --disjoint do not apply; "
            "leave out one or the other"
        )
    if facts is None:
        facts = random_bijections(
            chosen.subjects if subjects is None else subjects,
            chosen.relations if relations is None else relations,
            seed,
            disjoint=disjoint,
        )
        where = FactsConfig(disjoint=disjoint, seed=seed)
    else:
        where = FactsConfig(source=source or "a table", seed=seed)
    known = int(facts.present.any(0).sum())
    if known < 3 or facts.n_attributes < 2:
        raise FactsError(
            f"{where.source}: {known} subjects with facts and {facts.n_attributes} attributes; to learn and to measure "
            "anything takes at least 3 subjects and 2 attributes"
        )
    given = {name: value for name, value in (changes or {}).items() if value is not None}
    of_model = {field.name for field in fields(FactTransformerConfig)}
    of_training = {field.name for field in fields(TrainConfig)}
    for name in given:
        check_choice("setting", name, tuple(sorted(of_model | of_training)))
    model = FactTransformerConfig(
        n_subjects=facts.n_subjects,
        n_relations=facts.n_relations,
        n_attributes=facts.n_attributes,
        init_seed=seed,
        **chosen.model,
    )
    config = RunConfig(
        facts=where,
        model=replace(model, **{n: v for n, v in given.items() if n in of_model}),
        training=replace(
            TrainConfig(**chosen.training, seed=seed), **{n: v for n, v in given.items() if n in of_training}
        ),
    )
    return config, facts
