"""Each notebook as a learner meets it: in JupyterLab, run from top to bottom, answered, moved."""

import dataclasses
import json
import re
import tomllib

import pytest
from conftest import ROOT, SLOW_PAGE
from playwright.sync_api import ConsoleMessage, Locator, Page, Request, expect

NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))

# Milliseconds. The longest notebook takes three minutes on two idle cores.
RUN, CELL = 1_200_000, 120_000

BADGE = '<svg xmlns="http://www.w3.org/2000/svg" width="117" height="20"/>'

DIALS = {"00": 1, "03": 2, "09": 2}  # how many a notebook has

# Each cell that was run has a number; one whose source is folded shows none. Or one has failed.
DONE = """cells => document.querySelector('[data-mime-type="application/vnd.jupyter.error"]')
    || cells.every(e => /^$|^\\[\\d+\\]:$/.test(e.textContent.trim()))"""


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook that stands open and has been run."""

    name: str
    page: Page
    messages: list[str]  # errors of the page, and addresses of other machines that it asked

    @property
    def code(self) -> Locator:
        return self.page.locator(".jp-Notebook .jp-CodeCell")

    def outputs(self, kind: str) -> list[str]:
        """Texts of all outputs of a MIME type."""
        outputs = self.page.locator(f'.jp-OutputArea-output[data-mime-type="{kind}"]')
        return outputs.all_text_contents()

    def wait(self, cells: Locator, milliseconds: int) -> None:
        """Wait until cells have been run."""
        for _ in range(milliseconds // 300):
            if cells.locator(".jp-InputPrompt").evaluate_all(DONE):
                return
            self.page.wait_for_timeout(300)
        raise TimeoutError(f"{self.name}: {milliseconds} ms")

    def run(self, cell: Locator, source: str) -> str:
        """Type a cell's source, run it with Shift-Enter, and give its output."""
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(source)
        number = cell.locator(".jp-InputPrompt").text_content()
        self.page.keyboard.press("Shift+Enter")
        expect(cell.locator(".jp-InputPrompt")).not_to_have_text(number, timeout=CELL)
        self.wait(cell, CELL)
        return "\n".join(cell.locator(".jp-OutputArea-output").all_text_contents())


@pytest.fixture(
    scope="module", params=[pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in NAMES]
)
def notebook(request, browser, lab):
    address, token = lab
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    page.set_default_navigation_timeout(SLOW_PAGE)
    messages = []
    # The badges are the only pictures from elsewhere; the test needs no network.
    badge = re.compile(r"/(colab-badge|open-in-kaggle)\.svg$")
    page.route(badge, lambda route: route.fulfill(content_type="image/svg+xml", body=BADGE))

    def note_error(message: ConsoleMessage) -> None:
        if message.type == "error":
            messages.append(message.text)

    def note_foreign(request: Request) -> None:
        is_local = request.url.startswith((address, "data:", "blob:"))
        if not is_local and not badge.search(request.url):
            messages.append(request.url)

    page.on("console", note_error)
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", note_foreign)
    page.goto(f"{address}lab/tree/{request.param}.ipynb?reset&token={token}")
    kernel = page.locator(".jp-Toolbar-kernelName").first
    expect(kernel).to_have_text(re.compile("^Python 3"), timeout=CELL)
    indicator = page.locator(".jp-Notebook-ExecutionIndicator")
    expect(indicator).to_have_attribute("data-status", "idle", timeout=CELL)
    opened = Notebook(request.param, page, messages)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator('.lm-Menu-item[data-command="runmenu:run-all"]').click()
    opened.wait(opened.code, RUN)
    yield opened
    page.get_by_role("menuitem", name="Kernel", exact=True).click()
    page.locator('.lm-Menu-item[data-command="kernelmenu:shutdown"]').click()
    page.wait_for_timeout(500)
    page.close()


def test_runs_from_top_to_bottom_and_nothing_is_wrong_behind_the_page(notebook):
    assert notebook.outputs("application/vnd.jupyter.error") == []
    assert notebook.outputs("application/vnd.jupyter.stderr") == []
    assert notebook.messages == []


def test_every_figure_has_its_words(notebook):
    pictures = notebook.page.locator(".jp-MarkdownCell img")
    assert all(pictures.evaluate_all("found => found.map(p => p.naturalWidth > 0 && p.alt)"))
    child = "xpath=ancestor::*[contains(@class,'jp-OutputArea-child')][1]"
    for figure in notebook.page.locator(".jp-RenderedImage").all():
        caption = figure.locator(f"{child}/following-sibling::*[1]").locator("em")
        assert len(caption.text_content(timeout=1000)) > 20


def test_a_dial_turns_by_the_arrow_keys(notebook):
    dials = notebook.page.locator(".jp-OutputArea-output .dial")
    assert dials.count() == DIALS.get(notebook.name[:2], 0)
    for dial in dials.all():
        figure = dial.locator("figure:visible")
        picture = figure.inner_html()
        dial.locator("input:checked").press("ArrowLeft")
        assert figure.count() == 1
        assert figure.inner_html() != picture


def test_a_dial_of_an_untrusted_notebook_is_one_picture_with_its_words(page, lab):
    address, token = lab
    path = ROOT / "notebooks/00_start_here.ipynb"
    stored = json.loads(path.read_text("utf-8"))
    with_dial = [c for c in stored["cells"] if '"dial' in str(c.get("outputs"))]
    content = stored | {"cells": with_dial}
    data = {"type": "notebook", "format": "json", "content": content}
    headers = {"Authorization": f"token {token}"}
    page.request.put(f"{address}api/contents/untrusted.ipynb", data=data, headers=headers)
    page.goto(f"{address}lab/tree/untrusted.ipynb?reset&token={token}")
    dial = page.locator(".jp-OutputArea-output .dial")
    expect(dial).to_have_count(1, timeout=CELL)
    assert dial.locator("svg, style").count() == 0  # JupyterLab's sanitizer was here
    text = " ".join(dial.inner_text().split())
    assert re.fullmatch(r"rows of x 32: .* trusted yet, .* turn it\.", text)
    picture = dial.get_by_role("img")
    assert picture.count() == 1
    assert len(picture.get_attribute("alt")) > 20
    assert picture.evaluate("image => image.naturalWidth") > 100
    page.request.delete(f"{address}api/contents/untrusted.ipynb", headers=headers)


def test_an_answer_is_judged_at_once(notebook):
    path = ROOT / f"helpers/exercises/notebook_{notebook.name[:2]}.toml"
    if not path.exists():
        pytest.skip(f"{notebook.name} is an appendix: it has no exercises.")
    texts = tomllib.loads(path.read_text("utf-8"))
    name, exercise = next((name, text) for name, text in texts.items() if "stub" in text)
    index = index_of_check(notebook, name)
    answer_cell = notebook.code.nth(index - 1)
    check_cell = notebook.code.nth(index)
    call = f'check("{name}", {exercise["answer"]})'

    words, wrong_answer = next(iter(exercise["wrong"].items()))
    assert notebook.run(answer_cell, wrong_answer) == ""
    verdict = notebook.run(check_cell, call)
    assert re.match(rf"Exercise {name} . not right", verdict), verdict
    assert words in verdict
    # A learner asks for a hint in the cell at hand.
    assert f"of {len(exercise['hints'])}" in notebook.run(check_cell, f'hint("{name}")')

    assert notebook.run(answer_cell, exercise["solution"]) == ""
    verdict = notebook.run(check_cell, call)
    assert re.match(rf"Exercise {name} . right", verdict), verdict


def index_of_check(notebook: Notebook, name: str) -> int:
    """Find the cell that checks an exercise; JupyterLab draws a long notebook bit by bit."""
    source = "cells => cells.map(cell => cell.querySelector('.cm-content')?.textContent ?? '')"
    for _ in range(60):
        notebook.page.wait_for_timeout(1000)
        for index, text in enumerate(notebook.code.evaluate_all(source)):
            if f'check("{name}"' in text:
                return index
    raise TimeoutError(name)
