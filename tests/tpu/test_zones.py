"""The table of zones: by type, as text and as HTML."""

import pytest

from helpers.tpu.zones import OFFERS, zones
from tpu_preflight.chips.hardware import UnknownAccelerator


def test_zones_by_type():
    assert zones("v4-32").names == ("us-central2-b",)
    assert [offer.sizes for offer in zones("v3-8").offers] == [("v3-8",)]
    assert zones("v5litepod-8") == zones("v5e-8") != zones("v5p-8")
    with pytest.raises(UnknownAccelerator, match="v1-8"):
        zones("v1-8")


def test_shown_with_source_and_month():
    page = "https://cloud.google.com/tpu/docs/regions-zones"
    assert repr(zones("v4-8")) == (
        f"all v4: us-central2-b ({page})\nRead 2026-11; there may be more outside the USA."
    )
    assert "v3-8: us-central1-a" in repr(zones())
    assert zones()._repr_html_().count("<tr>") == len(OFFERS) + 1
