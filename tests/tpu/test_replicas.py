"""Logical replicas that compute together."""

import pytest
import tensorflow as tf
from processes import printed

from helpers.tpu.replicas import replicas

pytestmark = pytest.mark.slow

TWO = """
import tensorflow as tf
from helpers.tpu.replicas import replicas

strategy = replicas(2)
assert replicas(2) is strategy

@tf.function
def total():
    def one():
        context = tf.distribute.get_replica_context()
        mine = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0
        return context.all_reduce("SUM", mine)
    return strategy.experimental_local_results(strategy.run(one))

print([float(x) for x in total()], len(set(strategy.extended.worker_devices)))
try:
    replicas(3)
except RuntimeError as error:
    print(error)
"""


def test_replicas_are_devices_with_a_real_all_reduce_and_one_number_for_a_process():
    first, refused = printed(TWO).splitlines()
    assert first == "[3.0, 3.0] 2"
    assert "cannot be modified after being initialized" in refused


def test_replicas_after_tensorflow_took_its_devices_are_refused():
    tf.config.list_logical_devices()
    with pytest.raises(RuntimeError, match="cannot be modified after being initialized"):
        replicas(2)
