import itertools
import os
import pathlib
import tempfile

import pytest

from helpers import runtime

runtime.setup()  # before TensorFlow is imported
_cache = tempfile.TemporaryDirectory()  # of datasets, which reads its variable when imported
os.environ["HF_DATASETS_CACHE"] = _cache.name

from helpers.text import corpus  # noqa: E402


@pytest.fixture(scope="session")
def texts():
    """Korean and English paragraphs in turn."""
    korean, english = [corpus.read(pathlib.Path(path)) for path in corpus.shipped().values()]
    pairs = zip(korean, english, strict=True)
    return list(itertools.chain.from_iterable(pairs))[:600]
