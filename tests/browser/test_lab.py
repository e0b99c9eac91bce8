"""Each notebook as a learner meets it: in JupyterLab, run from top to bottom, answered, moved."""

import dataclasses
import json
import re
import subprocess
import time

import pytest
from conftest import PYTHON, ROOT, environment
from playwright.sync_api import Locator, Page, expect

NAMES = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))

# Seconds. The longest notebook takes three minutes on two idle cores.
RUN, CELL, MOVE = 1200, 120, 30

BADGE = '<svg xmlns="http://www.w3.org/2000/svg" width="117" height="20"/>'

# How many widgets a notebook has, where it has some.
WIDGETS = {"00": 2, "01": 1, "03": 1}


@pytest.fixture(scope="session")
def exercises():
    """Every exercise, told by the course's own Python: this one has none of its packages."""
    tell = (
        "import importlib, json, pathlib\n"
        "found = {}\n"
        "for path in sorted(pathlib.Path('helpers/exercises').glob('notebook_*.py')):\n"
        "    module = importlib.import_module(f'helpers.exercises.{path.stem}')\n"
        "    for name, e in module.EXERCISES.items():\n"
        "        words, wrong = next(iter(e.wrong.items()))\n"
        "        found[name] = [e.answer, e.solution, wrong, words, len(e.hints)]\n"
        "print(json.dumps(found))\n"
    )
    told = subprocess.check_output([PYTHON, "-c", tell], cwd=ROOT, env=environment(), text=True)
    return json.loads(told.splitlines()[-1])


@dataclasses.dataclass(frozen=True)
class Notebook:
    """A notebook that stands open and has been run.

    Attributes:
        said: What the page wrote to the browser's console as an error, and its uncaught errors.
        failed: Addresses of requests that failed or went to another machine.
    """

    name: str
    page: Page
    said: list[str]
    failed: list[str]

    @property
    def code(self) -> Locator:
        return self.page.locator(".jp-Notebook .jp-CodeCell")

    def outputs(self, kind: str) -> list[str]:
        """Texts of all outputs of a MIME type."""
        found = self.page.locator(f'.jp-OutputArea-output[data-mime-type="{kind}"]')
        return found.all_text_contents()

    def wait(self, cells: Locator, seconds: float) -> None:
        """Wait until cells have been run: each has a number, or one has failed.

        A cell whose source is folded shows none; it ran if a cell below it did.
        """
        last = time.monotonic() + seconds
        while True:
            numbers = cells.locator(".jp-InputPrompt").all_text_contents()
            shown = filter(None, map(str.strip, numbers))
            if all(re.fullmatch(r"\[\d+\]:", number) for number in shown):
                return
            if self.outputs("application/vnd.jupyter.error"):
                return
            assert time.monotonic() < last, f"{self.name}: {numbers} after {seconds} s"
            self.page.wait_for_timeout(300)

    def run(self, cell: Locator, source: str) -> str:
        """Type a cell's source, run it with Shift-Enter, and give its output."""
        editor = cell.locator(".cm-content")
        editor.click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.insert_text(source)
        before = cell.locator(".jp-InputPrompt").text_content()
        self.page.keyboard.press("Shift+Enter")
        expect(cell.locator(".jp-InputPrompt")).not_to_have_text(before, timeout=CELL * 1000)
        self.wait(cell, CELL)
        return "\n".join(cell.locator(".jp-OutputArea-output").all_text_contents())

    def at(self, text: str) -> int:
        """Position of the one code cell that contains a text."""
        source = "cell => cell.querySelector('.cm-content')?.textContent ?? ''"
        sources = self.code.evaluate_all(f"cells => cells.map({source})")
        (at,) = [at for at, source in enumerate(sources) if text in source]
        return at


@pytest.fixture(
    scope="module", params=[pytest.param(n, marks=pytest.mark.xdist_group(n)) for n in NAMES]
)
def notebook(request, browser, lab):
    name = request.param
    page = browser.new_page(viewport={"width": 1280, "height": 1000})
    said, failed, ours = [], [], (lab.address, "data:", "blob:")
    # The badges are the only pictures from elsewhere; the test needs no network.
    badge = re.compile(r"/(colab-badge|open-in-kaggle)\.svg$")
    page.route(badge, lambda route: route.fulfill(content_type="image/svg+xml", body=BADGE))
    page.on("console", lambda m: said.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda error: said.append(str(error)))
    # JupyterLab asks for a text's picture below its own address first, and gives that up.
    first = f"{lab.address}lab/tree/images/"
    page.on("requestfailed", lambda r: None if r.url.startswith(first) else failed.append(r.url))
    page.on(
        "request",
        lambda r: None if r.url.startswith(ours) or badge.search(r.url) else failed.append(r.url),
    )
    page.goto(lab.url(name))
    page.locator(".jp-Notebook .jp-CodeCell").first.wait_for(timeout=120_000)
    # Without a kernel it is idle, too.
    expect(page.locator(".jp-Toolbar-kernelName").first).to_have_text(
        re.compile("^Python 3"), timeout=120_000
    )
    indicator = page.locator(".jp-Notebook-ExecutionIndicator")
    expect(indicator).to_have_attribute("data-status", "idle", timeout=120_000)
    opened = Notebook(name, page, said, failed)
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
    assert (notebook.said, notebook.failed) == ([], [])


def test_every_figure_has_its_words(notebook):
    pictures = notebook.page.locator(".jp-MarkdownCell img")
    assert all(pictures.evaluate_all("found => found.map(p => p.naturalWidth > 0 && p.alt)"))
    figures = notebook.page.locator(".jp-RenderedImage")
    for at in range(figures.count()):
        child = "xpath=ancestor::*[contains(@class,'jp-OutputArea-child')][1]"
        caption = figures.nth(at).locator(f"{child}/following-sibling::*[1]").locator("em")
        assert len(caption.text_content(timeout=1000)) > 20


def move(page: Page, control: Locator) -> None:
    """Move one control of a widget as a hand does."""
    if (handle := control.locator(".noUi-handle")).count():
        box = handle.bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 60, y, steps=8)
        page.mouse.up()
    elif (choice := control.locator("select")).count():
        choice.focus()  # a list that drops down is a window of the system: not in the page
        page.keyboard.press("End" if choice.evaluate("e => e.selectedIndex") == 0 else "Home")
    else:
        field = control.locator("input")
        field.click()
        page.keyboard.press("End")
        page.keyboard.type("0" if field.get_attribute("type") == "number" else ", 3")
        page.keyboard.press("Enter")


def test_every_control_changes_what_is_shown(notebook):
    widgets = notebook.page.locator(".jp-OutputArea-output > .widget-vbox")
    assert widgets.count() == WIDGETS.get(notebook.name[:2], 0)
    for at in range(widgets.count()):
        widget = widgets.nth(at)
        widget.scroll_into_view_if_needed()
        shown = widget.locator(".widget-html-content").last
        controls = widget.locator(".widget-inline-hbox").filter(
            has=notebook.page.locator("input, select, .noUi-handle")
        )
        assert controls.count()
        for control in controls.all():
            before = shown.inner_html()
            move(notebook.page, control)
            expect(shown).not_to_have_js_property("innerHTML", before, timeout=MOVE * 1000)
    assert notebook.outputs("application/vnd.jupyter.stderr") == []


def test_answers_are_judged_at_once(notebook, exercises):
    own = {name: e for name, e in exercises.items() if name.startswith(f"{notebook.name[:2]}-")}
    assert own
    for name, (given, solution, wrong, words, hints) in own.items():
        at = notebook.at(f'check("{name}"')
        answer, asked = notebook.code.nth(at - 1), notebook.code.nth(at)
        for source, state in ((wrong, "not right"), (solution, "right")):
            assert notebook.run(answer, source) == ""
            verdict = notebook.run(asked, f'check("{name}", {given})')
            assert re.match(rf"Exercise {name} . {state}", verdict), verdict
            if state == "not right":
                assert words in verdict
                # A learner asks for a hint in the cell at hand.
                assert f"of {hints}" in notebook.run(asked, f'hint("{name}")')
