"""Time whole commands that turn text into records, and watch the memory of all their processes."""

import dataclasses
import itertools
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Group
from rich.table import Table

from benchmarks.measure import Clock, Size, turns
from helpers.base import files
from helpers.base.processes import family, memory
from helpers.base.settings import ROOT
from helpers.text import corpus

LENGTH = 128
GROWTH = corpus.DATA / "prepare.tsv"  # what the notebook draws
BEAM = ROOT / "build/beam/bin/python"
COMMAND = ("-m", "helpers", "prepare", "--sequence-length", str(LENGTH))
KOREAN = "가나다라마바사아자차카타파하고노도로모보소오조초코토포호"

# Titles and texts of 2023-11 (brildev7/wikipedia_ko on the Hub, 2026-11), and more.
GOALS = {"the Korean Wikipedia, 1.35 GB": 1.35e3, "100 GB": 1e5, "10 TB": 1e7}
SHARD_MB, MACHINE_CORES, DAY = 100, 16, 24

USUAL = """
import sys
from benchmarks.prepare import usual
usual(sys.argv[1], sys.argv[2], int(sys.argv[3]))
"""


def grow(path: pathlib.Path, megabytes: float, seed: int = 0) -> None:
    """Write as much text, in lines as long as the shipped ones, with ever new words among theirs.

    Of the shipped paragraphs' words, one in ten is exchanged for a made one: a text of gigabytes
    has words that smaller ones don't have.
    """
    lines = [line for at in corpus.shipped().values() for line in corpus.read(pathlib.Path(at))]
    draw, left = random.Random(seed), megabytes * 1e6
    with path.open("w", encoding="utf-8") as file:
        while left > 0:
            words = draw.choice(lines).split(" ")
            for at in range(draw.randrange(10), len(words), 10):
                words[at] = "".join(draw.choices(KOREAN, k=draw.randint(2, 5)))
            line = " ".join(words) + "\n"
            left -= len(line.encode())
            file.write(line)


def usual(text: str, output: str, processes: int) -> None:
    """Write as transformers' `prepare_tfrecord_shards.py` does, with ``processes`` in its maps."""
    import datasets
    import tensorflow as tf

    datasets.disable_progress_bars()
    tokenizer = corpus.load_tokenizer()
    tokenizer.model_max_length = 10**9  # else each long text would be warned about

    def group_texts(batch: dict[str, list]) -> dict[str, list]:
        joined = {name: list(itertools.chain(*rows)) for name, rows in batch.items()}
        starts = range(0, len(joined["input_ids"]) // LENGTH * LENGTH, LENGTH)
        return {k: [v[start : start + LENGTH] for start in starts] for k, v in joined.items()}

    with tempfile.TemporaryDirectory(dir=pathlib.Path(output).parent) as cache:
        loaded = datasets.load_dataset("text", data_files=text, split="train", cache_dir=cache)
        options = {"batched": True, "num_proc": processes if processes > 1 else None}
        ids = loaded.map(lambda b: tokenizer(b["text"]), remove_columns=["text"], **options)
        rows = ids.map(group_texts, **options)
        pathlib.Path(output).mkdir()
        for first in range(0, len(rows), 1_000):
            with tf.io.TFRecordWriter(f"{output}/{first}.tfrecord") as file:
                for row in rows.select(range(first, min(first + 1_000, len(rows)))):
                    lists = {
                        name: tf.train.Feature(int64_list=tf.train.Int64List(value=row[name]))
                        for name in ("input_ids", "attention_mask")
                    }
                    features = tf.train.Features(feature=lists)
                    file.write(tf.train.Example(features=features).SerializeToString())


@dataclasses.dataclass(frozen=True)
class Run:
    """What a command took, from its start to its end."""

    clock: Clock
    peak: float  # MB of all its processes together, what they share counted more than once


def measured(command: list[str]) -> Run:
    """Run a command; look at the memory of its processes twenty times a second."""
    before, start = os.times(), time.perf_counter()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    said: list[bytes] = []
    reader = threading.Thread(target=lambda: said.append(process.stderr.read()))
    reader.start()
    peak = 0
    while process.poll() is None:
        peak = max(peak, memory(family(process.pid)))
        time.sleep(0.05)
    reader.join()
    after = os.times()
    if process.returncode:
        raise RuntimeError(b"".join(said).decode()[-2_000:])
    cpu = after.children_user - before.children_user + after.children_system
    return Run(Clock(time.perf_counter() - start, cpu - before.children_system), peak / 1e6)


def ways() -> dict[str, Callable[[pathlib.Path, pathlib.Path], list[str]]]:
    """Give the commands by their names, as functions of the texts' folder and the output."""

    def ours(
        *options: str, python: str = sys.executable
    ) -> Callable[[pathlib.Path, pathlib.Path], list[str]]:
        def command(text: pathlib.Path, output: pathlib.Path) -> list[str]:
            inputs = [word for path in sorted(text.iterdir()) for word in ("-i", str(path))]
            end = options.index("--") if "--" in options else len(options)
            some, more = options[:end], options[end:]
            return [python, *COMMAND, *inputs, "-o", str(output), *some, *more]

        return command

    def theirs(processes: int) -> Callable[[pathlib.Path, pathlib.Path], list[str]]:
        return lambda text, output: [
            *(sys.executable, "-c", USUAL, f"{text}/*", str(output), str(processes))
        ]

    found = {
        "prepare": ours(),
        "prepare --workers 2": ours("--workers", "2"),
        "Hugging Face's shard script": theirs(1),
        "the same, datasets.map(num_proc=2)": theirs(2),
    }
    if BEAM.exists():
        beam = ("--direct_running_mode=multi_processing", "--direct_num_workers=2")
        found["prepare --runner FnApiRunner, 2 processes"] = ours(
            "--runner", "FnApiRunner", "--", *beam, python=str(BEAM)
        )
    return found


def _texts(folder: pathlib.Path, megabytes: float) -> pathlib.Path:
    folder.mkdir()
    for part in range(4):
        grow(folder / f"text-{part}.txt", megabytes / 4, part)
    return folder


def compare(
    folder: pathlib.Path, megabytes: float, rounds: int, done: Callable[[str], None]
) -> Table:
    """Run all ways on one text, in turn."""
    text, runs = _texts(folder / "compared", megabytes), {name: [] for name in ways()}
    outputs = map(str, itertools.count())
    for _, name in turns(list(runs), rounds):
        runs[name].append(measured(ways()[name](text, folder / next(outputs))))
        done(name)
    table = Table(title=f"prepare: {megabytes:g} MB of text in four files, median of {rounds}")
    table.add_column("way", no_wrap=True)
    for column in ("seconds", "MB of text per second", "per cpu-second", "peak memory, MB"):
        table.add_column(column, justify="right")
    for name, some in runs.items():
        wall, cpu, peak = (
            statistics.median(values)
            for values in zip(*((r.clock.wall, r.clock.cpu, r.peak) for r in some), strict=True)
        )
        cells = (f"{wall:.1f}", f"{megabytes / wall:.2f}", f"{megabytes / cpu:.2f}", f"{peak:,.0f}")
        table.add_row(name, *cells)
    return table


def growth(
    folder: pathlib.Path, sizes: tuple[float, ...], done: Callable[[str], None]
) -> Iterator[tuple[float, Run]]:
    """Run ours, one process, on ever more text; the first is as good as none."""
    for size in (0.01, *sizes):
        with tempfile.TemporaryDirectory(dir=folder) as room:  # some GB
            text = _texts(pathlib.Path(room, "texts"), size)
            run = measured(ways()["prepare"](text, pathlib.Path(room, "out")))
        yield size, run
        done(f"{size:g} MB")


def on_paper(rate: float) -> Table:
    """Say how long corpora take, from the processor time per MB.

    Args:
        rate: MB of text per second on one core.
    """
    table = Table(
        title=f"on paper, from {rate:.1f} MB per second on one core",
        caption=f"Machines of {MACHINE_CORES} cores, as many as bring it below {DAY} hours; each "
        f"reads its own files and writes its own shards. Shards of {SHARD_MB} MB.",
    )
    for column in ("text", "shards", "core-hours", "machines", "hours"):
        table.add_column(column, justify="right" if column != "text" else "left")
    for name, megabytes in GOALS.items():
        hours = megabytes / rate / 3600
        machines = max(1, -(-hours // (MACHINE_CORES * DAY)))
        cells = (megabytes / SHARD_MB, hours, machines, hours / machines / MACHINE_CORES)
        table.add_row(name, *(f"{cell:,.3g}" if cell < 10 else f"{cell:,.0f}" for cell in cells))
    return table


def run(size: Size, done: Callable[[str, int], None]) -> Group:
    """Measure and make the tables; a full run also writes what the notebook draws.

    Args:
        size: How much.
        done: Called with what was done, and how many runs there are in all.
    """
    total = len(ways()) * size.prepare_rounds + 1 + len(size.megabytes)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        tables = [
            compare(folder, size.compared, size.prepare_rounds, lambda what: done(what, total))
        ]
        found = list(growth(folder, size.megabytes, lambda what: done(what, total)))
    table = Table(title="prepare, one process: time and memory with the text's size")
    for column in ("MB of text", "seconds", "cpu-seconds", "peak memory, MB", "above the start"):
        table.add_column(column, justify="right")
    start = found[0][1].peak
    rows = [(size, r.clock.wall, r.clock.cpu, r.peak, r.peak - start) for size, r in found]
    for row in rows:
        table.add_row(f"{row[0]:g}", *(f"{number:,.1f}" for number in row[1:]))
    tables.append(table)
    if len(size.megabytes) > 1:  # of a tiny text, the start is all that is measured
        names = f"# python -m benchmarks prepare, {time.strftime('%Y-%m')}, one process\n"
        names += "megabytes\tseconds\tcpu_seconds\tpeak_megabytes\tabove_the_start\n"
        lines = ["\t".join(f"{number:.4g}" for number in row) for row in rows]
        files.write(GROWTH, names + "\n".join(lines) + "\n")
        tables.append(on_paper((rows[-1][0] - rows[0][0]) / (rows[-1][2] - rows[0][2])))
    return Group(*tables)
