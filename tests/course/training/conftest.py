import os
import tempfile

from helpers import runtime

runtime.setup()  # before TensorFlow is imported
_cache = tempfile.TemporaryDirectory()  # of datasets, which reads its variable when imported
os.environ["HF_DATASETS_CACHE"] = _cache.name
