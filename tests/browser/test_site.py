"""The course as pages, as `make site` writes them, opened from the disk as a person opens them."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import ROOT, SHOTS, watched

pytestmark = pytest.mark.xdist_group("site")

SITE = ROOT / "build/site/html"
PAGES = ["index", "search", "symptoms/the-on-chip-memory-vmem"]
KINDS = ("*.md", "[0-9]*.ipynb")
FILES = [path for kind in KINDS for path in (ROOT / "notebooks").glob(kind)]
PAGES += sorted(f"notebooks/{path.stem}" for path in FILES)
KOREAN = [path for kind in KINDS for path in (ROOT / "notebooks/ko").glob(kind)]
PAGES += ["ko/index", "ko/search", *sorted(f"ko/notebooks/{path.stem}" for path in KOREAN)]
SCREENS = {"light": {"width": 1280, "height": 1000}, "dark": {"width": 390, "height": 844}}


@pytest.fixture(params=SCREENS)
def shown(request, browser):
    """A page on a desk in the light, and on a phone in the dark; what it asked for and said."""
    yield from watched(browser, SCREENS[request.param], request.param)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_keeps_a_person_from_reading_it_and_it_asks_the_network_for_nothing(name, shown):
    shown.goto((SITE / f"{name}.html").as_uri())
    shown.wait_for_timeout(300)
    assert [url for url in shown.asked if not url.startswith(("file:", "data:"))] == []
    assert shown.said == []
    SHOTS.mkdir(parents=True, exist_ok=True)
    shot = SHOTS / f"site-{name.replace('/', '-')}-{shown.scheme}.jpeg"
    shown.screenshot(path=shot, type="jpeg", quality=70)
    wide = shown.evaluate("document.documentElement.scrollWidth")
    assert wide <= shown.viewport_size["width"]
    found = Axe().run(shown)
    broken = [(rule["id"], rule["nodes"][0]["html"]) for rule in found.response["violations"]]
    assert broken == []


def test_a_symptom_is_found_by_the_words_of_its_message(page):
    page.goto((SITE / "notebooks/00_start_here.html").as_uri())
    field = page.get_by_role("textbox", name="Search")
    field.fill("exceeded scoped vmem limit")
    field.press("Enter")
    page.locator("#search-results").get_by_role("link", name="The on-chip memory (vmem)").click()
    assert page.locator("h1").inner_text() == "The on-chip memory (vmem)"
    assert "exceeded scoped vmem limit" in page.locator("pre").first.inner_text()
    page.get_by_role("link", name="All symptoms", exact=True).click()
    assert page.locator("h1").inner_text().startswith("When it fails")


def test_one_goes_from_notebook_to_notebook_and_opens_what_is_folded(page):
    page.goto((SITE / "index.html").as_uri())
    page.locator(".sidebar-tree").get_by_role("link", name=re.compile("^00 ")).click()
    first = page.locator("h1").inner_text()
    page.locator(".related-pages .next-page").click()
    assert page.locator("h1").inner_text() != first
    folded = page.locator("details.hide").first
    code = folded.locator("pre")
    assert not code.is_visible()
    folded.locator("summary").click()
    assert code.is_visible()


def test_figures_and_widgets_are_pictures_with_words_that_turn_dark_with_the_page(page):
    page.goto((SITE / "notebooks/00_start_here.html").as_uri())
    pictures = page.locator(".cell_output img")
    assert pictures.last.get_attribute("src").startswith("data:image/png")
    assert all(len(alt) > 20 for alt in pictures.evaluate_all("all => all.map(i => i.alt)"))
    assert page.get_by_text("VBox(").count() == 0
    filters = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        filters.append(pictures.last.evaluate("i => getComputedStyle(i).filter"))
    assert filters[0] == "none" and filters[1].startswith("invert")


def test_one_changes_the_language_and_finds_a_korean_word_before_its_particle(page):
    page.goto((SITE / "notebooks/03_padding_buckets.html").as_uri())
    page.get_by_role("link", name="한국어").click()
    assert page.locator("html").get_attribute("lang") == "ko"
    field = page.get_by_role("textbox").first
    field.fill("배치")
    field.press("Enter")
    found = page.locator("#search-results li")
    found.nth(3).wait_for()
    page.go_back()
    page.get_by_role("link", name="English").click()
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.url.endswith("html/notebooks/03_padding_buckets.html")


@pytest.mark.parametrize("folder", ["", "ko/"])
def test_the_cheat_sheet_prints_on_one_page_of_a4_at_ten_points(page, folder):
    page.goto((SITE / f"{folder}notebooks/CHEATSHEET.html").as_uri())
    pdf = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    (box,) = re.findall(rb"/MediaBox\s*\[([^\]]*)\]", pdf)
    assert [round(float(number)) for number in box.split()] == [0, 0, 595, 842]  # points
    page.emulate_media(media="print")
    size = page.locator("article li").first.evaluate("e => getComputedStyle(e).fontSize")
    assert float(size.removesuffix("px")) == pytest.approx(10 * 96 / 72, abs=0.1)
