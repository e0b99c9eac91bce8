"""Each sentence that could be false was attacked, and the list of attacks fits the text."""

import json

import claims
import pytest
from cases import cases
from claims import Claim

# Places that nobody has attacked yet, sentence by sentence.
NOT_YET: set[str] = set()

LISTED = claims.read()


@pytest.mark.parametrize("place", claims.places())
def test_every_claim_of_a_place_was_attacked(place):
    broken = claims.problems(place, LISTED.get(place, []))
    if place in NOT_YET:
        assert broken, "all is attacked: take it out of NOT_YET"
    else:
        assert broken == [], f"python tests/repo/claims.py {place}; then see its docstring"


def test_the_list_names_only_places_that_there_are():
    assert {*LISTED} | NOT_YET <= {*claims.places()}


@pytest.mark.parametrize(("markdown", "sentences"), cases(__file__, "sentences"))
def test_sentences_are_found_as_by_hand(markdown, sentences):
    assert list(claims.claims(markdown)) == sentences


def test_a_changed_sentence_keeps_its_attack_until_somebody_looks():
    old = [Claim("02", text, "cell", "holds") for text in ("It never stops.", "All is 3.", "No.")]
    new = claims.renew("02", ["Two.", "No.", "It nearly never stops."], old)
    assert new == [
        Claim("02", "Two."),
        old[2],
        Claim("02", "It nearly never stops.", "changed: cell", "holds"),
    ]
    again = claims.renew("02", ["No.", "It almost never stops."], new)
    assert again == [old[2], Claim("02", "It almost never stops.", "changed: cell", "holds")]


def test_the_list_is_read_as_it_was_written(monkeypatch, tmp_path):
    monkeypatch.setattr(claims, "LIST", tmp_path / "claims.tsv")
    assert claims.read() == {}
    listed = {"00": [Claim("00", 'Say "no".', "cell", "holds")], "01": [Claim("01", "All.")]}
    claims.write(listed)
    assert claims.read() == listed


def markdown(text):
    return {"id": "text", "cell_type": "markdown", "source": text}


def code(name, source="", outputs=()):
    return {"id": name, "cell_type": "code", "source": source, "outputs": [*outputs]}


@pytest.fixture
def course(monkeypatch, tmp_path):
    """Two notebooks: in 00 the code after the text shows something, in 01 none next to it."""
    notebooks = {
        "00": [code("a"), markdown("All hold."), markdown("More."), code("b", "", ["3"])],
        "01": [code("c", "assert x"), code("d"), markdown("Two."), code("e"), code("f", "", "3")],
    }
    for number, cells in notebooks.items():
        (tmp_path / f"{number}_x.ipynb").write_text(json.dumps({"cells": cells}), "utf-8")
    found = {number: tmp_path / f"{number}_x.ipynb" for number in notebooks}
    monkeypatch.setattr(claims, "places", lambda: found)
    claims.cells.cache_clear()
    yield
    claims.cells.cache_clear()


@pytest.mark.parametrize(("how", "words"), cases(__file__, "bad_attacks"))
def test_a_bad_attack_is_seen(course, how, words):
    (broken,) = claims.problems("00", [Claim("00", "All hold.", how, "holds")])
    assert words in broken and "All hold." in broken


def test_what_does_not_fit_the_text_is_seen(course):
    assert claims.problems("00", []) == ["missing: All hold."]
    good = Claim("00", "All hold.", "cell", "holds")
    assert claims.problems("00", [good, Claim("00", "Gone.", "cell")]) == ["stale: Gone."]
    assert claims.problems("00", [good, good]) == ["not in the order of the text, or twice"]
    assert "no output" in claims.problems("01", [Claim("01", "Two.", "cell", "holds")])[0]
    assert "no such result" in claims.problems("00", [Claim("00", "All hold.", "cell")])[0]
    assert claims.problems("00", [Claim("00", "All hold.", "instruction")]) == []
