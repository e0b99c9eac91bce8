import itertools
import os
import pathlib
import tempfile

import pytest

from helpers import runtime

runtime.setup()  # before TensorFlow is imported
_cache = tempfile.TemporaryDirectory()  # of datasets, which reads its variable when imported
os.environ["HF_DATASETS_CACHE"] = _cache.name

from record_files import TOKENIZER  # noqa: E402

from helpers.text import corpus, records  # noqa: E402


@pytest.fixture(scope="session")
def hugging_face():
    return corpus.load_tokenizer()


@pytest.fixture(scope="session")
def texts():
    """Korean and English paragraphs in turn."""
    korean_path, english_path = corpus.shipped().values()
    korean = corpus.read(pathlib.Path(korean_path))
    english = corpus.read(pathlib.Path(english_path))
    pairs = zip(korean, english, strict=True)
    return list(itertools.chain.from_iterable(pairs))[:600]


@pytest.fixture(scope="session")
def written(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    return records.write(texts, folder, TOKENIZER, sequence_length=64, shards=5)
