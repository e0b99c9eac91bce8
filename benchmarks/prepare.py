"""Time whole commands that turn text into records, and watch the memory of all their processes."""

import itertools
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import datasets
import tensorflow as tf
from rich.console import Group
from rich.table import Table

from benchmarks.measure import Size
from helpers.base import files
from helpers.base.settings import ROOT
from helpers.text import corpus
from tpu_preflight.processes import family, memory

LENGTH = 128
FEATURES = ("input_ids", "attention_mask")
GROWTH = corpus.DATA / "prepare.tsv"  # what the notebook draws
COLUMNS = ("megabytes", "seconds", "cpu_seconds", "peak_megabytes")
KOREAN = "가나다라마바사아자차카타파하고노도로모보소오조초코토포호"


def grow(path: pathlib.Path, megabytes: float) -> None:
    """Write as much text, in lines as long as the shipped ones, with ever new words among theirs.

    Of the shipped paragraphs' words, one in ten is exchanged for a made one: a text of gigabytes
    has words that smaller ones don't have.
    """
    lines = [line for at in corpus.shipped().values() for line in corpus.read(pathlib.Path(at))]
    draw, left = random.Random(0), megabytes * 1e6
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
                        for name in FEATURES
                    }
                    features = tf.train.Features(feature=lists)
                    file.write(tf.train.Example(features=features).SerializeToString())


def measured(megabytes: float, command: Callable[[str, str], list[str]]) -> tuple[float, ...]:
    """Run a command on so much text; give what `COLUMNS` names.

    Memory is looked at twenty times a second, of all processes together; what they share counts
    more than once.
    """
    with tempfile.TemporaryDirectory() as folder:
        text, output = f"{folder}/text.txt", f"{folder}/out"
        grow(pathlib.Path(text), megabytes)
        environment = os.environ | {"HF_DATASETS_CACHE": f"{folder}/cache"}
        before, start, peak = os.times(), time.perf_counter(), 0
        process = subprocess.Popen(
            [sys.executable, *command(text, output)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None:
            peak = max(peak, memory(family(process.pid)))
            time.sleep(0.05)
        wall, after = time.perf_counter() - start, os.times()
    if process.returncode:
        raise RuntimeError(f"{command(text, output)} ended with {process.returncode}")
    cpu = after.children_user - before.children_user + after.children_system
    return megabytes, wall, cpu - before.children_system, peak / 1e6


def ours(*options: str) -> Callable[[str, str], list[str]]:
    """Give the command line of `prepare`."""
    words = ["-m", "helpers", "prepare", "--sequence-length", str(LENGTH), *options]
    return lambda text, output: [*words, "-i", text, "-o", output]


def theirs(processes: int) -> Callable[[str, str], list[str]]:
    """Give the command line of `usual`."""
    script = "import sys; from benchmarks.prepare import usual; usual(*sys.argv[1:3], {})"
    return lambda text, output: ["-c", script.format(processes), text, output]


def table(title: str, rows: dict[str, tuple[float, ...]]) -> Table:
    """Draw what was measured."""
    made = Table(title=title)
    for column in ("", "MB of text", "seconds", "cpu-seconds", "peak memory, MB"):
        made.add_column(column, justify="right")
    for name, row in rows.items():
        made.add_row(name, *(f"{number:,.4g}" for number in row))
    return made


def run(size: Size, done: Callable[[str, int], None]) -> Group:
    """Measure and make the tables; a full run also writes what the notebook draws.

    Args:
        size: How much.
        done: Called with what was done, and how many runs there are in all.
    """
    ways = {
        "prepare": ours(),
        "prepare --workers 2": ours("--workers", "2"),
        "Hugging Face's shard script": theirs(1),
        "the same, datasets.map(num_proc=2)": theirs(2),
    }
    compared, grown = {}, {}
    total = len(ways) + 1 + len(size.megabytes)
    for name, command in ways.items():
        compared[name] = measured(size.compared, command)
        done(name, total)
    for megabytes in (0.01, *size.megabytes):  # the first is as good as none
        grown[f"{megabytes:g} MB"] = measured(megabytes, ours())
        done(f"{megabytes:g} MB", total)
    if len(size.megabytes) > 1:
        lines = ["\t".join(f"{number:.4g}" for number in row) for row in grown.values()]
        names = f"# python -m benchmarks prepare, {time.strftime('%Y-%m')}, one process\n"
        files.write(GROWTH, names + "\t".join(COLUMNS) + "\n" + "\n".join(lines) + "\n")
    return Group(table("prepare, compared", compared), table("prepare, one process", grown))
