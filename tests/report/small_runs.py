"""A small run, and names that trip a page: what the tests of the report and of the browser draw."""

from pathlib import Path

import torch

from geointerp.facts.table import FactTable
from geointerp.facts.worlds import random_bijections
from geointerp.measures.analysis import Analysis, measure
from geointerp.training.checkpoint import Run
from geointerp.training.presets import plan
from geointerp.training.run import train_run

SCRIPT = "</script><img src=x onerror=alert(1)>"
HOSTILE = (
    SCRIPT,
    "{{7*7}}",
    "<b>bold</b>",
    "L" * 300,
    "🦜 é",
    "\u202e\u05d0\u05d1\u05d2",  # right to left, and an override that never ends
    "a\u2028b'\"`\\",
    "%{x} $\\alpha$ &amp;",
)


def small_run(
    folder: Path, *, subjects: int = 24, relations: int = 3, steps: int = 150, hostile: bool = False, layers: int = 1
) -> tuple[Run, Analysis]:
    """A trained and measured run: most facts are recalled, and every part of the report has something to show."""
    torch.set_num_threads(1)
    facts = random_bijections(subjects, relations, 3)
    if hostile:
        facts = with_names(facts)
    config, facts = plan(
        "quick",
        facts=facts,
        changes={"steps": steps, "d_model": 24, "d_mlp": 48, "n_layers": layers, "batch_size": 0, "row_noise": 0.0},
    )
    run = train_run(folder, config, facts)
    return run, measure(run.model, run.facts, permutations=3)


def with_names(facts: FactTable) -> FactTable:
    """The same facts with hostile names for the first ids of each kind."""

    def names(letter: str, count: int) -> tuple[str, ...]:
        return tuple(HOSTILE[i] if i < len(HOSTILE) else f"{letter}{i}" for i in range(count))

    return FactTable(
        answers=facts.answers,
        n_attributes=facts.n_attributes,
        subject_names=names("s", facts.n_subjects),
        relation_names=names("r", facts.n_relations),
        attribute_names=names("a", facts.n_attributes),
    )
