"""The report in headless Chromium, offline: every figure drawn, the walk walks, nothing leaves, names stay literal."""

import pytest
import torch
from browser.conftest import Open, Reported
from report.small_runs import HOSTILE, SCRIPT

# Of every figure: its id, how many traces it has, the size of its drawing, and the marks in it.
FIGURES = """() => Array.from(document.querySelectorAll('.figure'), element => {
    const svg = element.querySelector('.main-svg'), box = svg ? svg.getBoundingClientRect() : {width: 0, height: 0};
    return {
        id: element.id, traces: (element.data || []).length, width: box.width, height: box.height,
        marks: element.querySelectorAll('.point, .js-line, .heatmaplayer image').length,
        label: element.getAttribute('aria-label'),
    };
})"""
# The three stages as drawn: sizes of components, pre-activations and masks, logits.
STAGES = """() => ['row', 'units', 'answer'].map(name => JSON.stringify(
    Array.from(document.getElementById('figure-walk-' + name).data, trace => [trace.x, trace.y, trace.z])
))"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_figure_is_drawn_and_nothing_leaves(open_page: Open, plain: Reported, dark: bool) -> None:
    opened = open_page(plain.path, dark=dark)
    figures = opened.page.evaluate(FIGURES)
    assert len(figures) == 10 + 3 + 3  # one layer more, and the walk
    for figure in figures:
        assert figure["traces"] > 0, figure
        assert figure["marks"] > 0, figure
        assert figure["width"] > 100, figure
        assert figure["height"] > 100, figure
        assert figure["label"], figure
    assert opened.faults == []


@pytest.mark.parametrize("width", [360, 800, 1400])
@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_no_width_scrolls_sideways(open_page: Open, request: pytest.FixtureRequest, name: str, width: int) -> None:
    opened = open_page(request.getfixturevalue(name).path, width=width, touch=width == 360)
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= width
    for figure in opened.page.evaluate(FIGURES):
        assert 100 < figure["width"] <= width, figure
    assert opened.faults == []


def test_figures_follow_the_width_of_the_window(open_page: Open, plain: Reported) -> None:
    opened = open_page(plain.path, width=1400)
    before = {f["id"]: f["width"] for f in opened.page.evaluate(FIGURES)}
    opened.page.set_viewport_size({"width": 500, "height": 900})
    opened.page.wait_for_function(
        "() => document.querySelector('#figure-training .main-svg').getBoundingClientRect().width < 500"
    )
    after = {f["id"]: f["width"] for f in opened.page.evaluate(FIGURES)}
    assert all(after[name] <= 500 < before[name] for name in ("figure-training", "figure-selector"))
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 500


def test_the_walk_shows_what_the_model_answers(open_page: Open, plain: Reported) -> None:
    opened = open_page(plain.path)
    page, facts = opened.page, plain.run.facts
    for subject, relation in ((0, 0), (0, 2), (7, 1), (facts.n_subjects - 1, 2)):
        before, outcome = page.evaluate(STAGES), page.inner_text("#walk-outcome")
        changes = page.input_value("#walk-subject") != str(subject) or page.input_value("#walk-relation") != str(
            relation
        )
        page.select_option("#walk-subject", str(subject))
        page.select_option("#walk-relation", str(relation))
        if changes:
            # Components belong to the subject and keep their sizes under another relation, which moves the highlight.
            after = page.evaluate(STAGES)
            assert after[1] != before[1]
            assert after[2] != before[2]
            assert page.inner_text("#walk-outcome") != outcome
        rows = plain.run.model.subject_rows[[subject]]
        given = int(plain.run.model.answer_logits(rows, torch.tensor([relation])).argmax())
        right = int(facts.answers[relation, subject])
        assert page.inner_text("#walk-given") == facts.attribute_name(given)
        assert ("✓ right" in page.inner_text("#walk-outcome")) == (given == right)
        cells = page.evaluate(
            "Array.from(document.querySelectorAll('#walk-table tr'), row => Array.from(row.cells, c => c.textContent))"
        )
        assert [c[2] for c in cells if c[1] == "right answer in the table"] == [facts.attribute_name(right)]
    assert opened.faults == []


def test_another_subject_changes_all_three_stages(open_page: Open, plain: Reported) -> None:
    page = open_page(plain.path).page
    before, labels = page.evaluate(STAGES), [f["label"] for f in page.evaluate(FIGURES) if "walk" in f["id"]]
    page.click("#walk-next")
    assert page.input_value("#walk-subject") == "1"
    after = page.evaluate(STAGES)
    assert all(a != b for a, b in zip(after, before, strict=True))
    assert [f["label"] for f in page.evaluate(FIGURES) if "walk" in f["id"]] != labels
    page.click("#walk-before")
    assert page.evaluate(STAGES) == before


def test_another_relation_moves_the_highlight(open_page: Open, plain: Reported) -> None:
    page = open_page(plain.path).page
    colours = "document.getElementById('figure-walk-row').data[0].marker.color"
    assert [i for i, c in enumerate(page.evaluate(colours)) if c == "#0072B2"] == [0]
    page.select_option("#walk-relation", "1")
    assert [i for i, c in enumerate(page.evaluate(colours)) if c == "#0072B2"] == [1]


def test_the_walk_counts_the_open_units_of_the_layer_picked(open_page: Open, plain: Reported) -> None:
    from geointerp.measures.memory import as_memory

    page, memory = open_page(plain.path).page, as_memory(plain.run.model, plain.run.facts)
    page.select_option("#walk-subject", "3")
    page.select_option("#walk-relation", "1")
    hidden = memory.pre_activations_for("test")(memory.rows[[3]], torch.tensor([1]))
    for layer, pre in enumerate(hidden):
        page.select_option("#walk-layer", str(layer))
        count = int((pre > 0).sum())
        assert page.inner_text("#walk-units-text").startswith(f"{count} of {pre.shape[1]} units open in layer {layer}")
        drawn = page.evaluate("Array.from(document.getElementById('figure-walk-units').data[0].y)")
        assert sum(y > 0 for y in drawn) == count


def test_the_walk_by_keyboard(open_page: Open, plain: Reported) -> None:
    page = open_page(plain.path).page
    page.focus("#walk-relation")
    page.keyboard.press("ArrowDown")
    assert page.input_value("#walk-relation") == "1"
    assert "asked for r1" in page.inner_text("#walk-outcome")
    page.focus("#walk-next")
    page.keyboard.press("Enter")
    assert page.inner_text("#walk-outcome").startswith("s1, ")


def test_hostile_names_are_shown_literally(open_page: Open, hostile: Reported) -> None:
    opened = open_page(hostile.path)
    page = opened.page
    assert page.locator("img").count() == 0
    assert page.locator(".panels b").count() == 0
    names = page.evaluate("Array.from(document.getElementById('walk-relation').options, o => o.textContent)")
    assert names[:3] == list(HOSTILE[:3])
    ticks = page.locator("#figure-recall .ytick text").all_text_contents()
    assert ticks[:3] == [SCRIPT[:17] + "…", "{{7*7}}", "<b>bold</b>"]
    assert ticks[7].startswith("%{x} $\\alpha$ &am")
    page.evaluate("Plotly.Fx.hover(document.getElementById('figure-recall'), [{curveNumber: 0, pointNumber: 0}])")
    page.wait_for_selector("#figure-recall .hoverlayer .hovertext")
    assert SCRIPT in page.text_content("#figure-recall .hoverlayer .hovertext")  # pyright: ignore[reportOperatorIssue]
    for subject in range(len(HOSTILE)):
        page.select_option("#walk-subject", str(subject))
        page.select_option("#walk-relation", str(subject))
        assert HOSTILE[subject].replace("\u2028", " ") in page.text_content("#walk-outcome").replace("\u2028", " ")  # pyright: ignore[reportOptionalMemberAccess]
    assert opened.faults == []


def test_the_paper_can_be_changed(open_page: Open, plain: Reported) -> None:
    opened = open_page(plain.path)
    page = opened.page
    paper = "getComputedStyle(document.body).backgroundColor"
    ink = "document.getElementById('figure-training')._fullLayout.font.color"
    light, dark_ink = page.evaluate(paper), page.evaluate(ink)
    page.click("#theme")
    assert page.evaluate(paper) != light
    assert page.evaluate(ink) != dark_ink
    assert page.get_attribute("#theme", "aria-pressed") == "true"
    page.click("#theme")
    assert (page.evaluate(paper), page.evaluate(ink)) == (light, dark_ink)
    assert opened.faults == []


def test_tables_open_and_every_link_has_its_target(open_page: Open, plain: Reported) -> None:
    page = open_page(plain.path).page
    page.click("#selector summary")
    assert page.is_visible("#selector table")
    targets = page.evaluate("Array.from(document.querySelectorAll('a'), a => a.getAttribute('href'))")
    assert len(targets) > 15
    assert all(target.startswith("#") and page.locator(target).count() == 1 for target in targets)
    doubled = "Array.from(document.querySelectorAll('[id]'), e => e.id).filter((id, i, all) => all.indexOf(id) !== i)"
    assert page.evaluate(doubled) == []
