"""The page: panels, walk and summary as one HTML file that needs nothing else.

The same results give the same bytes: no time, no path and no random id is written.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup
from plotly.utils import PlotlyJSONEncoder

from geointerp.facts.table import FactTable
from geointerp.measures.analysis import Analysis
from geointerp.measures.memory import as_memory
from geointerp.plain import plain
from geointerp.report.figures import all_panels
from geointerp.report.panel import Panel
from geointerp.report.summary import Tile, summary_tiles
from geointerp.report.walk import Walk, build_walk
from geointerp.report.wording import clean, number
from geointerp.training.checkpoint import Run, write_atomically
from geointerp.training.config import RunConfig

WALK_BEFORE = "transfer"  # the walk stands before the panel of this id


@dataclass(frozen=True, kw_only=True, eq=False)
class Summary:
    """What stands above the panels and below them.

    Attributes:
        description: what was trained, one paragraph.
        tiles: the headline numbers, each with its null.
        warnings: why conclusions may not be drawn; empty when there is no reason.
        settings: (part, setting, value) of the whole configuration.
    """

    description: str
    tiles: tuple[Tile, ...]
    warnings: tuple[str, ...]
    settings: tuple[tuple[str, str, str], ...]


def write_report(run: Run, analysis: Analysis) -> Path:
    """Write ``report.html`` into the run folder, whole or not at all.

    Returns:
        Its path.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    path = run.folder / "report.html"
    write_atomically(path, build_report(run, analysis).encode("utf-8"))
    return path


def build_report(run: Run, analysis: Analysis) -> str:
    """The HTML of one measured run; a function of the two alone, and the same string for the same two."""
    facts = run.facts
    title = f"Factual recall: {facts.n_subjects} subjects, {_counted(facts.n_relations, 'relation')}"
    summary = Summary(
        description=describe(run.config, facts, run.model.n_parameters),
        tiles=summary_tiles(analysis),
        warnings=tuple(w for w in (analysis.superposition.warning, _unfinished(run), _not_recalled(analysis)) if w),
        settings=settings_rows(run.config),
    )
    walk = build_walk(as_memory(run.model, facts), analysis)
    return render_report(title, all_panels(run, analysis), walk, summary)


def render_report(title: str, panels: Sequence[Panel], walk: Walk | None, summary: Summary) -> str:
    """Fill the template.

    Args:
        title: of the page.
        panels: in the order of the argument.
        walk: stands before the panel of transfer, or last; None leaves it out.
        summary: above and below the panels.

    Raises:
        ValueError: two panels with one id.
    """
    ids = [panel.id for panel in panels]
    if len(set(ids)) < len(ids):
        raise ValueError(f"panels need ids of their own, got {ids}")
    at = ids.index(WALK_BEFORE) if WALK_BEFORE in ids else len(ids)
    data = {
        "figures": [{"id": panel.id, **figure_json(panel)} for panel in panels],
        "walk": walk.data if walk else None,
    }
    page = _template().render(
        title=title,
        summary=summary,
        before=panels[:at],
        after=panels[at:],
        walk=walk,
        data=script_json(data),
        style=Markup(_shipped("style.css")),
        scripts=[Markup(_shipped(name)) for name in ("page.js", "walk.js")],
        plotly=_plotly_js(),
    )
    return clean(page)


def figure_json(panel: Panel) -> dict[str, Any]:
    """Traces and layout of a panel's figure; arrays that plotly packs stay packed."""
    content = panel.figure.to_plotly_json()
    layout = {key: value for key, value in content["layout"].items() if key != "template"}
    return json.loads(json.dumps({"data": content["data"], "layout": layout}, cls=PlotlyJSONEncoder))


def script_json(content: Mapping[str, Any]) -> Markup:
    """JSON that may stand inside a <script> element: no character in it can end the element or a line of it."""
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return Markup(clean(text))


def describe(config: RunConfig, facts: FactTable, n_parameters: int) -> str:
    """What was trained, in one paragraph."""
    model, training = config.model, config.training
    norm = {None: "no normalization", "LN": "layer norm", "RMS": "RMS norm"}[model.normalization]
    frozen = [
        what
        for what, is_frozen in (
            ("subject rows", model.freeze_subjects),
            ("unembedding", model.freeze_unembed),
        )
        if is_frozen
    ]
    return (
        f"{facts.describe()}. Trained on them: a transformer of {_counted(model.n_layers, 'layer')}, width "
        f"{model.d_model}, {model.d_mlp} {model.act_fn} hidden units a layer, "
        f"{'no attention' if model.attention == 'none' else model.attention + ' attention'}, {norm}"
        f"{''.join(f', {what} frozen' for what in frozen)}; {n_parameters:,} parameters; up to {training.steps} steps, "
        f"seed {training.seed}."
    )


def settings_rows(config: RunConfig) -> tuple[tuple[str, str, str], ...]:
    """(part, setting, value) of every setting; of a path only the last part is kept."""
    rows = []
    for part, values in plain(config.to_dict()).items():
        for name, value in values.items():
            shown = "none" if value is None else str(value)
            rows.append((part, name, Path(shown).name if part == "facts" and name == "source" else shown))
    return tuple(rows)


def _unfinished(run: Run) -> str | None:
    return None if run.finished else "training was interrupted: what follows describes an unfinished model"


def _not_recalled(analysis: Analysis) -> str | None:
    found = analysis.superposition.recall_rows
    if found is None or found == 1.0:
        return None
    return (
        f"recall 1 was not reached ({number(found)} of the facts come out right): facts not learned are mixed in below"
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _cell(value: str | int | float | None) -> str:
    """A table cell: floats rounded, None a dash."""
    if value is None:
        return "\u2013"
    return number(value) if isinstance(value, float) else str(value)


def _plotly_js() -> Markup:
    from plotly.offline import get_plotlyjs

    return Markup(get_plotlyjs())


@cache
def _shipped(name: str) -> str:
    return (resources.files("geointerp.report") / name).read_text(encoding="utf-8")


def _template() -> Any:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = _cell
    environment.tests["numeric"] = lambda value: isinstance(value, int | float)
    return environment.from_string(_shipped("template.html"))
