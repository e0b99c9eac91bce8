"""Take the README's picture: the page of the last whole `make run`, as this browser shows it."""

import sys

import chromium
from conftest import ROOT
from playwright.sync_api import sync_playwright

PAGE = ROOT / "build/index.html"
PICTURE = ROOT / "notebooks/images/results.png"


def main() -> str:
    """Take the picture; say why there is none, or nothing when it was taken."""
    count = len(list((ROOT / "notebooks").glob("[0-9]*.ipynb")))
    everything = f"{count} of {count}"
    if not PAGE.is_file():
        return "There is no page of results yet. Run all notebooks first: make run"
    with sync_playwright() as playwright:
        browser = chromium.launch(playwright)
        page = browser.new_page(viewport={"width": 1120, "height": 800}, color_scheme="light")
        page.goto(PAGE.as_uri())
        passed = page.locator("dd").first.inner_text()
        if passed == everything:
            page.screenshot(path=PICTURE, full_page=True)
        browser.close()
    if passed != everything:
        return f"Only {passed} notebooks passed in the last run. Run all of them first: make run"
    return ""


if __name__ == "__main__":
    sys.exit(main() or None)
