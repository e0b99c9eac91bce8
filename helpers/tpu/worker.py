"""The program of `node.remote_node`: a TensorFlow worker, in a root folder of its own if it may.

Arguments: the process that it ends with, its number of CPU devices, its folder, and the paths of
this machine that it shall see, read-only. Without any it stays in this machine's root folder, else
it must be in a mount namespace of its own. It prints its port.
"""

import os
import pathlib
import subprocess
import sys
import time


def change_root(root: pathlib.Path, paths: list[str]) -> None:
    """Change to a root folder that is empty but for ``paths``."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", root], check=True)
    for path in filter(pathlib.Path.exists, map(pathlib.Path, paths)):
        inside = root / path.relative_to("/")
        if inside.exists():  # with its folder
            continue
        folder = inside if path.is_dir() else inside.parent
        folder.mkdir(parents=True, exist_ok=True)
        inside.touch()
        subprocess.run(["mount", "--rbind", path, inside], check=True)
        # These are the machine's own files: no program in here may change them.
        subprocess.run(["mount", "--options", "remount,bind,ro", inside], check=True)
    (root / "tmp").mkdir(exist_ok=True)
    os.chroot(root)
    os.chdir("/tmp")


def main() -> None:
    """Serve until the client is gone."""
    client, replicas, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    if seen := sys.argv[4:]:
        change_root(folder / "root", seen)

    import tensorflow as tf

    # Port 0: the system finds a free one at the moment of use, so nothing can take it before.
    config = tf.compat.v1.ConfigProto(device_count={"CPU": replicas})
    server = tf.distribute.Server({"worker": ["127.0.0.1:0"]}, task_index=0, config=config)
    print(server.target.rpartition(":")[2], flush=True)  # noqa: T201
    os.dup2(2, 1)  # from here on what the worker prints is in its log
    while os.getppid() == client:
        time.sleep(0.2)
    os._exit(0)  # the server has no end of its own


if __name__ == "__main__":
    main()
