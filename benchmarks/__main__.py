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
    "blind": "others' steps: `blind K1 R5` compiles those named (minutes each), alone a table",
}


def processor() -> str:
    """Name this machine's processor."""
    path = pathlib.Path("/proc/cpuinfo")
    if path.is_file():
        name = re.search(r"^model name\s*:\s*(.+)$", path.read_text("utf-8"), re.MULTILINE)
        if name:
            return name[1].strip()
    return platform.machine()


def main() -> None:
    """Measure the course's ways beside the usual ones, and print a table of each.

    Ratios of one run can be compared between machines; seconds can't. Where others also use the
    machine, look at the ratios of processor time. published and fine_tuning write the tables that
    the notebooks show; they run only where they are named.
    """
    names = "\n".join(f"  {name:12} {about}" for name, about in NAMES.items())
    parser = argparse.ArgumentParser(
        "python -m benchmarks",
        description=f"{main.__doc__}\n{names}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name", nargs="*", help="the first two if none is named; after blind: steps"
    )
    parser.add_argument("--small", action="store_true", help="tiny, to see that everything works")
    arguments = parser.parse_args()
    # What follows `blind` are its steps.
    names_asked = arguments.name
    steps = ()
    if "blind" in names_asked:
        after = names_asked.index("blind") + 1
        names_asked, steps = names_asked[:after], names_asked[after:]
    for name in names_asked:
        if name not in NAMES:
            parser.error(f"{name!r} is none of {', '.join(NAMES)}")
    os.environ.update(ENVIRONMENT)
    import pandas as pd
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.keras.utils.set_random_seed(0)
    for name in names_asked or list(NAMES)[:2]:
        benchmark = importlib.import_module(f"benchmarks.{name}")
        options = {"steps": steps} if name == "blind" else {}
        for title, rows in benchmark.run(small=arguments.small, **options):
            table = pd.DataFrame(rows).to_string(index=False)
            print(f"\n{name}: {title}\n{table}")
    cores = f"{os.cpu_count()} cores, {processor()}"
    print(f"\n{cores}, Python {platform.python_version()}, TensorFlow {tf.__version__}")


if __name__ == "__main__":
    main()
