"""Small runs, in this process and in children that can be killed."""

import multiprocessing
import os
import pathlib
import shutil

from helpers.base.folders import Folder
from helpers.bert import pretraining
from helpers.bert.settings import Configuration, Settings, saved_steps

NANO = Configuration(1, 32, 1)
STEPS = 60
SAVE = 2
SETTINGS = Settings(NANO, STEPS, global_batch_size=8, warm_up=5)

# Children are forked from a process that has imported TensorFlow and not yet used it: a start
# without an import, in a process of its own that can be killed.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    ["helpers.bert.pretraining", "helpers.tpu.storage", "helpers.tpu.node"]
)


def train(data, output, settings=SETTINGS, **options):
    """Train; what isn't the subject of the test is small and not compiled."""
    options = {"jit": False, "save_every": SAVE} | options
    return pretraining.run(settings, data, output, **options)


def log(output):
    return pathlib.Path(output, "log.jsonl").read_text()


def saved(output):
    """Steps of the checkpoints, newest first; [0] where there is none."""
    return saved_steps(Folder(output)) or [0]


def copy(folder, tmp_path):
    return pathlib.Path(shutil.copytree(folder, tmp_path / "copy"))


def child(target, *arguments, output=None):
    """Start a function of a test's module in a process of its own."""
    process = FORKS.Process(target=_redirected, args=(output, target, arguments))
    process.start()
    return process


def _redirected(output, target, arguments):
    if output is not None:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
    target(*arguments)


def ended(process, seconds=120):
    process.join(seconds)
    assert process.exitcode is not None, "it hangs"
    return process.exitcode
