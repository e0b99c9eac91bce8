"""Before any test: the settings that TensorFlow reads while it is imported."""

import os

from helpers import runtime

os.environ.update(runtime.ENVIRONMENT)
