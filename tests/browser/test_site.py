"""The course as pages, as `make site` writes them, opened from the disk as a person opens them."""

import re

import pytest
from conftest import ROOT

pytestmark = pytest.mark.xdist_group("site")

SITE = ROOT / "build/site/html"
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))
SCREENS = {"light": {"width": 1280, "height": 1000}, "dark": {"width": 390, "height": 844}}


@pytest.mark.parametrize("scheme", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_it_asks_the_network_for_nothing_and_a_phone_scrolls_it_one_way_only(name, scheme, browser):
    page = browser.new_page(viewport=SCREENS[scheme], color_scheme=scheme)
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto((SITE / name).as_uri())
    page.wait_for_timeout(300)
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert said == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS[scheme]["width"]
    pictures = page.locator("article img").evaluate_all("all => all.map(i => i.alt)")
    assert all(len(alt) > 10 for alt in pictures), pictures
    page.close()


def test_a_symptom_is_found_by_the_words_of_its_message(page):
    page.goto((SITE / "notebooks/00_start_here.html").as_uri())
    field = page.get_by_role("textbox", name="Search")
    field.fill("exceeded scoped vmem limit")
    field.press("Enter")
    page.locator("#search-results").get_by_role("link", name="When it fails").first.click()
    assert page.locator("h1").inner_text().startswith("When it fails")
    assert page.get_by_text("exceeded scoped vmem limit").count()


def test_one_changes_the_language_and_finds_a_korean_word_before_its_particle(page):
    page.goto((SITE / "notebooks/03_padding_buckets.html").as_uri())
    page.get_by_role("link", name="한국어").click()
    assert page.locator("html").get_attribute("lang") == "ko"
    field = page.get_by_role("textbox").first
    field.fill("배치")
    field.press("Enter")
    page.locator("#search-results li").nth(3).wait_for()
    page.go_back()
    page.get_by_role("link", name="English").click()
    assert page.url.endswith("html/notebooks/03_padding_buckets.html")


@pytest.mark.parametrize("folder", ["notebooks", "ko/notebooks/ko"])
def test_the_cheat_sheet_prints_on_one_page_of_a4(page, folder):
    page.goto((SITE / folder / "CHEATSHEET.html").as_uri())
    pdf = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
