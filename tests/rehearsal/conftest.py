"""One embedded storage for each file of tests; each test has a bucket of its own in it."""

import pytest

from helpers.rehearsal.storage import embedded_gcs


@pytest.fixture(scope="module")
def gs():
    with embedded_gcs() as running:
        yield running
