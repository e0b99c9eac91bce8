"""Connects a place with its TPU, or says within seconds why that can't be done.

TensorFlow waits for ever at an address where nobody answers, so the address is asked first: the
same question that TensorFlow's own client asks, with a time limit. ``helpers.runtime`` passes
``connect`` on.
"""

import importlib.metadata
import importlib.util
import os
import pathlib
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from helpers.base.errors import CourseError
from helpers.tpu.place import LOCAL, UNUSABLE, Place, address, detect, is_address, on_google_cloud
from tpu_preflight.processes import within

if TYPE_CHECKING:
    import tensorflow as tf

PORT = 8470  # where a TPU's worker listens, and what TensorFlow adds to an address without a port
SECONDS = 6.0  # a worker in the same region answers in milliseconds


class CantConnect(CourseError):
    """There is no TPU to use; `connect` falls back to the CPU if asked to."""


class NobodyThere(CantConnect):
    """No program listens at the address."""


def tensorflow_environment(place: Place) -> dict[str, str]:
    """List the variables that TensorFlow must find when it is imported in a place.

    They are the place's own, and with the plug-in interface the path of the TPU's library. The
    build of TensorFlow without TPU gets none: the plug-in would end its process.
    """
    variables = dict(place.environment)
    if "PJRT_DEVICE" not in variables:
        return variables
    library = importlib.util.find_spec("libtpu")
    if library is None or not _is_installed("tensorflow-tpu"):
        return {}
    path = pathlib.Path(library.submodule_search_locations[0], "libtpu.so")
    return variables | {"TF_PLUGGABLE_DEVICE_LIBRARY_PATH": str(path)}


def _is_installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _check_environment(place: Place) -> None:
    """Set the variables that TensorFlow needs here; refuse when it is too late for that."""
    needed = tensorflow_environment(place)
    late = [name for name, value in needed.items() if os.environ.get(name) != value]
    if late and "tensorflow" in sys.modules:
        raise CourseError(
            f"TensorFlow is already imported, without {late[0]}={needed[late[0]]}.",
            f"It reads this once, while it is imported; here ({place.name}) it needs it.",
            "Restart the kernel and run the setup cell before any other.",
        )
    os.environ.update(needed)


def _proxy(host: str, environment: Mapping[str, str] = os.environ) -> str:
    """Find the variable whose proxy gRPC would use for a host; empty if it goes directly.

    https://github.com/grpc/grpc/blob/master/doc/environment_variables.md
    """
    names = (name for name in ("grpc_proxy", "https_proxy", "http_proxy") if environment.get(name))
    direct = environment.get("no_grpc_proxy") or environment.get("no_proxy") or ""
    if any(entry.strip() and host.endswith(entry.strip()) for entry in direct.split(",")):
        return ""
    return next(names, "")


def _with_port(endpoint: str) -> str:
    """Write an address as ``HOST:PORT``."""
    bare = endpoint.removeprefix("grpc://")
    match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?", bare)
    if not match or not 0 < int(match[2] or PORT) < 2**16:
        raise CantConnect(
            f"{endpoint[:60]!r} is no address.",
            "An address is a host, a colon and a port from 1 to 65535.",
            f"Write it so: grpc://10.0.0.2:{PORT}",
        )
    return f"{match[1]}:{match[2] or PORT}"


def devices_at(endpoint: str, seconds: float = SECONDS) -> list[str]:
    """Ask a TensorFlow worker at ``grpc://HOST:PORT`` for its devices, without TensorFlow.

    Gives such as ``["CPU:0", "TPU:0", "TPU:1", "TPU_SYSTEM:0"]``.

    Raises:
        NobodyThere: Nobody listens there, or there is no such host.
        CantConnect: This is no address, no answer came in time, or not a worker's.
    """
    import grpc

    target = _with_port(endpoint)
    host = target.rpartition(":")[0]
    proxy = _proxy(host)
    by_way = f" gRPC goes there through the proxy in {proxy}." if proxy else ""
    fix = "Check that the TPU still exists and is READY (gcloud compute tpus tpu-vm list --zone=Z)"
    fix += f", and add {host} to no_grpc_proxy." if proxy else ", and its address."
    with grpc.insecure_channel(target) as channel:
        ask = channel.unary_unary("/tensorflow.WorkerService/GetStatus")
        try:
            answer = ask(b"", timeout=seconds)
        except grpc.RpcError as error:
            said = " ".join((error.details() or "").split())[:200]
            why = f"gRPC says: {said}.{by_way}"
            if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                what = f"{target} did not answer within {seconds:g} seconds."
                why = "The machine is off, a firewall drops what is sent, or the program there "
                raise CantConnect(what, f"{why}hangs.{by_way}", fix) from None
            if error.code() == grpc.StatusCode.UNAVAILABLE and "HTTP/2" not in said:
                raise NobodyThere(f"Nobody answers at {target}.", why, fix) from None
            what = f"What answers at {target} is no TensorFlow worker."
            fix = f"Give the address of a TPU; its port is {PORT}."
            if proxy:
                fix = f"Add {host} to no_grpc_proxy."
            raise CantConnect(what, why, fix) from None
    # The answer lists the devices with their names in plain text
    # (tensorflow/core/protobuf/worker.proto, GetStatusResponse).
    return [name.decode() for name in re.findall(rb"/device:([A-Z_]+:\d+)", answer)]


def _look_up(name: str, seconds: float = SECONDS) -> str:
    """Ask Google Cloud for the address of a TPU's name."""
    shown = repr(name[:60])
    if not on_google_cloud():
        raise CantConnect(
            f"{shown} is a name, not an address.",
            "Names are looked up at Google Cloud's metadata server, which this machine doesn't "
            "have; TensorFlow would wait for it, here and there for minutes.",
            f"Give the address, connect('grpc://IP:{PORT}'), or 'local' for a TPU in this machine.",
        )
    import tensorflow as tf

    def ask() -> str:
        return tf.distribute.cluster_resolver.TPUClusterResolver(tpu=name).master()

    try:
        return within(seconds, ask)
    except Exception as error:
        raise CantConnect(
            f"The TPU {shown} was not found.",
            " ".join(str(error).split())[:300],
            "Check name and zone: gcloud compute tpus tpu-vm list --zone=Z. For names TensorFlow "
            "needs cloud-tpu-client: pip install cloud-tpu-client",
        ) from None


def _target(place: Place, tpu: str | None) -> str:
    """Find what to connect to: ``local``, or addresses with ``grpc://``."""
    wanted = (tpu or "").strip() or (place.tpu or "").strip()
    if not wanted:
        fix = "Give an address, connect('grpc://IP:8470'), or take the CPU: connect(fallback=True)."
        if place.kind in ("pod_slice", *UNUSABLE):
            fix = place.advice
        why = f"It runs on {place.name} ({place.mark})."
        raise CantConnect("This kernel has no TPU.", why, fix)
    if wanted == "local":
        return wanted
    return address(wanted) if is_address(wanted) else address(_look_up(wanted))


def _strategy(target: str, place: Place) -> "tf.distribute.Strategy":
    """Start the TPU and make its strategy."""
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=target)
    try:
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (tf.errors.OpError, RuntimeError) as error:
        said = " ".join(str(error).split())
        if target != "local" or not isinstance(error, tf.errors.NotFoundError):
            raise CantConnect(
                "The TPU did not start.",
                said[:300],
                "Run `tpu-course doctor`: another program may hold the TPU, or "
                "TensorFlow's version may differ from the TPU's.",
            ) from error
        if place.kind in LOCAL and "No OpKernel" in said:
            raise CantConnect(
                "This TensorFlow has no code for a TPU.",
                "It is the build for CPU and GPU; TensorFlow for TPU is another package.",
                "pip uninstall -y tensorflow && pip install tensorflow-tpu, then restart the "
                "kernel; never keep both.",
            ) from error
        raise CantConnect(
            "TensorFlow found no TPU in this machine.",
            f"It runs on {place.name} ({place.mark}).",
            "Take the CPU, connect(fallback=True), or give the address of a TPU.",
        ) from error


def _remote(target: str, place: Place) -> tuple["tf.distribute.Strategy", str]:
    """Make the strategy of a TPU, or of a rehearsal's CPU, in another machine; say which."""
    devices = [name for endpoint in target.split(",") for name in devices_at(endpoint)]
    if any(name.startswith("TPU:") for name in devices):
        return _strategy(target, place), "a TPU in another machine"
    import tensorflow as tf

    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=target)
    tf.config.experimental_connect_to_cluster(resolver)
    first = "/job:worker/replica:0/task:0/device:CPU:0"
    return tf.distribute.OneDeviceStrategy(first), "a worker without TPU, its first CPU device"


def connect(tpu: str | None = None, fallback: bool = False) -> "tf.distribute.Strategy":
    """Connect this kernel with its TPU: resolver, connection, initialisation, strategy.

    Call it once, before anything is computed: what was made before is lost. It prints one line
    that names the strategy. For a worker without TPU, such as a rehearsal's, it skips the
    initialisation and takes the worker's first CPU device.

    Args:
        tpu: ``"local"`` for a TPU in this machine, the address of one in another
            (``"grpc://10.0.0.2:8470"``), or, on a virtual machine of Google Cloud, a name.
            None: what `detect` finds.
        fallback: Whether to use this machine's CPU if there is no TPU.

    Raises:
        NobodyThere: Nobody listens at the address.
        CantConnect: There is no TPU for another reason, which the message says.
        CourseError: TensorFlow was imported before its variables for this TPU were set.
    """
    place = detect()
    try:
        target = _target(place, tpu)
        if target == "local" or place.kind == "pod_slice":
            _check_environment(place)
        if target == "local":
            strategy, where = _strategy(target, place), "the TPU in this machine"
        else:
            strategy, where = _remote(target, place)
    except CantConnect as error:
        if not fallback:
            raise
        import tensorflow as tf

        # The name in full: after an earlier connection, "/CPU:0" may be the worker's.
        here = "/job:localhost/replica:0/task:0/device:CPU:0"
        strategy, where = tf.distribute.OneDeviceStrategy(here), f"this CPU ({error.what})"
    replicas = strategy.num_replicas_in_sync
    counted = f"{replicas} replica{'s' * (replicas != 1)}"
    print(f"{type(strategy).__name__} with {counted} on {where}")  # noqa: T201
    return strategy
