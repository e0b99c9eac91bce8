"""Connects a place with its TPU, or says within seconds why that can't be done.

TensorFlow waits forever at an address that doesn't answer, so the address is tried first: the
same question that TensorFlow's own client asks, with a time limit. ``helpers.runtime`` passes
``connect`` on; notebooks 04 and 05 have its lines of TensorFlow in full.
"""

import importlib.metadata
import importlib.util
import pathlib
import re
from typing import TYPE_CHECKING

from helpers.base.errors import CourseError
from helpers.base.language import translated
from helpers.tpu.place import Place, detect, is_address

if TYPE_CHECKING:
    import tensorflow as tf

PORT = 8470  # where a TPU's worker listens, and what TensorFlow adds to an address without a port
SECONDS = 6.0  # a worker in the same region answers in milliseconds


def tensorflow_environment(place: Place) -> dict[str, str]:
    """List the variables that TensorFlow must find when it is imported in a place.

    They are the place's own, and with the plug-in interface the path of the TPU's library. The
    build of TensorFlow without TPU gets none: the plug-in would end its process.
    """
    if "PJRT_DEVICE" not in place.environment:
        return dict(place.environment)
    library = importlib.util.find_spec("libtpu")
    if library is None or not any(importlib.metadata.distributions(name="tensorflow-tpu")):
        return {}
    path = pathlib.Path(library.submodule_search_locations[0], "libtpu.so")
    return {**place.environment, "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": str(path)}


def devices_at(endpoint: str, seconds: float = SECONDS) -> list[str]:
    """Ask a TensorFlow worker at ``grpc://HOST:PORT`` for its devices, without TensorFlow.

    Gives such as ``["CPU:0", "TPU:0", "TPU:1", "TPU_SYSTEM:0"]``.

    Raises `CourseError`: Nothing listens there, no answer came in time, or it is no worker's.
    """
    import grpc

    target = endpoint.removeprefix("grpc://")
    if not re.search(r":\d+$", target):
        target += f":{PORT}"
    with grpc.insecure_channel(target) as channel:
        get_status = channel.unary_unary("/tensorflow.WorkerService/GetStatus")
        try:
            # Devices are in it with their names in plain text (tensorflow/core/protobuf/
            # worker.proto, GetStatusResponse).
            response = get_status(b"", timeout=seconds)
        except grpc.RpcError as error:
            details = " ".join((error.details() or "").split())
            raise CourseError(
                f"No TensorFlow worker answers at {target}.",
                f"gRPC says: {details[:200]}.",
                f"Check that the TPU still exists and is READY, and its port, {PORT}. If a "
                "variable such as https_proxy is set, gRPC goes through that proxy: add the host "
                "to no_grpc_proxy.",
            ) from None
    return [name.decode() for name in re.findall(rb"/device:([A-Z_]+:\d+)", response)]


def connect(tpu: str | None = None) -> "tf.distribute.Strategy":
    """Connect this kernel with its TPU: resolver, connection, initialisation, strategy.

    Call it once, before anything is computed: what was made before is lost. It prints one line
    that names the strategy. For a worker without TPU, such as a rehearsal's, it skips the
    initialisation and takes the worker's first CPU device.

    Args:
        tpu: ``"local"`` for a TPU in this machine, or the address of one in another
            (``"grpc://10.0.0.2:8470"``). None: what `detect` finds.

    Raises `CourseError`: There is no TPU, for a reason which the message says.
    """
    place = detect()
    target = tpu or place.tpu or ""
    remote = is_address(target)
    # A TPU of this machine must have been seen by `detect`; an address is asked below.
    if target not in ("local", place.tpu) and not remote:
        raise _no_tpu(target, place)
    devices = []
    if remote:
        devices = devices_at(target)  # before TensorFlow, which would wait for ever
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=target)
    tf.config.experimental_connect_to_cluster(resolver)
    has_tpu = any(name.startswith("TPU:") for name in devices)
    if remote and not has_tpu:  # a rehearsal's worker
        strategy = tf.distribute.OneDeviceStrategy("/job:worker/replica:0/task:0/device:CPU:0")
    else:
        try:
            tf.tpu.experimental.initialize_tpu_system(resolver)
        except (tf.errors.OpError, RuntimeError) as error:
            raise CourseError(
                "The TPU did not start.",
                " ".join(str(error).split())[:300],
                "See %explain: another program may hold the TPU, or this TensorFlow may be the "
                "build for CPU and GPU.",
            ) from error
        strategy = tf.distribute.TPUStrategy(resolver)
    replicas = strategy.num_replicas_in_sync
    unit = "replica" if replicas == 1 else "replicas"
    print(translated(f"{type(strategy).__name__} with {replicas} {unit}"))  # noqa: T201
    return strategy


def _no_tpu(target: str, place: Place) -> CourseError:
    what = "This kernel has no TPU."
    if target:
        what = f"{target!r:.60} is no address."
    return CourseError(
        what,
        f"It runs on {place.name} ({place.mark}).",
        f"Give an address, connect('grpc://IP:{PORT}'), or take this machine's CPU: "
        "tf.distribute.get_strategy().",
    )
