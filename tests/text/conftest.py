import os
import pathlib
import tempfile

import pytest

from helpers import runtime

runtime.setup()  # before TensorFlow is imported
_cache = tempfile.TemporaryDirectory()  # of datasets, which reads its variable when imported
os.environ["HF_DATASETS_CACHE"] = _cache.name

from plain import TOKENIZER  # noqa: E402

from helpers.text import corpus, records  # noqa: E402


@pytest.fixture(scope="session")
def hugging_face():
    return corpus.load_tokenizer()


@pytest.fixture(scope="session")
def texts():
    lines = [corpus.read(pathlib.Path(path)) for path in corpus.shipped().values()]
    return [text for pair in zip(*lines, strict=True) for text in pair][:600]


@pytest.fixture(scope="session")
def written(texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    return records.write(texts, folder, TOKENIZER, sequence_length=64, shards=5)
