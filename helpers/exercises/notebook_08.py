"""The exercises of notebook 08, the preflight."""

import contextlib
import pathlib
import re

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, find, returned
from tpu_preflight.errors import PreflightError
from tpu_preflight.subprocess_run import run_in_subprocess


def _check_ready(answer: object) -> str:
    numbers = tf.data.Dataset.range(150, output_type=tf.int32)
    reviews = numbers.map(lambda at: {"text": "", "ids": 1 + tf.range(at % 40 + 1), "label": at})
    given = returned(answer(reviews, 32))
    kinds = [x.dtype for x in tf.nest.flatten(getattr(given, "element_spec", ()))]
    if len(kinds) != 2 or tf.string in kinds or not isinstance(given.element_spec, tuple):
        raise Wrong("Return a tf.data.Dataset of pairs (ids, label), without text.")
    ids, labels = zip(*given.as_numpy_iterator(), strict=True)
    if {len(some) for some in ids} != {64}:
        raise Wrong(f"A batch has {len(ids[-1])} rows instead of 64.")
    if (shape := (*given.element_spec[0].shape,)) != (64, 32):
        raise Wrong(f"From the specification the ids are {shape}, not (64, 32): fix both sizes.")
    at, place = np.ogrid[:128, 1:33]
    expected = np.where(place <= at % 40 + 1, place, 0)
    if not np.array_equal(np.c_[np.concatenate(ids), np.hstack(labels)], np.c_[expected, at]):
        raise Wrong("Rows must keep order and label: the first 32 ids, then zeros where it ends.")
    return "One shape, 8 rows for each replica, and nothing that a TPU can't take."


def _check_my_model(answer: pathlib.Path) -> str:
    # Comments of the file that is given are in the learner's language.
    texts = answer.read_text("utf-8"), find("08-2").stub.partition("py\n")[2]
    if len({re.sub(r'""".*"""|#.*|\s', "", text) for text in texts}) == 1:
        raise NotImplementedError("08-2")
    try:
        with contextlib.chdir(answer.parent):
            report = run_in_subprocess(f"{answer.stem}:build", ["v5e-8"])
    except PreflightError as error:
        raise Wrong(f"{error.what} {error.why}") from error
    if left := [item for state in ("fail", "warn", "not checked") for item in report.find(state)]:
        raise Wrong(f"{len(left)} to fix or to check, the first: {left[0]!r}")
    if not all(e.rows and e.flops / e.rows > 25_000 for e in report.estimates):
        raise Wrong("It is ready, but hardly anything is computed: layers are gone.")
    return "Ready for a v5e-8, as far as a machine without a TPU can tell."
