"""The course as pages, as `make site` writes them, opened from the disk as a person opens them."""

import re
import tomllib

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import ROOT

from helpers.display.explain import explain

pytestmark = pytest.mark.xdist_group("site")

SITE = ROOT / "build/site/html"
PAGES = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html"))
QUESTIONS = sorted((ROOT / "helpers/exercises").glob("notebook_*.toml"))
SCREENS = {"light": {"width": 1280, "height": 1000}, "dark": {"width": 390, "height": 844}}


@pytest.mark.parametrize("scheme", SCREENS)
@pytest.mark.parametrize("name", PAGES)
def test_it_asks_the_network_for_nothing_and_a_phone_scrolls_it_one_way_only(name, scheme, browser):
    page = browser.new_page(viewport=SCREENS[scheme], color_scheme=scheme)
    addresses = []
    messages = []
    page.on("request", lambda request: addresses.append(request.url))
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto((SITE / name).as_uri())
    page.wait_for_timeout(300)
    assert [url for url in addresses if not url.startswith(("file:", "data:"))] == []
    assert messages == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS[scheme]["width"]
    pictures = page.locator("article img").evaluate_all("all => all.map(i => i.alt)")
    assert all(len(alt) > 10 for alt in pictures), pictures
    page.close()


@pytest.mark.parametrize("folder", ["", "ko"])
def test_the_first_page_has_a_card_of_each_notebook_with_its_picture_or_print(page, folder):
    page.goto((SITE / folder / "index.html").as_uri())
    cards = page.locator(".cards a")
    assert {(SITE / folder / c.get_attribute("href")).is_file() for c in cards.all()} == {True}
    pictures = cards.locator("img").evaluate_all("all => all.map(i => i.naturalWidth && i.alt)")
    assert (len(pictures), cards.locator("pre").count()) == (10, 3)
    assert all(pictures)


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
    page.locator("#search-results .context").nth(3).wait_for()
    page.go_back()
    page.get_by_role("link", name="English").click()
    assert page.url.endswith("html/notebooks/03_padding_buckets.html")


@pytest.mark.parametrize(
    ("words", "page_title", "anchor"),
    [
        ("bucket boundaries", "How do I feed text of every length?", ""),
        ("preemption", "Glossary", "#preemption"),
        ("steps_per_execution", "How do I use a TPU VM (Cloud, Colab, Kaggle)?", "#steps-per-exec"),
    ],
)
def test_a_search_leads_to_the_section_that_has_the_words(page, words, page_title, anchor):
    page.goto(f"{(SITE / 'search.html').as_uri()}?q={words}")
    results = page.locator("#search-results li:has(.context)")
    results.first.wait_for()
    page.wait_for_timeout(500)
    titles = results.locator("a").all_inner_texts()
    course = [title for title in titles if not title.startswith("Changelog")]
    assert titles[: len(course)] == course  # the Changelog comes last
    result = results.filter(has=page.get_by_role("link", name=page_title)).first
    assert "#" in result.get_by_role("link").get_attribute("href")
    assert anchor in result.get_by_role("link").get_attribute("href")
    shown = result.locator(".context").inner_text().lower()
    assert any(word in shown for word in words.split())
    result.get_by_role("link").click()
    target = page.url.partition("#")[2]
    page.locator(f"section[id='{target}']").wait_for()


@pytest.mark.parametrize("name", ["03_padding_buckets", "ko/notebooks/ko/03_padding_buckets"])
def test_a_folded_cell_opens_by_its_own_title(page, name):
    folder = "" if name.startswith("ko/") else "notebooks/"
    page.goto((SITE / f"{folder}{name}.html").as_uri())
    summaries = page.locator("details.above-input summary").all_inner_texts()
    source = ROOT / f"{folder}{name.removeprefix('ko/')}.ipynb"
    titles = re.findall(r"# @title (.*?)\\n", source.read_text("utf-8"))
    assert len(titles) > 5
    assert [summary.strip() for summary in summaries] == titles


def test_the_first_link_to_a_word_in_a_section_says_what_it_means(page):
    page.goto((SITE / "notebooks/05_tpu_vm.html").as_uri())
    word = page.locator("a.word", has_text="scope").first
    meaning = word.get_attribute("title")
    assert len(meaning) > 20
    assert not re.search(r"[\[\]`*]", meaning)
    tip = "word => getComputedStyle(word, '::after').content"
    assert word.evaluate(tip) == "none"
    page.keyboard.press("Tab")  # from here on a focus shows
    word.focus()
    assert word.evaluate(tip) == f'"{meaning}"'
    per_section = page.locator("section").evaluate_all(
        """all => all.map(s => [...s.querySelectorAll("a.word")]
             .filter(a => a.closest("section") === s).map(a => a.hash))"""
    )
    for anchors in per_section:
        assert len(set(anchors)) == len(anchors)


@pytest.mark.parametrize("folder", ["notebooks", "ko/notebooks/ko"])
def test_the_cheat_sheet_prints_on_one_page_of_a4(page, folder):
    page.goto((SITE / folder / "CHEATSHEET.html").as_uri())
    pdf = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1


@pytest.mark.parametrize("path", QUESTIONS, ids=lambda path: path.stem)
def test_a_question_is_answered_by_keyboard_in_the_words_of_check(page, path):
    texts = tomllib.loads(path.read_text("utf-8"))
    questions = {name: text for name, text in texts.items() if "right" in text}
    (url,) = (SITE / "notebooks").glob(f"{path.stem[-2:]}_*.html")
    page.goto(url.as_uri())
    answers = 0
    for text in questions.values():
        answers += 1 + len(text["wrong"])
    assert page.locator(".asked[aria-label^=Question] details").count() == answers
    for name, text in questions.items():
        group = page.get_by_role("group", name=f"Question {name}", exact=True)
        for letter, why in {**text["wrong"], text["right"]: text["because"]}.items():
            summary = group.locator("summary").filter(has_text=f"({letter})")
            card = summary.locator("xpath=..").locator("div")
            assert not card.is_visible()
            summary.press("Enter")
            assert card.locator("p").inner_text() == why.replace("`", "")
            assert card.inner_text().startswith("✓") == (letter == text["right"])


@pytest.mark.parametrize("path", QUESTIONS, ids=lambda path: path.stem)
def test_the_result_below_a_question_waits_for_a_click(path, page):
    (url,) = (SITE / "notebooks").glob(f"{path.stem[-2:]}_*.html")
    page.goto(url.as_uri())
    assert page.locator("details.below-input").count()
    for question in page.locator(".asked[aria-label^=Question]").all():
        # The cells between the question and the next text.
        cell = question.locator("xpath=ancestor::div[contains(@class,'cell ')][1]")
        below = cell.locator("xpath=following-sibling::*[1][self::div[contains(@class,'cell ')]]")
        for output in below.locator(".cell_output").all():
            assert not output.is_visible()
            below.locator("details.below-input > summary").click()
            assert output.is_visible()


@pytest.mark.parametrize("path", [p for p in PAGES if (SITE / p).read_text().count('"dial"')])
def test_a_dial_turns_without_a_kernel_to_what_its_words_say(page, path):
    page.goto((SITE / path).as_uri())
    for dial in page.locator(".dial").all():
        texts = []
        for choice in dial.get_by_role("radio").all():
            choice.check()
            figure = dial.locator("figure:visible")
            assert figure.count() == 1
            assert figure.locator("svg").bounding_box()["height"] > 80
            texts.append(figure.inner_text())
        assert len(set(texts)) == len(texts) >= 5


def test_what_people_pasted_is_explained_as_by_the_command(page):
    threads = tomllib.loads((ROOT / "tests/display/threads.toml").read_text("utf-8"))
    texts = threads.pop("unrelated") + threads.pop("innocent")
    texts += [row["text"] for row in threads.values()]
    page.goto((SITE / "notebooks/TROUBLESHOOTING.html").as_uri())
    paste = """texts => texts.map(text => {
      const field = document.getElementById("pasted");
      field.value = text;
      field.dispatchEvent(new Event("input"));
      const texts = (box, name) => [...box.querySelectorAll(name)].map(x => x.textContent);
      const told = document.getElementById("told");
      const sections = [...told.querySelectorAll("section")].map(
        x => ["h2", "p:not(.fact) code"].map(y => x.querySelector(y).textContent));
      return [sections, texts(told, ".fact strong"), texts(told, ".fact code")];
    })"""
    for text, (sections, labels, facts) in zip(texts, page.evaluate(paste, texts), strict=True):
        explanation = explain(text)
        # A section's heading begins with the symptom's name.
        for (heading, evidence), match in zip(sections, explanation.matches, strict=True):
            assert heading.startswith(match.symptom.name)
            assert evidence == match.evidence
        expected = {"Line": explanation.unknown, **explanation.facts}
        if explanation:
            expected = explanation.matches[0].facts
        expected = {f"{label}:": fact for label, fact in expected.items() if fact}
        assert dict(zip(labels, facts, strict=True)) == expected


def test_of_five_million_characters_the_beginning_and_the_end_are_searched(page):
    """As the command reads a long log; and no expression is compiled twice."""
    page.goto((SITE / "notebooks/TROUBLESHOOTING.html").as_uri())
    paste = """([beginning, middle, end]) => {
      const field = document.getElementById("pasted");
      const lines = "step 17: loss 2.31\\n".repeat(130_000);
      field.value = [beginning, middle, end].join(`\\n${lines}`);
      let compiled = 0;
      const before = window.RegExp;
      window.RegExp = function (...words) { compiled += 1; return new before(...words); };
      field.dispatchEvent(new Event("input"));
      window.RegExp = before;
      const headings = [...document.querySelectorAll("#told h2")].map(x => x.textContent);
      return [field.value.length, headings.join(), compiled];
    }"""
    said = "ValueError: Please provide a TPU Name to connect to."
    for texts, seen in ((["", "", said], True), ([said, "", ""], True), (["", said, ""], False)):
        length, headings, compiled = page.evaluate(paste, texts)
        assert length > 4_900_000
        assert headings.startswith("The resolver doesn't know which TPU") == seen
    assert compiled < 10


def test_commands_in_a_text_can_be_copied(page):
    """No quotation mark is bent: a shell takes straight ones only."""
    page.goto((SITE / "notebooks/TROUBLESHOOTING.html").as_uri())
    text = page.locator("article").inner_text()
    assert "pip install 'numpy<2'" in text
    assert not set("‘’“”") & set(text)


def test_one_asks_what_a_tpu_takes_by_name_by_error_and_by_notebook(page):
    page.goto((SITE / "notebooks/takes.html").as_uri())
    rows = page.locator("#takes tbody tr:visible")
    every = rows.count()
    assert every > 500
    page.get_by_label("Operation, layer").press_sequentially("TFSwinModel")
    assert rows.count() == 1
    assert "refused" in rows.inner_text()
    page.get_by_label("Operation, layer").fill("sort")
    assert rows.first.locator("strong").inner_text() == "sort"
    assert 0 < rows.count() < 30
    for words, name in (
        ("Input 0 to node `my/ones` with op Fill must be a compile-time constant.", "fill_n"),
        ("notebook 02 boolean_mask", "boolean_mask"),
    ):
        page.get_by_label("Operation, layer").fill(words)
        assert 0 < rows.count() < every / 2
        assert rows.filter(has_text=name).count()
        assert page.get_by_role("status").inner_text() == f"{rows.count()} / {every}"
    page.goto((SITE / "ko/notebooks/ko/takes.html").as_uri())
    page.locator("#wanted").fill("노트북 거부")
    assert 0 < rows.count() < every
    assert "노트북" in rows.last.inner_text()


@pytest.mark.parametrize("scheme", SCREENS)
@pytest.mark.parametrize("name", ["02_xla_rules", "03_padding_buckets", "TROUBLESHOOTING", "takes"])
def test_axe_finds_nothing_serious(name, scheme, browser):
    page = browser.new_page(viewport=SCREENS[scheme], color_scheme=scheme)
    page.goto((SITE / f"notebooks/{name}.html").as_uri())
    page.locator("details").evaluate_all("all => all.forEach(x => { x.name = ''; x.open = true })")
    violations = Axe().run(page, options={"preload": False}).response["violations"]
    serious = []
    for violation in violations:
        if violation["impact"] in ("serious", "critical"):
            serious.append((violation["id"], violation["nodes"][0]["html"]))
    assert serious == []
    page.close()
