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
from tpu_preflight.errors import PreflightError, unforeseen
from tpu_preflight.estimate import calibration, price
from tpu_preflight.report import Report
from tpu_preflight.subprocess_run import run_in_subprocess
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

flags of the compiler, as you set them on the TPU:
  LIBTPU_INIT_ARGS=--xla_tpu_scoped_vmem_limit_kib=65536 tpu-preflight ... --profile

exit status:
  0  ready
  1  not ready
  2  could not be checked; the report or the message says why
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

    tpu = parser.add_argument_group("the TPU")
    tpu.add_argument(
        "-t", "--target", action="append", metavar="TPU",
        help="such as v5e-8, the default; repeat it to compare several",
    )  # fmt: skip
    tpu.add_argument("--node", action="store_true", help="the TPU is another machine (a TPU Node)")

    checks = parser.add_argument_group("more checks, which take longer")
    checks.add_argument(
        "--largest-batch", action="store_true", help="search for the largest batch that fits"
    )
    checks.add_argument(
        "--vary", type=_varied, action="append", default=[], metavar="NAME=A,B",
        help="values for an argument of your function, such as rows=4,6: which of them fit?",
    )  # fmt: skip
    checks.add_argument(
        "--profile", action="store_true",
        help="estimate a step's time by operation, layer and line: minutes for a large model",
    )  # fmt: skip

    cost = parser.add_argument_group("the price of a run, with a profile")
    cost.add_argument("--steps", type=_positive, metavar="N", help="steps of the run")
    cost.add_argument(
        "--price", action="append", default=[], metavar="[KIND=]PRICE",
        help="of a chip for an hour, in your currency: 1.2, or v5e=1.20 for each kind",
    )  # fmt: skip

    form = parser.add_argument_group("the report")
    # The report has one form at a time.
    output = form.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true", help="print it as JSON")
    output.add_argument("--html", action="store_true", help="print it as a page (HTML)")
    output.add_argument(
        "--measured", type=_milliseconds, metavar="MS",
        help="what a step took on this TPU, such as 231ms: print it next to the estimate, as a row",
    )  # fmt: skip
    form.add_argument(
        "-v", "--verbose", action="store_true",
        help="list the checks that pass as well; a page has them folded",
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
        raise argparse.ArgumentTypeError(f"{word[:40]!r} is not a whole number from 1 to 10^15")
    return int(word)


def _varied(word: str) -> tuple[str, list[int | str]]:
    """Read one ``--vary``: a name, and the values of it that are tried."""
    name, _, values = word.partition("=")
    if not (name.isidentifier() and values):
        raise argparse.ArgumentTypeError(f"{word!r} is not a name with values, such as rows=4,6")
    numbers_and_words: list[int | str] = []
    for value in values.split(","):
        numbers_and_words.append(int(value) if value.isdecimal() else value)
    return name, numbers_and_words


def _milliseconds(word: str) -> float:
    if not re.fullmatch(r"(?=.*[1-9])\d{1,15}(\.\d+)?(ms)?", word):
        raise argparse.ArgumentTypeError(
            f"{word[:40]!r} is not a time in milliseconds, such as 231ms"
        )
    return float(word.removesuffix("ms"))


def _report(options: argparse.Namespace) -> Report:
    targets = list(dict.fromkeys(options.target or ["v5e-8"]))  # each once
    # What can be refused is refused before anything takes time.
    prices = price.read(options.price, targets)
    if prices and options.steps is None:
        raise PreflightError(
            "There is a price, but no number of steps.",
            "A run's price is steps x time of a step x chips x the price of a chip for an hour.",
            "Say how long the run is: --steps 100000.",
        )
    earlier = None
    if options.baseline:
        earlier = baseline.read(options.baseline)

    # A row and a price need the time of a step, and only a profile estimates one.
    profile = options.profile or options.measured is not None or options.steps is not None
    # Each target's profile may take as long as all of the checks.
    default_timeout = SECONDS
    if profile:
        default_timeout += SECONDS * len(targets)
    start = time.monotonic()

    def show_progress(stage: str) -> None:
        _print_error(f"preflight, {time.monotonic() - start:3.0f} s: {translated(stage)}")

    report = run_in_subprocess(
        os.fsencode(options.name).decode(errors="replace"),  # UTF-8, whatever the locale says
        targets,
        node=options.node,
        largest_batch=options.largest_batch,
        vary=_values_by_name(options.vary),
        profile=profile,
        timeout=options.timeout or default_timeout,
        progress=show_progress,
    )
    # Where the profile failed, there is no time to multiply.
    if options.steps is not None and report.timings:
        run_prices = price.prices(report.timings, report.estimates, options.steps, prices)
        report = dataclasses.replace(report, prices=run_prices)
    # Of a process that ended it has the name that was typed, and says why: there are no numbers.
    if earlier is not None and report.subject != options.name:
        report = dataclasses.replace(report, changes=baseline.compare(report, earlier))
    return report


def _values_by_name(pairs: Sequence[tuple[str, list[int | str]]]) -> dict[str, list[int | str]]:
    """Join the values of a name that was given several times."""
    values_by_name: dict[str, list[int | str]] = {}
    for name, values in pairs:
        values_by_name.setdefault(name, []).extend(values)
    return values_by_name


def _print_error(text: str) -> None:
    """Print on standard error; where that fails, nothing more is printed there."""
    try:
        print(text, file=sys.stderr, flush=True)  # noqa: T201
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _print_report(report: Report, options: argparse.Namespace) -> None:
    if options.json:
        text = report.json()
    elif options.html:
        text = report.html()
    else:
        text = report.text(options.verbose)
    print(text, flush=True)  # noqa: T201
    if options.measured:
        for timing in report.timings:
            print(calibration.row(timing, report.estimates, options.measured))  # noqa: T201


def _end_at_signal(number: int, frame: object) -> None:
    sys.exit(143)  # as a shell reports it: 128 + SIGTERM


def main(arguments: Sequence[str] | None = None) -> int:
    """Carry the command out; gives its exit status."""
    options = _parser().parse_args(arguments)
    # Ended as by Ctrl-C, so that processes and folders are cleared away.
    signal.signal(signal.SIGTERM, _end_at_signal)
    if sys.stderr is None:
        # Closed by 2>&-; print would take standard output in its place.
        sys.stderr = pathlib.Path(os.devnull).open("w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # a shell's >&- closes one
            stream.reconfigure(errors="backslashreplace")  # a terminal may lack a sign
    try:
        report = _report(options)
        _print_report(report, options)
        return report.exit_status
    except BrokenPipeError:
        # Who read it has left. Python would complain when it flushes the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except Exception as error:
        if not isinstance(error, PreflightError):
            error = unforeseen(error)
        why = f"  {translated('Why')}: {translated(error.why)}"
        fix = f"  {translated('Fix')}: {translated(error.fix)}"
        _print_error(f"{translated(error.what)}\n{why}\n{fix}")
        return 2
    except KeyboardInterrupt:
        _print_error("Stopped.")
        return 130
