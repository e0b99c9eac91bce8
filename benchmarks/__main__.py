"""The command line: ``python -m benchmarks``."""

import argparse
import importlib
import os
import pathlib
import platform
import re

from helpers.base.settings import ENVIRONMENT

NAMES = {
    "pretraining": "the step beside Hugging Face's, and PyTorch's after `make libraries` (minutes)",
    "prepare": "text to records: time and memory with the text's size (20 minutes, 8 GB)",
    "published": "compile published training runs for TPUs again: estimates (more than an hour)",
    "fine_tuning": "train what notebook 10 shows (forty minutes)",
}


def processor() -> str:
    """Name this machine's processor."""
    path = pathlib.Path("/proc/cpuinfo")
    told = path.read_text("utf-8") if path.is_file() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", told, re.MULTILINE)
    return name[1].strip() if name else platform.machine()


def main() -> None:
    """Measure the course's ways beside the usual ones, and print a table of each.

    Ratios of one run can be compared between machines; seconds can't. Where others use the machine,
    too, look at the ratios of processor time. published and fine_tuning write the tables that the
    notebooks show; they run only where they are named.
    """
    told = "\n".join(f"  {name:12} {about}" for name, about in NAMES.items())
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description=f"{main.__doc__}\n{told}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", nargs="*", help="the first two if none is named")
    parser.add_argument("--small", action="store_true", help="tiny, to see that everything works")
    asked = parser.parse_args()
    if unknown := [name for name in asked.name if name not in NAMES]:
        parser.error(f"{unknown[0]!r} is none of {', '.join(NAMES)}")
    os.environ.update(ENVIRONMENT)
    import pandas as pd
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.keras.utils.set_random_seed(0)
    for name in asked.name or list(NAMES)[:2]:
        for title, rows in importlib.import_module(f"benchmarks.{name}").run(small=asked.small):
            print(f"\n{name}: {title}\n{pd.DataFrame(rows).to_string(index=False)}")
    cores = f"{os.cpu_count()} cores, {processor()}"
    print(f"\n{cores}, Python {platform.python_version()}, TensorFlow {tf.__version__}")


if __name__ == "__main__":
    main()
