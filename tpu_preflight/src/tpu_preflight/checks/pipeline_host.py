"""Check 3: what in the input pipeline needs this machine: Python, and files on its disk?"""

import pathlib

import tensorflow as tf

from tpu_preflight.context import Context
from tpu_preflight.report import Item, finding
from tpu_preflight.subjects import pipeline


def check(context: Context) -> list[Item]:
    """Look for Python and for files in the dataset's own functions."""
    dataset = context.subject.dataset
    if dataset is None:
        return []
    key = "python_on_a_node" if context.is_node else "python"
    items = []
    for what, place in pipeline.python_in(dataset):
        items.append(finding(3, key, what=what, where=place))
    if not items:
        items.append(finding(3, "no_python"))
    return [*items, _files(dataset, context.is_node)]


def _files(dataset: tf.data.Dataset, is_node: bool) -> Item:
    files = pipeline.files_of(dataset)
    if files is None:
        return finding(3, "no_files")
    # A name with :// is in a bucket, or elsewhere that a TPU can reach.
    on_disk = [name for name in files if "://" not in name]
    if on_disk:
        key = "local_on_a_node" if is_node else "local"
        return finding(3, key, count=len(on_disk), file=pathlib.Path(on_disk[0]).name)
    in_bucket = [name for name in files if name.startswith("gs://")]
    return finding(3, "remote" if in_bucket else "unknown_files", count=len(in_bucket))
