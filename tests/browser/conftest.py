"""The system's Chromium, driven by playwright with name resolution switched off, and pages opened in it.

Without Chromium or playwright these tests skip and say how to get them; under CI=true that is a failure.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from report.small_runs import small_run

from geointerp.measures.analysis import Analysis
from geointerp.report.page import write_report
from geointerp.training.checkpoint import Run

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OFFLINE = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)


@dataclass
class Opened:
    """A page and everything it did that a report must not do."""

    page: "Page"
    faults: list[str] = field(default_factory=list)  # console errors, exceptions, dialogs, requests that leave


Open = Callable[..., Opened]


def _missing(what: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"under CI=true the browser tests must run; {what}")
    pytest.skip(what)


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        _missing("no Chromium found; get one with: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        _missing("playwright is not installed; get it with: pip install playwright")
        raise
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=list(OFFLINE))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def open_page(browser: "Browser") -> Iterator[Open]:
    """``open_page(path, width=1400, dark=False, touch=False)``: a page that has drawn its figures.

    Loading five megabytes takes seconds, so a page asked for again is the same one, with its picks at their start.
    """
    kept: dict[Any, Opened] = {}

    def opened(path: Path, width: int = 1400, dark: bool = False, touch: bool = False) -> Opened:
        key = path, dark, touch
        if key not in kept:
            kept[key] = _load(browser, path, width, dark, touch)
        page = kept[key].page
        if page.viewport_size != {"width": width, "height": 900}:
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_timeout(150)  # the page waits for the last of a series of resizes
        page.evaluate(
            """() => { for (const select of document.querySelectorAll('#walk select')) select.value = '0';
                       document.getElementById('walk-subject').dispatchEvent(new Event('change')); }"""
        )
        return kept[key]

    yield opened
    for each in kept.values():
        each.page.context.close()


def _load(browser: "Browser", path: Path, width: int, dark: bool, touch: bool) -> Opened:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", has_touch=touch
    )
    result = Opened(page=context.new_page())

    def dialog(box: Any) -> None:
        result.faults.append(f"dialog: {box.message}")
        box.dismiss()

    def request(asked: Any) -> None:
        if not asked.url.startswith(("file:", "data:", "blob:")):
            result.faults.append(f"request: {asked.url}")

    def console(line: Any) -> None:
        if line.type in ("error", "warning"):
            result.faults.append(f"console: {line.text}")

    result.page.on("dialog", dialog)
    result.page.on("request", request)
    result.page.on("console", console)
    result.page.on("pageerror", lambda error: result.faults.append(f"exception: {error}"))
    result.page.goto(path.as_uri())
    return result


@dataclass(frozen=True)
class Reported:
    """A run, its analysis, and where its report lies."""

    run: Run
    analysis: Analysis
    path: Path


def _reported(folder: Path, **settings: Any) -> Reported:
    run, analysis = small_run(folder, **settings)
    return Reported(run, analysis, write_report(run, analysis))


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return _reported(tmp_path_factory.mktemp("runs") / "plain", layers=2)


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Reported:
    return _reported(tmp_path_factory.mktemp("runs") / "hostile", relations=8, hostile=True, steps=60)
