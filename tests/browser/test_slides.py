"""The decks of `make slides`, each slide as the class sees it: nothing is cut off."""

import pathlib
import re
import subprocess

import pytest
from conftest import ROOT, environment

pytestmark = pytest.mark.xdist_group("slides")

SMALLEST = 0.7  # of the type's size; below it the last row of a room can't read
DECKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))

# Of the slide that is shown, in its own points: what goes beyond its place, and what must scroll.
LOOK = """() => {
  const slide = Reveal.getCurrentSlide(), {width, height} = Reveal.getConfig();
  const zoom = Number(slide.style.zoom), edge = slide.getBoundingClientRect();
  const beyond = [...slide.querySelectorAll("h1, h2, h3, p, li, td, pre, img")]
    .filter((e) => e.getBoundingClientRect().right > edge.right + 1 &&
                   !e.closest(".jp-Cell-outputWrapper, .jp-RenderedHTMLCommon pre"))
    .map((e) => e.textContent.slice(0, 40) || e.alt);
  return {
    at: Object.values(Reveal.getIndices()).join("."), zoom, beyond,
    text: slide.innerText.trim().slice(0, 40),
    below: Math.round(slide.scrollHeight * zoom - height),
    pictures: [...slide.querySelectorAll("img")].filter((e) => !e.naturalWidth || !e.alt).length,
  };
}"""


@pytest.fixture(scope="session")
def decks() -> pathlib.Path:
    subprocess.run(["make", "slides"], cwd=ROOT, env=environment(), check=True, timeout=600)
    return ROOT / "build/slides"


@pytest.fixture
def opened(browser, decks, request):
    """A deck, the addresses it asked for, and what went wrong in it."""
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    asked, wrong = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.goto((decks / f"{request.param}.html").as_uri())
    page.wait_for_function("window.Reveal && Reveal.isReady()")
    yield page, asked, wrong
    page.close()


@pytest.mark.parametrize("opened", DECKS, indirect=True)
def test_no_slide_overflows_and_nothing_is_fetched(opened):
    page, asked, wrong = opened
    total = page.evaluate("Reveal.getTotalSlides()")
    seen = []
    for _ in range(total):
        seen.append(page.evaluate(LOOK))
        page.keyboard.press("ArrowRight")
    assert len({look["at"] for look in seen}) == total > 10
    assert [x for x in seen if x["below"] > 0 or x["zoom"] < SMALLEST or x["beyond"]] == []
    assert [x for x in seen if x["pictures"] or not x["text"]] == []
    assert [url for url in asked if not re.match("file:|data:", url)] == []
    assert wrong == []


ADD = """(more) => {
  Reveal.getCurrentSlide().insertAdjacentHTML("beforeend", more);
}"""


@pytest.mark.parametrize("opened", DECKS[:1], indirect=True)
def test_a_slide_that_overflows_is_seen(opened):
    page, _, _ = opened
    page.evaluate(ADD, "<p style='width: 3000px; height: 900px'>Far too much.</p>")
    look = page.evaluate(LOOK)
    assert look["below"] > 0 and look["beyond"] == ["Far too much."]


@pytest.mark.parametrize("opened", DECKS[:1], indirect=True)
def test_a_slide_that_is_a_little_too_long_is_drawn_smaller(opened):
    page, _, _ = opened
    page.evaluate(ADD, "<p style='height: 330px'>More.</p>")
    page.evaluate("() => { Reveal.next(); Reveal.prev(); }")
    look = page.evaluate(LOOK)
    assert look["below"] <= 0 and look["zoom"] < 1
