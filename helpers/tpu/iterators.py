"""Iterators of tf.data that end at once, for a rehearsal on this machine's devices."""

from typing import Any


def disable_autotuning() -> bool:
    """Switch tf.data's autotuning off for every dataset that is iterated from now on.

    An iterator that goes away waits for its autotuning thread, up to a minute (TensorFlow 2.20,
    2026-11; notebooks/APPENDIX.md). Under a strategy each replica has its own iterator, made by
    TensorFlow from datasets that never see your ``tf.data.Options``; so this replaces the private
    method through which they all get their options. Results don't change.

    Gives whether it could be done: another TensorFlow may not have that method.
    """
    from tensorflow.python.data.ops import dataset_ops, options

    if not hasattr(dataset_ops.DatasetV2, "_apply_debug_options"):
        return False

    def without_autotuning(dataset: Any) -> Any:
        chosen_options = options.Options()
        chosen_options.autotune.enabled = False
        return dataset_ops._OptionsDataset(dataset, chosen_options)

    dataset_ops.DatasetV2._apply_debug_options = without_autotuning
    return True
