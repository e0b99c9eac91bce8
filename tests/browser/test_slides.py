"""The decks of `make slides`, each slide as the class sees it: nothing is cut off."""

import pathlib
import re
import subprocess

import pytest
from conftest import ROOT, environment

pytestmark = pytest.mark.xdist_group("slides")

SMALLEST = 0.7  # of the type's size; below it the last row of a room can't read
DECKS = sorted(path.stem for path in (ROOT / "notebooks").glob("*.ipynb"))

# Of each slide, in turn, with all that it holds: what goes beyond its place, what would scroll, and
# in which order its parts appear.
LOOK = """() => Reveal.getSlides().map((slide) => {
  const {h, v} = Reveal.getIndices(slide), {width, height} = Reveal.getConfig();
  Reveal.slide(h, v, -1);
  const parts = [...slide.querySelectorAll(".jp-Cell:not(aside *)")];
  const first = parts.filter((part) => getComputedStyle(part.closest(".fragment") ?? part)
    .visibility == "visible").length;
  let steps = 0;
  for (; Reveal.availableFragments().next; steps++) Reveal.nextFragment();
  const zoom = Number(slide.style.zoom), edge = slide.getBoundingClientRect();
  const all = [...slide.querySelectorAll(":is(h1, h2, h3, p, li, td, pre, img, svg):not(aside *)")];
  const name = (e) => e.textContent.slice(0, 40) || e.alt || e.tagName;
  return {
    at: `${h}.${v}`, zoom, first, steps, parts: parts.length,
    text: slide.innerText.trim().slice(0, 40) || slide.querySelector("img, svg")?.tagName,
    below: Math.round(slide.scrollHeight * zoom - height),
    beyond: all.filter((e) => e.getBoundingClientRect().right > edge.right + 1).map(name),
    scrolls: [...slide.querySelectorAll("*")].filter((e) =>
      /auto|scroll/.test(getComputedStyle(e).overflow) &&
      (e.scrollWidth > e.clientWidth + 1 || e.scrollHeight > e.clientHeight + 1)).map(name),
    pictures: [...slide.querySelectorAll("img")].filter((e) => !e.naturalWidth || !e.alt).length,
  };
})"""


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
    page.wait_for_function("() => window.Reveal && Reveal.isReady()")
    yield page, asked, wrong
    page.close()


def faults(look: dict) -> bool:
    bad = look["below"] > 0 or look["zoom"] < SMALLEST or look["beyond"] or look["scrolls"]
    return bool(bad or look["pictures"] or not look["text"])


@pytest.mark.parametrize("opened", DECKS, indirect=True)
def test_no_slide_overflows_or_scrolls_and_nothing_is_fetched(opened):
    page, asked, wrong = opened
    seen = page.evaluate(LOOK)
    assert len(seen) > 10
    assert [look for look in seen if faults(look)] == []
    # What is asked stands alone; each further part takes a press of a key.
    assert [look for look in seen if look["parts"] and look["first"] != 1] == []
    assert sum(look["steps"] for look in seen) > len(seen)
    assert [url for url in asked if not re.match("file:|data:", url)] == []
    assert wrong == []


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("<p style='width: 3000px'>Too wide.</p>", {"beyond": ["Too wide."]}),
        ("<p style='height: 3000px'>Too long.</p>", {"zoom": 0.55}),
        (
            "<div style='height: 9px; overflow: auto'>It<br>scrolls.</div>",
            {"scrolls": ["Itscrolls."]},
        ),
    ],
)
@pytest.mark.parametrize("opened", DECKS[:1], indirect=True)
def test_a_slide_that_overflows_is_seen(opened, more, fault):
    page, _, _ = opened
    page.evaluate("(more) => Reveal.getSlides()[1].insertAdjacentHTML('beforeend', more)", more)
    page.evaluate("fit(Reveal.getSlides()[1])")
    look = page.evaluate(LOOK)[1]
    assert faults(look)
    assert {name: look[name] for name in fault} == pytest.approx(fault)


@pytest.mark.parametrize("opened", DECKS[:1], indirect=True)
def test_the_speakers_notes_follow_in_a_window_of_their_own(opened):
    page, asked, _ = opened
    with page.context.expect_page() as waited:
        page.keyboard.press("s")
    notes = waited.value
    place = notes.locator("#now").inner_text()
    assert place.startswith("1 of ")
    notes.keyboard.press("ArrowRight")
    while page.evaluate("Reveal.getSlides().indexOf(Reveal.getCurrentSlide())") == 0:
        notes.keyboard.press("ArrowRight")
    assert notes.locator("#now").inner_text().startswith("2 of ")
    assert len(asked) == 1
