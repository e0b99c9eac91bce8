"""The command ``tpu-preflight``."""

import argparse
import dataclasses
import os
import pathlib
import re
import signal
import sys
import time
from collections.abc import Sequence

from tpu_preflight import baseline
from tpu_preflight.apart import apart
from tpu_preflight.errors import PreflightError, unforeseen
from tpu_preflight.estimate import calibration, price
from tpu_preflight.report import Report
from tpu_preflight.text import translated

SECONDS = 900.0  # of a preflight, and of each target's profile

ABOUT = """\
Go through the checklist for a TPU with your own model, on a machine without a TPU.

MODULE:NAME is a function without arguments that returns a Keras model and its dataset
(or a function and its TensorSpecs); or such a pair itself; or a tf.function with an input
signature. For JAX the pair is a function and a tuple of its arguments
(jax.ShapeDtypeStruct), or a Keras model on JAX and its data. A dataset's batch is global,
divided by the replicas; specifications are what one replica gets. It is imported from
the current folder and traced in a process of its own.
"""

EXAMPLES = """\
examples:
  tpu-preflight my_model:build --target v5e-8
  tpu-preflight my_model:build -t v3-8 -t v5e-8 --html > report.html
  tpu-preflight my_model:build --json --baseline main.json > report.json
  tpu-preflight my_model:build -t v5e-8 -t v6e-8 --steps 100000 --price v5e=1.2 --price v6e=2.7

exit status:
  0  ready
  1  not ready
  2  could not be asked; the report or the message says why
  3  ready, but worse than the baseline: over 5 % more memory or time, more
     compilations, or a check with a worse verdict
"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "tpu-preflight",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("name", metavar="MODULE:NAME", help="what to check, such as my_model:build")

    what = parser.add_argument_group("the TPU")
    what.add_argument(
        "-t", "--target", action="append", metavar="TPU",
        help="such as v5e-8, the default; repeat it to compare several",
    )  # fmt: skip
    what.add_argument("--node", action="store_true", help="the TPU is another machine (a TPU Node)")

    more = parser.add_argument_group("more checks, which take longer")
    more.add_argument(
        "--largest-batch", action="store_true", help="search for the largest batch that fits"
    )
    more.add_argument(
        "--vary", type=_varied, action="append", default=[], metavar="NAME=A,B",
        help="values for an argument of your function, such as rows=4,6: which of them fit?",
    )  # fmt: skip
    more.add_argument(
        "--profile", action="store_true",
        help="estimate a step's time by operation, layer and line: minutes for a large model",
    )  # fmt: skip

    cost = parser.add_argument_group("the price of a run, with a profile")
    cost.add_argument("--steps", type=_positive, metavar="N", help="how long the run is")
    cost.add_argument(
        "--price", action="append", default=[], metavar="[KIND=]PRICE",
        help="of a chip for an hour, in your currency: 1.2, or v5e=1.20 for each kind",
    )  # fmt: skip

    form = parser.add_argument_group("the report")
    one = form.add_mutually_exclusive_group()
    one.add_argument("--json", action="store_true", help="print it as JSON")
    one.add_argument("--html", action="store_true", help="print it as a page (HTML)")
    one.add_argument(
        "--measured", type=_milliseconds, metavar="MS",
        help="what a step took on this TPU, such as 231ms: print it beside the estimate, as a row",
    )  # fmt: skip
    form.add_argument(
        "--baseline", type=pathlib.Path, metavar="FILE",
        help="an earlier --json report: what became worse since?",
    )  # fmt: skip
    form.add_argument(
        "--timeout", type=_positive, metavar="SECONDS",
        help=f"the check is ended then; {SECONDS:g}, and as many for each target with a profile",
    )  # fmt: skip
    return parser


def _positive(word: str) -> int:
    if not word.isdecimal() or not 0 < int(word) < 10**15:  # what is longer is no float
        raise argparse.ArgumentTypeError(f"{word[:40]!r} is no whole number from 1 to 10^15")
    return int(word)


def _varied(word: str) -> tuple[str, list[int | str]]:
    name, _, values = word.partition("=")
    if not (name.isidentifier() and values):
        raise argparse.ArgumentTypeError(f"{word!r} is no name with values: rows=4,6")
    return name, [int(v) if v.isdecimal() else v for v in values.split(",")]


def _milliseconds(word: str) -> float:
    if not re.fullmatch(r"(?=.*[1-9])\d{1,15}(\.\d+)?(ms)?", word):
        raise argparse.ArgumentTypeError(f"{word[:40]!r} is no time in milliseconds, such as 231ms")
    return float(word.removesuffix("ms"))


def _report(given: argparse.Namespace) -> Report:
    targets = list(dict.fromkeys(given.target or ["v5e-8"]))
    typed = price.read(given.price, targets)
    if typed and given.steps is None:
        raise PreflightError(
            "There is a price, but no number of steps.",
            "A run's price is steps x time of a step x chips x the price of a chip for an hour.",
            "Say how long the run is: --steps 100000.",
        )
    profile = given.profile or given.measured is not None or given.steps is not None
    before = given.baseline and baseline.read(given.baseline)
    start = time.monotonic()

    def tell(stage: str) -> None:
        _say(f"preflight, {time.monotonic() - start:3.0f} s: {translated(stage)}")

    report = apart(
        os.fsencode(given.name).decode(errors="replace"),  # UTF-8, whatever the locale says
        targets,
        node=given.node,
        largest_batch=given.largest_batch,
        vary={x: [v for name, vs in given.vary if name == x for v in vs] for x, _ in given.vary},
        profile=profile,
        timeout=given.timeout or SECONDS * (1 + len(targets) * profile),
        progress=tell,
    )
    if given.steps is not None and report.timings:
        found = price.prices(report.timings, report.estimates, given.steps, typed)
        report = dataclasses.replace(report, prices=found)
    # Of a process that ended it has the name that was typed, and says why: there are no numbers.
    if before is not None and report.subject != given.name:
        report = dataclasses.replace(report, changes=baseline.compare(report, before))
    return report


def _say(text: str) -> None:
    """Print on standard error; where that fails, nothing more is said there."""
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry the command out; gives its exit status."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with its folder, and what it started
    # Closed by 2>&-, it is None, and print would take standard output in its place.
    sys.stderr = sys.stderr or pathlib.Path(os.devnull).open("w")  # noqa: SIM115
    for stream in filter(None, (sys.stdout, sys.stderr)):  # a shell's >&- closes one
        stream.reconfigure(errors="backslashreplace")  # a terminal may lack a sign
    try:
        report = _report(given)
        print(  # noqa: T201
            report.json() if given.json else report.html() if given.html else report, flush=True
        )
        for timing in report.timings if given.measured else ():
            print(calibration.row(timing, report.estimates, given.measured))  # noqa: T201
        return report.exit_status
    except BrokenPipeError:  # who read it has left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as error:
        told = error if isinstance(error, PreflightError) else unforeseen(error)
        what, why, fix = map(translated, (told.what, told.why, told.fix))
        _say(f"{what}\n  {translated('Why')}: {why}\n  {translated('Fix')}: {fix}")
        return 2
    except KeyboardInterrupt:
        _say("Stopped.")
        return 130
