"""The command line: ``python -m benchmarks``."""

import importlib
import os
import pathlib
import platform
import re
from typing import Annotated

import typer
from rich.console import Console, Group
from rich.progress import Progress

from benchmarks import measure
from helpers.base.settings import ENVIRONMENT

# In the order in which they run; each is a module here.
NAMES = ("records", "prepare", "pretraining")
LONG = ("published", "fine_tuning")  # only where they are named
WIDTH = 150  # where the output is no terminal

# What decides how fast its matrix products are, of what Linux lists.
UNITS = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "asimd", "sve")


def processor() -> str:
    """Name this machine's processor, and the units that its matrix products can use."""
    path = pathlib.Path("/proc/cpuinfo")
    told = path.read_text("utf-8") if path.is_file() else ""
    name = re.search(r"^model name\s*:\s*(.+)$", told, re.MULTILINE)
    units = [unit for unit in UNITS if re.search(rf"\b{unit}\b", told)]
    return " ".join([name[1].strip() if name else platform.machine(), *units])


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def main(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BENCHMARK",
            help=f"{' or '.join(NAMES)}; all if none is named. Or {' or '.join(LONG)}.",
        ),
    ] = None,
    small: Annotated[
        bool, typer.Option("--small", help="A tiny size, only to see that everything works.")
    ] = False,
) -> None:
    """Measure the course's ways beside the usual ones, in alternating rounds, and show one table.

    prepare takes some ten minutes (and 4 GB of disk) and pretraining some four on two free cores,
    with PyTorch nine. PyTorch is compared where `make pytorch` was run. Ratios of one run can be
    compared between machines; seconds can't. Where others use the machine, too, look at the ratios
    of processor time.

    published measures nothing here: it compiles published training runs for TPUs, which takes more
    than an hour, and writes the estimates beside what they took. fine_tuning trains what notebook
    10 shows, some forty minutes, and writes the scores. Both run only where they are named.
    """
    unknown = sorted(set(wanted or []) - {*NAMES, *LONG})
    if unknown:
        raise typer.BadParameter(f"{unknown[0]!r} is none of {', '.join(NAMES + LONG)}")
    os.environ.update(ENVIRONMENT)
    import tensorflow as tf

    tf.get_logger().setLevel("ERROR")
    tf.keras.utils.set_random_seed(0)
    size = measure.SMALL if small else measure.FULL
    console = Console()
    if not console.is_terminal:
        console = Console(width=WIDTH)
    tables = []
    with Progress(console=console, transient=True) as progress:
        for name in wanted or NAMES:
            bar = progress.add_task(name, total=None)

            def done(what: str, total: int, name: str = name, bar: int = bar) -> None:
                progress.update(bar, description=f"{name}: {what}", total=total, advance=1)

            tables.append(importlib.import_module(f"benchmarks.{name}").run(size, done))
    machine = (
        f"{os.cpu_count()} cores, {processor()}, Python {platform.python_version()}, "
        f"TensorFlow {tf.__version__}, XLA on the CPU"
    )
    console.print(Group(*tables, machine))


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
