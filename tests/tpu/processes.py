"""Processes that a test starts: none of them outlives it."""

import contextlib
import os
import signal
import subprocess
import sys

from conventions import ROOT

from helpers.base.settings import ENVIRONMENT


@contextlib.contextmanager
def child(script, *arguments, environment=None):
    """Run Python in another process, which ends with the block, and so do those it forked."""
    with subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT | (environment or {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def printed(script, *arguments, environment=None):
    """What a script prints that ends well."""
    with child(script, *arguments, environment=environment) as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out
