"""All addresses outside the course are on one page, well formed."""

import json
import urllib.parse

import pytest
from cases import cases
from conventions import ROOT, repository
from typer.testing import CliRunner

from helpers.course import upkeep
from helpers.course.commands.app import app

ADDRESSES = list(upkeep.links())


@pytest.mark.parametrize(("text", "found"), cases(__file__, "addresses"))
def test_addresses_are_found_without_the_sentence_around_them(text, found):
    assert upkeep.addresses(text) == found


def test_comments_and_docstrings_speak_and_strings_of_code_do_not():
    said = upkeep._speech(
        '"""See https://a.invalid."""\n'
        "X = 'https://b.invalid'  # https://c.invalid\n"
        "class C:\n"
        "    async def f(self):\n"
        '        """https://d.invalid"""\n'
    )
    assert sorted(upkeep.addresses(said)) == [f"https://{x}.invalid" for x in "acd"]


def test_addresses_are_well_formed_and_each_is_written_in_one_way():
    for address in ADDRESSES:
        parts = urllib.parse.urlsplit(address)
        assert parts.scheme == "https" and address.isascii(), address
        assert "." in parts.hostname and parts.hostname == parts.netloc, address
        assert address[-1] not in ".,:;)*_'\"" and "//" not in parts.path, address
        assert urllib.parse.quote(urllib.parse.unquote(parts.path)) == parts.path, address
    plain = [address.lower().rstrip("/") for address in ADDRESSES]
    assert sorted({x for x in plain if plain.count(x) > 1}) == []


def test_the_page_is_up_to_date():
    kept = (ROOT / upkeep.LINKS).read_text("utf-8")
    assert upkeep.links_page() == kept, "tpu-course links"
    assert list(upkeep.months(kept)) == ADDRESSES
    assert min(upkeep.months(kept).values()) > "2020" and "Whether an address answers" in kept
    # The tables of facts are among the sources.
    assert {f"https://cloud.google.com/tpu/docs/{x}" for x in ("v5e", "jax-pods")} <= {*ADDRESSES}


@pytest.fixture
def course(tmp_path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "helpers").mkdir()
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text("utf-8"))
    cell = {"source": ["a https://b.invalid/1,\n", f"{repository()}/issues https://a.invalid."]}
    (tmp_path / "notebooks/02_x.ipynb").write_text(json.dumps({"cells": [cell, cell]}))
    (tmp_path / "README.md").write_text("[x](https://b.invalid/1)")
    (tmp_path / "helpers/x.py").write_text("# https://b.invalid/1\n")
    return tmp_path


def test_an_address_keeps_its_month_and_a_new_one_gets_this_one(course):
    assert upkeep.write_links(course) == 2
    page = course / upkeep.LINKS
    both = "[02](02_x.ipynb), [README](../README.md), `helpers/x.py`"
    this = upkeep.datetime.date.today().isoformat()[:7]
    assert page.read_text("utf-8").splitlines()[-2:] == [
        f"| <https://a.invalid> | [02](02_x.ipynb) | {this} |",
        f"| <https://b.invalid/1> | {both} | {this} |",
    ]
    page.write_text(page.read_text("utf-8").replace(this, "2025-01"))
    (course / "README.md").write_text("[x](https://c.invalid)")
    upkeep.write_links(course)
    assert upkeep.months(page.read_text("utf-8")) == {
        "https://a.invalid": "2025-01",
        "https://b.invalid/1": "2025-01",
        "https://c.invalid": this,
    }


def test_an_address_of_a_fact_has_the_month_of_its_row(course):
    row = '[[x.rows]]\nsource = "see https://{}.invalid"\nchecked = "2025-0{}"\n'
    (course / "helpers/x.toml").write_text("".join(row.format(*x) for x in ("d4", "e3", "d2")))
    page = upkeep.links_page(course)
    for x, month in ("d", "2025-02"), ("e", "2025-03"):
        assert f"| <https://{x}.invalid> | `helpers/x.toml` | {month} |" in page


def test_the_command_says_how_many(monkeypatch):
    monkeypatch.setattr(upkeep, "write_links", lambda: 7)
    assert CliRunner().invoke(app, ["links"]).stdout == "7 addresses in notebooks/LINKS.md\n"
