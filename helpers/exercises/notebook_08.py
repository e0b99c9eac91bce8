"""The exercises of notebook 08, the preflight."""

import contextlib
import pathlib
import re

import numpy as np
import tensorflow as tf

from helpers.exercises import Wrong, find, returned
from tpu_preflight.errors import PreflightError
from tpu_preflight.subprocess_run import run_in_subprocess

LEAST_WORK = 25_000  # operations for each row that the model of the stub does at least


def _review(number: tf.Tensor) -> dict[str, object]:
    """Make a review of 1 to 40 ids: 1, 2, 3, …; its label is its number."""
    return {"text": "", "ids": 1 + tf.range(number % 40 + 1), "label": number}


def _check_ready(answer: object) -> str:
    reviews = tf.data.Dataset.range(150, output_type=tf.int32).map(_review)
    batches = returned(answer(reviews, 32))
    spec = getattr(batches, "element_spec", ())
    dtypes = [part.dtype for part in tf.nest.flatten(spec)]
    if len(dtypes) != 2 or tf.string in dtypes or not isinstance(spec, tuple):
        raise Wrong("Return a tf.data.Dataset of pairs (ids, label), without text.")
    ids, labels = zip(*batches.as_numpy_iterator(), strict=True)
    for batch in ids:
        if len(batch) != 64:
            raise Wrong(f"A batch has {len(batch)} rows instead of 64.")
    shape = tuple(spec[0].shape)
    if shape != (64, 32):
        raise Wrong(f"From the specification the ids are {shape}, not (64, 32): fix both sizes.")
    # Of 150 reviews, two batches of 64; the id at position n is n.
    number, position = np.ogrid[:128, 1:33]
    expected_ids = np.where(position <= number % 40 + 1, position, 0)
    same_ids = np.array_equal(np.concatenate(ids), expected_ids)
    if not same_ids or not np.array_equal(np.hstack(labels), number[:, 0]):
        raise Wrong("Rows must keep order and label: the first 32 ids, then zeros where it ends.")
    return "One shape, 8 rows for each replica, and nothing that a TPU can't take."


def _program(source: str) -> str:
    """Leave out comments, docstrings and white space: they are in the learner's language."""
    return re.sub(r'""".*"""|#.*|\s', "", source)


def _check_my_model(answer: pathlib.Path) -> str:
    stub = find("08-2").stub.partition("py\n")[2]
    if _program(answer.read_text("utf-8")) == _program(stub):
        raise NotImplementedError("08-2")
    try:
        with contextlib.chdir(answer.parent):
            report = run_in_subprocess(f"{answer.stem}:build", ["v5e-8"])
    except PreflightError as error:
        raise Wrong(f"{error.what} {error.why}") from error
    # What couldn't be checked isn't ready either.
    problems = []
    for state in ("fail", "warn", "not checked"):
        problems += report.find(state)
    if problems:
        raise Wrong(f"{len(problems)} to fix or to check, the first: {problems[0]!r}")
    # A model without its layers would be ready as well.
    for estimate in report.estimates:
        if not estimate.rows or estimate.flops / estimate.rows <= LEAST_WORK:
            raise Wrong("It is ready, but hardly anything is computed: layers are gone.")
    return "Ready for a v5e-8, as far as a machine without a TPU can tell."
