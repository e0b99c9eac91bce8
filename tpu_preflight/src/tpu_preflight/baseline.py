"""What became better or worse since an earlier report, for a job that watches a model."""

import pathlib
from collections.abc import Iterator

from tpu_preflight.errors import PreflightError
from tpu_preflight.report import CANT_TELL, FAIL, NOTHING, OPEN, PASS, WARN, Change, Report
from tpu_preflight.text import size

TOLERANCE = 0.05  # share by which a time or a size may grow: another compiler changes it by less

LARGEST = 8 << 20  # bytes of a file; a report has a few thousand

_SEVERITY = {NOTHING: 0, PASS: 0, OPEN: 1, WARN: 2, FAIL: 3}


def read(path: pathlib.Path) -> Report:
    """Read an earlier report, as ``tpu-preflight --json`` wrote it.

    Raises:
        PreflightError: There is no such file, or it holds something else, or no verdict.
    """
    try:
        if not path.is_file() or not 0 < path.stat().st_size <= LARGEST:
            raise OSError(f"it is missing, a pipe, empty (by > FILE), or over {LARGEST >> 20} MiB")
        before = Report.from_json(path.read_text("utf-8"))
        compare(before, before)  # somebody may have edited it
        if before.status == CANT_TELL:
            raise ValueError("it can't tell whether the model is ready")
        return before
    except (OSError, ValueError, LookupError, TypeError, PreflightError) as error:
        raise PreflightError(
            f"The baseline {path} can't be read as a report to compare with.",
            getattr(error, "why", f"{type(error).__name__}: {error}."),
            "Make one with the version to compare with: "
            "tpu-preflight module:name --json > baseline.json",
        ) from error


def compare(report: Report, before: Report) -> tuple[Change, ...]:
    """Say what changed since ``before``: states, compilations, and time and memory of each target.

    The worse ones come first. Times and sizes within ``TOLERANCE`` are no change.

    Raises:
        PreflightError: The reports are of two subjects, or have no target in common.
    """
    if report.subject != before.subject:
        raise PreflightError(
            f"The baseline is of {before.subject}, not of {report.subject}.",
            "What another model or function takes says nothing of this one.",
            "Make one of this: tpu-preflight module:name --json > baseline.json",
        )
    if not set(report.targets) & set(before.targets):
        raise PreflightError(
            f"The baseline is for {', '.join(before.targets)}, not for "
            f"{', '.join(report.targets)}.",
            "Time and memory can only be compared on the same target.",
            f"Ask for one of the baseline's: --target {before.targets[0]}.",
        )
    changes = [*_states(report, before), *_numbers(report, before)]
    return tuple(sorted(changes, key=lambda change: not change.worse))


def _states(report: Report, before: Report) -> Iterator[Change]:
    then, now = _worst(before), _worst(report)
    for place in dict.fromkeys([*now, *then]):
        old, new = then.get(place, PASS), now.get(place, PASS)
        if _SEVERITY[new] != _SEVERITY[old]:
            yield Change(place[1], old, new, _SEVERITY[new] > _SEVERITY[old])
    old, new = before.compilations, report.compilations
    if old is not None and new is not None and old != new:
        yield Change("compilations", str(old), str(new), new > old)


def _worst(report: Report) -> dict[tuple[int, str], str]:
    """The worst state of each check's items of the same name: it comes last, so it stays."""
    worse_later = sorted(report.items, key=lambda item: _SEVERITY[item.state])
    return {(item.check, item.name): item.state for item in worse_later}


# Of each part of a report the numbers that are compared, and how they are written.
_NUMBERS = {
    "estimates": (
        ("peak memory", "peak_bytes", size),
        ("least time", "bound_ms", "{:.3g} ms".format),
    ),
    "timings": (("estimated time", "ms", "{:.3g} ms".format),),
}


def _numbers(report: Report, before: Report) -> Iterator[Change]:
    for part, numbers in _NUMBERS.items():
        then = {each.target: each for each in getattr(before, part)}
        for now in getattr(report, part):
            for what, field, shown in numbers if now.target in then else ():
                old, new = getattr(then[now.target], field), getattr(now, field)
                if abs(new - old) > TOLERANCE * old:
                    yield Change(f"{what} on {now.target}", shown(old), shown(new), new > old)
