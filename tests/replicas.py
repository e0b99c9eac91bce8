"""Several replicas on one CPU: logical devices with a real all-reduce between them."""

import functools

import tensorflow as tf


@functools.cache
def replicas(n: int) -> tf.distribute.MirroredStrategy:
    """Split the CPU into devices, each a replica, as notebooks 05 and 11 do.

    Asked again for the same number, it gives the same strategy: two strategies in a process would
    number their all-reduces alike, and TensorFlow would mix them up.
    """
    parts = [tf.config.LogicalDeviceConfiguration() for _ in range(n)]
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], parts)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(n)])
