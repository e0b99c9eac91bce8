"""The pages that a run and the commands write, opened from the disk as a person opens them."""

import pathlib
import subprocess
import urllib.parse

import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import PYTHON, ROOT, SHOTS, copied, environment, watched

pytestmark = pytest.mark.xdist_group("pages")

# Two short notebooks: what the others add is their content.
COMMANDS = (("run", "00", "06", "--no-open"),)
RUN = ("00_start_here", "06_bert_data")
PAGES = [f"{stem}.html" for stem in ("index", *RUN)]
NOT_RUN = {path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")} - set(RUN)
PHONE = {"width": 360, "height": 740}


@pytest.fixture(scope="session")
def build(tmp_path_factory):
    folder = copied(tmp_path_factory.mktemp("course"))
    for command in COMMANDS:
        own = environment() | {"CI": "1", "XDG_DATA_HOME": str(folder / "share")}
        subprocess.run([PYTHON, "-m", "helpers", *command], cwd=folder, env=own, check=True)
    return folder / "build"


@pytest.fixture(params=["light", "dark"])
def shown(request, browser):
    """A page in one of the two colour schemes; every request and complaint of it is kept."""
    yield from watched(browser, {"width": 1280, "height": 1000}, request.param)


def test_every_page_is_looked_at(build):
    assert {path.name for path in build.glob("*.html")} == set(PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_nothing_keeps_a_person_from_reading_it_and_it_asks_for_nothing(build, shown, name):
    shown.goto((build / name).as_uri())
    shown.wait_for_timeout(300)
    assert [url for url in shown.asked[1:] if not url.startswith("data:")] == []
    assert shown.said == []
    SHOTS.mkdir(parents=True, exist_ok=True)
    shown.screenshot(path=SHOTS / f"{name}-{shown.scheme}.jpeg", type="jpeg", quality=70)
    found = Axe().run(shown)
    broken = [(rule["id"], rule["nodes"][0]["html"]) for rule in found.response["violations"]]
    assert broken == []


@pytest.mark.parametrize("name", PAGES)
def test_a_phone_scrolls_it_one_way_only(build, shown, name):
    shown.set_viewport_size(PHONE)
    shown.goto((build / name).as_uri())
    shown.screenshot(path=SHOTS / f"{name}-{shown.scheme}-phone.jpeg", type="jpeg", quality=70)
    wide = shown.evaluate(
        """width => [...document.querySelectorAll("body *")].filter(e =>
             e.getBoundingClientRect().right > width + 1 &&
             !e.closest(".input_area, .output, pre, .cell table")
           ).map(e => e.outerHTML.slice(0, 120))""",
        PHONE["width"],
    )
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], wide[:5]


@pytest.mark.parametrize("name", PAGES)
def test_its_links_lead_somewhere(build, page, name):
    page.goto((build / name).as_uri())
    links = page.eval_on_selector_all("a[href]", "found => found.map(a => a.href)")
    for link in set(links):
        if not link.startswith("https://"):
            path = pathlib.Path(urllib.parse.unquote(urllib.parse.urlsplit(link).path))
            later = path.suffix == ".html" and path.stem in NOT_RUN  # it comes with its run
            assert path.is_file() or later, link


def test_the_map_leads_to_a_notebook_and_back(build, page):
    page.goto((build / "index.html").as_uri())
    page.get_by_role("link", name="Why does a program").click()
    assert page.locator("h1").first.inner_text().startswith("Why does a program")
    page.get_by_role("link", name="Map of the course").click()
    assert page.locator("h1").inner_text() == "TensorFlow on TPU"
