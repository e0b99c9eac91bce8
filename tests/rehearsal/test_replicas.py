"""Logical replicas that compute together."""

import json

import pytest
import tensorflow as tf
from processes import printed

from helpers.base.errors import CourseError
from helpers.rehearsal.replicas import replicas

pytestmark = pytest.mark.slow

TWO = """
import json
import tensorflow as tf
from helpers.base.errors import CourseError
from helpers.rehearsal.replicas import replicas

strategy = replicas(2)
assert replicas(2) is strategy

@tf.function
def total():
    def one():
        context = tf.distribute.get_replica_context()
        mine = tf.cast(context.replica_id_in_sync_group, tf.float32) + 1.0
        return context.all_reduce("SUM", mine)
    return strategy.experimental_local_results(strategy.run(one))

try:
    replicas(3)
except CourseError as error:
    devices = [device.rpartition("/")[2] for device in strategy.extended.worker_devices]
    print(json.dumps([[float(x) for x in total()], devices, error.what]))
"""


def test_replicas_are_devices_with_a_real_all_reduce_and_one_number_for_a_process():
    totals, devices, second = json.loads(printed(TWO))
    assert totals == [3.0, 3.0]
    assert devices == ["device:CPU:0", "device:CPU:1"]
    assert second == "This process has a strategy of 2 replicas already; 3 were asked for."


def test_replicas_after_tensorflow_took_its_devices_are_told():
    tf.config.list_logical_devices()
    with pytest.raises(CourseError, match=r"split into 2 replicas any more(.|\n)*Restart"):
        replicas(2)


def test_less_than_one_replica_is_refused():
    for number in (0, -1):
        with pytest.raises(CourseError, match=f"{number} replicas were asked for"):
            replicas(number)
