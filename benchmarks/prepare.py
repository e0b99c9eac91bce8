"""Time and memory of turning ever more text into records: what notebook 06 draws."""

import contextlib
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import psutil

from benchmarks.measure import Clock
from helpers.base import files
from helpers.base.settings import ROOT
from helpers.text import corpus

SIZES = (0.01, 10, 50, 200, 300, 2_000)  # MB; the first is as good as none
STORED = corpus.DATA / "prepare.tsv"
COMMAND = (sys.executable, "-m", "course", "prepare", "--sequence-length", "128")
KOREAN = "가나다라마바사아자차카타파하고노도로모보소오조초코토포호"


def grow(path: pathlib.Path, megabytes: float, seed: int = 0) -> None:
    """Write as much text, in lines as long as the shipped ones, with ever new words among theirs.

    Of the shipped paragraphs' words, one in ten is replaced by random syllables: a text of
    gigabytes has words that smaller ones don't have.
    """
    lines = []
    for shipped in corpus.shipped().values():
        lines += corpus.read(pathlib.Path(shipped))
    draw = random.Random(seed)
    size = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1e6:
            words = draw.choice(lines).split(" ")
            for index in range(draw.randrange(10), len(words), 10):
                words[index] = "".join(draw.choices(KOREAN, k=draw.randint(2, 5)))
            line = " ".join(words) + "\n"
            size += len(line.encode())
            file.write(line)


def memory(process: psutil.Process) -> int:
    """Count bytes of a process and its children, what they share more than once."""
    total = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        for member in (process, *process.children(recursive=True)):
            total += member.memory_info().rss
    return total


def measured(command: list[str]) -> tuple[Clock, float]:
    """Run a command; give its time, and the most MB at twenty looks a second."""
    times_before = os.times()
    start = time.perf_counter()
    peak = 0
    with psutil.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            peak = max(peak, memory(process))
            time.sleep(0.05)
    wall = time.perf_counter() - start
    times_after = os.times()
    if process.returncode:
        raise RuntimeError(f"The command ended with {process.returncode}; see above.")
    user = times_after.children_user - times_before.children_user
    system = times_after.children_system - times_before.children_system
    return Clock(wall, user + system), peak / 1e6


def run(small: bool) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """Measure; a full run also writes what the notebook draws."""
    rows: list[dict[str, float]] = []
    sizes = SIZES[:1] if small else SIZES
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:  # some GB
            paths = [pathlib.Path(folder, f"text-{part}.txt") for part in range(4)]
            for part, path in enumerate(paths):
                grow(path, size / 4, part)
            command = [*COMMAND, "-o", str(pathlib.Path(folder, "out"))]
            for path in paths:
                command += ["-i", str(path)]
            clock, peak = measured(command)
        row = {
            "megabytes": size,
            "seconds": clock.wall,
            "cpu_seconds": clock.cpu,
            "peak_megabytes": peak,
            "above_the_start": 0.0,
        }
        if rows:
            row["above_the_start"] = peak - rows[0]["peak_megabytes"]
        rows.append(row)
        print(f"{size:g} MB", file=sys.stderr)
    if not small:
        lines = [f"# python -m benchmarks prepare, {time.strftime('%Y-%m')}, one process"]
        lines.append("\t".join(rows[0]))
        for row in rows:
            numbers = [f"{number:.4g}" for number in row.values()]
            lines.append("\t".join(numbers))
        files.write(STORED, "\n".join(lines) + "\n")
    yield "one process: time and memory with the text's size", rows
