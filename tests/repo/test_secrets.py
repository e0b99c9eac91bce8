"""No notebook is stored with a credential in it."""

import json
import re

import pytest
from conventions import NOTEBOOKS

LOOKS_SECRET = re.compile(
    r"ya29\.[\w-]{10}|AIza[\w-]{35}|\b1//0[\w-]{20}|GOCSPX-[\w-]{10}|GOOG1[A-Z0-9]{20}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|\"private_key\\*\":|X-Goog-Signature=[0-9a-f]{20}"
    r"|\bhf_[A-Za-z0-9]{30}|\bgh[pousr]_[A-Za-z0-9]{30}|\bAKIA[A-Z0-9]{16}"
    r"|\beyJ[\w-]{15,}\.[\w-]{10,}\.|[Bb]earer [\w.~+/-]{20}|\bxox[abp]-[\w-]{10}"
)


def words(notebook: dict) -> str:
    """Return `notebook` as text, without its pictures: enough base64 holds any four letters."""

    def without_pictures(found: dict) -> dict:
        return {name: value for name, value in found.items() if name != "image/png"}

    return json.dumps(json.loads(json.dumps(notebook), object_hook=without_pictures))


def test_no_stored_notebook_holds_a_credential():
    stored = {path.name: json.loads(path.read_text("utf-8")) for path in NOTEBOOKS}
    assert [name for name, found in stored.items() if LOOKS_SECRET.search(words(found))] == []


@pytest.mark.parametrize(
    "planted",
    [
        "ya29.THIS-IS-SECRET",
        "-----BEGIN RSA PRIVATE KEY-----",
        json.dumps(json.dumps({"private_key": "x"})),
        "Authorization: Bearer " + "a" * 24,
        "hf_" + "A" * 34,
        "AIza" + "B" * 35,
        "eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJhYmM.sig",
    ],
)
def test_that_scan_would_find_one(planted):
    notebook = {"cells": [{"outputs": [{"text": [f"token: {planted}\n"]}]}]}
    assert LOOKS_SECRET.search(words(notebook))


def test_the_letters_of_a_picture_are_no_credential():
    picture = {"data": {"image/png": "AIza" + "B" * 35}}
    assert not LOOKS_SECRET.search(words({"cells": [{"outputs": [picture]}]}))
