"""The slides of `make slides` as a teacher projects them: 1280 x 720, without a network."""

import pytest
from conftest import ROOT

SLIDES = ROOT / "build/slides"
NAMES = [path.stem for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]

# Goes through all slides and gives those of which something is off the screen, or cut: a line of
# code, an output. What scrolls is counted apart.
MEASURE = """() => {
  const off = [];
  const slides = Reveal.getSlides();
  for (const slide of slides) {
    const {h, v} = Reveal.getIndices(slide);
    Reveal.slide(h, v ?? 0);
    const shown = [...slide.querySelectorAll("*")].filter(
      (element) => !element.closest(".scrolled *, svg, details:not([open]) *"));
    const boxes = shown.map((element) => element.getBoundingClientRect());
    const lowest = Math.max(...boxes.map((box) => box.bottom));
    const rightmost = Math.max(...boxes.map((box) => box.right));
    const cut = shown.filter((element) =>
      element.matches("pre") && element.scrollWidth > element.clientWidth + 1);
    if (lowest > innerHeight + 1 || rightmost > innerWidth + 1 || cut.length) {
      off.push(`${h + 1}.${(v ?? 0) + 1}: ${slide.innerText.trim().slice(0, 50)}`);
    }
  }
  return {off, slides: slides.length, scrolled: document.querySelectorAll(".scrolled").length};
}"""


@pytest.fixture
def projector(browser):
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    yield page
    page.close()


def show(projector, name: str) -> list[str]:
    """Open a deck; give what it fetched, but for its own files."""
    fetched = []

    def note(request) -> None:
        if not request.url.startswith(("file:", "data:")):
            fetched.append(request.url)

    projector.on("requestfinished", note)
    projector.goto((SLIDES / f"{name}.slides.html").as_uri())
    projector.wait_for_function("window.Reveal?.isReady()")
    return fetched


@pytest.mark.parametrize("name", NAMES)
def test_each_slide_fits_and_nothing_is_fetched(projector, name):
    fetched = show(projector, name)
    measured = projector.evaluate(MEASURE)
    assert measured["slides"] > 10
    assert measured["off"] == []
    assert measured["scrolled"] <= 1
    assert fetched == []


def test_a_slide_that_does_not_fit_is_measured(projector):
    show(projector, NAMES[0])
    high = "const div = document.createElement('div'); div.style.height = '700px'; div"
    projector.evaluate(f"{high}.innerText = 'high'; Reveal.getSlides()[3].prepend(div)")
    projector.evaluate("Reveal.getSlides()[5].style.width = '1400px'")
    assert len(projector.evaluate(MEASURE)["off"]) == 2


def test_a_deck_prints_a_page_for_each_slide(projector):
    show(projector, NAMES[0])
    slides = projector.evaluate("Reveal.getSlides().length")
    projector.goto((SLIDES / f"{NAMES[0]}.slides.html").as_uri() + "?print-pdf")
    projector.wait_for_selector(".pdf-page")
    assert projector.locator(".pdf-page").count() == slides


def test_the_output_of_a_question_s_cell_waits_for_a_key(projector):
    show(projector, "02_xla_rules")
    projector.evaluate("""() => {
      const slides = Reveal.getSlides();
      const asked = slides.find((slide) => slide.innerText.includes("without the wrapper"));
      const {h, v} = Reveal.getIndices(asked);
      Reveal.slide(h, v);
    }""")
    slide = projector.locator("section.present section.present")
    output = slide.get_by_text("reference")
    assert slide.get_by_text("compare(halve_if_large, large)").is_visible()
    assert not output.is_visible()
    projector.keyboard.press("Space")
    output.wait_for(timeout=5000)  # it fades in
    assert slide.get_by_text("Before you run it.").is_visible()


def test_no_slide_offers_to_open_what_is_empty(projector):
    show(projector, "02_xla_rules")
    folded = projector.locator("details", has=projector.locator("summary", has_text="What this"))
    assert folded.count() > 3
    display = "all => all.map(element => getComputedStyle(element).display)"
    assert set(folded.evaluate_all(display)) == {"none"}
