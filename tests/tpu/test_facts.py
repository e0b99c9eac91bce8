"""Every row of facts about TPUs has its source and the month in which it was read there."""

import re

import pytest

from helpers.tpu.facts import facts
from helpers.tpu.runtimes import BASE_IMAGES
from helpers.tpu.zones import OFFERS, PAGE
from tpu_preflight.chips.hardware import CHIPS, slice_of

FILES = ("runtimes.toml", "zones.toml")


def unsourced(tables):
    """Rows without an address (or the package index) or a month."""
    rows = [row for x in tables.values() for row in (x if isinstance(x, tuple) else [x])]
    month = r"20\d\d-(0[1-9]|1[0-2])"
    return [
        row
        for row in rows
        if not re.search(r"https://\w|package index", row.get("source", ""))
        or not re.fullmatch(month, row.get("checked", ""))
    ]


@pytest.mark.parametrize("file", FILES)
def test_every_row_has_its_source_and_month(file):
    assert facts(file) and unsourced(facts(file)) == []


@pytest.mark.parametrize("lost", [{"source": ""}, {"source": "somewhere"}, {"checked": "2026-13"}])
def test_a_row_without_source_or_month_is_refused(lost):
    row = {"source": PAGE, "checked": "2026-11"}
    assert unsourced({"v9": row}) == []
    assert unsourced({"v9": row | lost}) == unsourced({"offers": (row, row | lost)}) == [row | lost]
    missing = {key: value for key, value in row.items() if key not in lost}
    assert unsourced({"v9": missing}) == [missing]


def test_the_tables_speak_of_the_same_chips():
    sizes = {size for offer in OFFERS for size in offer.sizes}
    assert {slice_of(size).name for size in sizes} == sizes
    assert {offer.chip for offer in OFFERS} == set(CHIPS) == set(BASE_IMAGES)
    assert set(facts("runtimes.toml")["pjrt"]["chips"]) <= set(CHIPS)
