"""``python -m tpu_preflight`` is the command ``tpu-preflight``."""

import sys

from tpu_preflight.command import main

sys.exit(main())
