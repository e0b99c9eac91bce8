"""``python -m tpu_preflight`` is the command ``tpu-preflight``."""

import sys

if not sys.flags.safe_path:
    del sys.path[0]  # the current folder, where a json.py would hide Python's

from tpu_preflight.command import main

sys.exit(main())
