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


def test_no_stored_notebook_holds_a_credential():
    assert [path.name for path in NOTEBOOKS if LOOKS_SECRET.search(path.read_text("utf-8"))] == []


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
    assert LOOKS_SECRET.search(json.dumps(notebook))
