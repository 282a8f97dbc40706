"""One file, the same bytes for the same input, small, self-contained, and literal about every name."""

import copy
import dataclasses
import html
import json
import re
import subprocess
import sys

import plotly.graph_objects as go
import pytest
import torch
from report.small_runs import HOSTILE, SCRIPT, small_run

from geointerp.facts.table import FactTable
from geointerp.measures.analysis import Analysis
from geointerp.measures.gating import Gating, LayerGating
from geointerp.measures.selector import Selector
from geointerp.report.figures import all_panels
from geointerp.report.figures_gating import gating_panels
from geointerp.report.figures_selector import selector_panel
from geointerp.report.page import Summary, build_report, render_report, script_json, write_report
from geointerp.report.panel import Panel
from geointerp.report.summary import summary_tiles
from geointerp.training.checkpoint import Run

MOST_BYTES = 6_000_000
NOTHING = Summary(description="", tiles=(), warnings=(), settings=())


def panel(name: str, figure: go.Figure | None = None) -> Panel:
    plot = figure or go.Figure(go.Scatter(x=[0, 1], y=[1, 2]), layout={"height": 200})
    return Panel(id=name, question="?", answer="!", figure=plot, columns=("x",), rows=((1.0,),))


def page_data(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="report-data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def without_plotly(page: str) -> str:
    from plotly.offline import get_plotlyjs

    assert page.count(get_plotlyjs()) == 1
    return page.replace(get_plotlyjs(), "")


def test_the_same_bytes_for_the_same_input(measured: tuple[Run, Analysis]) -> None:
    assert build_report(*measured) == build_report(*measured)


def test_the_same_bytes_in_another_folder(
    measured: tuple[Run, Analysis], tmp_path_factory: pytest.TempPathFactory
) -> None:
    run, analysis = measured
    moved = dataclasses.replace(run, folder=tmp_path_factory.mktemp("elsewhere"))
    first, second = write_report(run, analysis), write_report(moved, analysis)
    assert first.read_bytes() == second.read_bytes()
    assert str(run.folder) not in first.read_text(encoding="utf-8")


def test_every_part_stands_once_in_the_order_of_the_argument(measured: tuple[Run, Analysis]) -> None:
    run, analysis = measured
    page = build_report(run, analysis)
    ids = [p.id for p in all_panels(run, analysis)]
    assert ids == [
        "training",
        "recall",
        "superposition",
        "reconstruction",
        "shares",
        "gating-0",
        "classes-0",
        "overlap-0",
        "selector",
        "transfer",
    ]
    ordered = ["summary", *ids[:-1], "walk", "transfer", "settings"]
    places = [page.index(f'id="{name}"') for name in ordered]
    assert places == sorted(places)
    assert [f["id"] for f in page_data(page)["figures"]] == ids
    for p in all_panels(run, analysis):
        assert page.count(f'id="figure-{p.id}" role="img"') == 1
        assert html.escape(p.answer, quote=False) in page.replace("&#39;", "'")


def test_small_with_plotly_once_and_no_other_script(measured: tuple[Run, Analysis]) -> None:
    page = build_report(*measured)
    assert len(page.encode()) <= MOST_BYTES
    rest = without_plotly(page)
    assert not re.search(r"""(src|href)\s*=\s*["']?\s*(https?:)?//""", rest)
    assert "import(" not in rest
    assert "@import" not in rest


def test_a_large_run_of_two_layers_stays_small(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("runs") / "large"
    run, analysis = small_run(folder, subjects=600, relations=4, steps=3, layers=2)
    page = build_report(run, analysis)
    assert len(page_data(page)["figures"]) == 13
    assert len(page.encode()) <= MOST_BYTES


@pytest.mark.slow
def test_matrices_of_4096_x_4096_do_not_blow_up_the_page() -> None:
    n = 4096
    square = torch.rand(n, n, generator=torch.Generator().manual_seed(0))
    facts = FactTable(answers=torch.arange(2).expand(n, 2).contiguous(), n_attributes=2)
    layer = LayerGating(
        firing_rate=square,
        classes=torch.full((n,), 3),
        class_counts=(0, 0, 0, n),
        gates_null=0.0,
        information=torch.zeros(n),
        information_mean=0.0,
        information_null=0.0,
        variance=(0.2, 0.3, 0.5),
        variance_by_unit=torch.zeros(n, 3),
        overlap=square,
    )
    gating = Gating(layers=(layer,), near=0.05, null_draws=1, seed=0, n_facts=2 * n, n_complete=2)
    selector = Selector(
        follows=square,
        stays=square,
        linear=square,
        follows_null=square,
        stays_null=square,
        counts=torch.ones(n, n, dtype=torch.int64),
        selectivity=0.0,
        isolation=0.0,
        selectivity_null=0.0,
        isolation_null=0.0,
        seed=0,
    )
    panels = [*gating_panels(gating, facts), selector_panel(selector, facts)]
    panels += [panel(f"more-{i}") for i in range(8)]
    page = render_report("large", panels, None, NOTHING)
    assert len(panels) == 12
    assert len(page.encode()) <= MOST_BYTES
    assert page.count("Aggregated for drawing: 4096 x 4096 cells") == 3


def test_hostile_names_are_shown_letter_for_letter(hostile: tuple[Run, Analysis]) -> None:
    page = build_report(*hostile)
    rest = without_plotly(page)
    assert "<img" not in rest
    assert rest.count("</script>") == rest.count("<script")  # names neither open nor close one
    assert "49" not in re.findall(r"<td>([^<]*)</td>", rest)  # {{7*7}} is not worked out
    assert "{{7*7}}" in rest
    assert html.escape(SCRIPT) in rest
    assert HOSTILE[3] in rest
    assert page_data(page)["walk"]["subjects"][: len(HOSTILE)] == list(HOSTILE)
    assert "\u2028" not in rest.split('id="report-data">')[1]


def test_half_a_surrogate_pair_in_a_name_is_written(hostile: tuple[Run, Analysis]) -> None:
    run, analysis = hostile
    names = ("\ud83d", *(run.facts.subject_names or ())[1:])
    odd = dataclasses.replace(run, facts=dataclasses.replace(run.facts, subject_names=names))
    assert "\ufffd" in build_report(odd, analysis)
    build_report(odd, analysis).encode("utf-8")


def test_a_script_cannot_be_ended_by_its_json() -> None:
    text = script_json({"a": "</script>&\u2028\u2029<!--"})
    assert not set(text) & set("<>&\u2028\u2029")
    assert json.loads(text) == {"a": "</script>&\u2028\u2029<!--"}


def test_a_bfloat16_model_is_drawn(measured: tuple[Run, Analysis]) -> None:
    run, analysis = measured
    half = dataclasses.replace(run, model=copy.deepcopy(run.model).bfloat16())
    assert len(build_report(half, analysis)) > 0


def test_tiles_hold_every_number_beside_its_null(measured: tuple[Run, Analysis]) -> None:
    _, analysis = measured
    tiles = {tile.label: tile for tile in summary_tiles(analysis)}
    assert list(tiles) == ["Recall", "R2, leave-one-out", "Selectivity", "Isolation", "Transfer"]
    assert all(re.search(r"\d", tile.against) for tile in tiles.values())
    assert "chance" in tiles["Transfer"].against
    assert "shuffled" in tiles["Transfer"].against


def test_warnings_stand_before_the_figures(measured: tuple[Run, Analysis]) -> None:
    run, analysis = measured
    saturated = dataclasses.replace(analysis.superposition, saturated=True)
    page = build_report(
        dataclasses.replace(run, finished=False), dataclasses.replace(analysis, superposition=saturated)
    )
    first = page.index('id="training"')
    assert page.index("in-sample R2 is meaningless here") < first
    assert page.index("training was interrupted") < first


def test_two_panels_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="ids of their own"):
        render_report("twice", [panel("a"), panel("a")], None, NOTHING)


@pytest.mark.slow
def test_no_image_exporter_is_imported(measured: tuple[Run, Analysis]) -> None:
    run, _ = measured
    script = (
        "import sys, geointerp; import geointerp.report.page as page; "
        f"run = geointerp.load_run({str(run.folder)!r}); "
        "panels = page.all_panels(run, geointerp.measure(run.model, run.facts, permutations=1)); "
        "page.render_report('x', panels, None, page.Summary(description='', tiles=(), warnings=(), settings=())); "
        "assert not {'kaleido', 'choreographer', 'orca'} & sys.modules.keys(), 'an exporter was imported'"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
