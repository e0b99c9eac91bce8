"""Several replicas on one CPU: logical devices with a real all-reduce between them."""

import logging
from typing import TYPE_CHECKING

from helpers.base.errors import CourseError

if TYPE_CHECKING:
    import tensorflow as tf

_strategy: "tf.distribute.MirroredStrategy | None" = None


def check_number(replicas: int) -> None:
    """Refuse fewer than one replica, or fewer than one device in a worker."""
    if replicas < 1:
        raise CourseError(
            f"{replicas} replicas were asked for.",
            "A worker or a strategy has at least one device.",
            "Ask for 1 or more; 8 is what a v2-8 or v3-8 has.",
        )


def replicas(n: int) -> "tf.distribute.MirroredStrategy":
    """Split the CPU into ``n`` logical devices; give a ``MirroredStrategy`` with each as a replica.

    Call it before anything else uses TensorFlow's devices. Asked again for the same number, it
    gives the same strategy, so a cell can run twice.

    Raises:
        CourseError: ``n`` is less than 1, TensorFlow has made its devices already, or this process
            has a strategy of another number of replicas. Two strategies would number their
            collective operations alike and mix them up.
    """
    global _strategy
    import tensorflow as tf

    check_number(n)
    if _strategy is not None:
        if _strategy.num_replicas_in_sync == n:
            return _strategy
        raise CourseError(
            f"This process has a strategy of {_strategy.num_replicas_in_sync} replicas already; "
            f"{n} were asked for.",
            "Both would number their all-reduces from the start, and TensorFlow would mix them up.",
            "Restart the kernel and ask for one number, or use another process.",
        )
    cpu = tf.config.list_physical_devices("CPU")[0]
    devices = [tf.config.LogicalDeviceConfiguration() for _ in range(n)]
    try:
        tf.config.set_logical_device_configuration(cpu, devices)
    except RuntimeError as error:
        raise CourseError(
            f"The CPU can't be split into {n} replicas any more.",
            "TensorFlow made its devices when it first computed something in this process.",
            "Restart the kernel and ask for the replicas in the first cell after the imports.",
        ) from error
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)  # it reports its devices on standard error
    try:
        _strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(n)])
    finally:
        logger.setLevel(level)
    return _strategy
