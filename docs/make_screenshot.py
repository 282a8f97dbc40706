"""Remake docs/report.png and docs/walk.png, the pictures of the report in the README, from the quick preset.

    make run && .venv/bin/python docs/make_screenshot.py

Needs the test extra (playwright) and a Chromium on the system.
"""

import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
REPORT = DOCS.parent / "runs" / "quick" / "report.html"


def main() -> None:
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.goto(REPORT.resolve().as_uri())
        page.wait_for_function("document.querySelectorAll('.main-svg').length > 10")
        page.screenshot(path=DOCS / "report.png")
        page.locator("#walk").screenshot(path=DOCS / "walk.png")
        browser.close()


if __name__ == "__main__":
    main()
