"""Before any test: the settings that TensorFlow reads while it is imported."""

import os
import signal

from helpers.base.settings import ENVIRONMENT

os.environ.update(ENVIRONMENT)

# A shell ignores Ctrl-C for what it starts in the background, and so would every process that a
# test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
