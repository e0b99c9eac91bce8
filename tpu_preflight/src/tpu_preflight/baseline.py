"""What became better or worse since an earlier report, for a job that watches a model."""

import pathlib
from collections.abc import Iterator

from tpu_preflight.errors import PreflightError
from tpu_preflight.report import CANT_TELL, FAIL, NOTHING, OPEN, PASS, WARN, Change, Report
from tpu_preflight.text import plain_number, size

TOLERANCE = 0.05  # share by which a time or a size may grow: another compiler changes it by less

LARGEST = 8 << 20  # bytes of a file; a report has a few thousand

# What isn't checked may be worse than what passes, but no warning.
_SEVERITY = {NOTHING: 0, PASS: 0, OPEN: 1, WARN: 2, FAIL: 3}


def read(path: pathlib.Path) -> Report:
    """Read an earlier report, as ``tpu-preflight --json`` wrote it.

    Raises:
        PreflightError: There is no such file, or it holds something else, or no verdict.
    """
    try:
        # Looked at before it is read: a pipe would wait, and a huge file fill the memory.
        if not path.is_file() or not 0 < path.stat().st_size <= LARGEST:
            raise OSError(f"it is missing, a pipe, empty (by > FILE), or over {LARGEST >> 20} MiB")
        report = Report.from_json(path.read_text("utf-8"))
        # Fails where the file was edited and has states or numbers that don't exist.
        compare(report, report)
        if report.status == CANT_TELL:
            raise ValueError("it can't tell whether the model is ready")
        return report
    except (OSError, ValueError, LookupError, TypeError, PreflightError) as error:
        raise PreflightError(
            f"The baseline {path} can't be read as a report to compare with.",
            getattr(error, "why", f"{type(error).__name__}: {error}."),
            "Make one with the version to compare with: "
            "tpu-preflight module:name --json > baseline.json",
        ) from error


def compare(report: Report, earlier: Report) -> tuple[Change, ...]:
    """Say what changed since an earlier report: states, compilations, times and memory.

    The worse ones come first. Times and sizes within ``TOLERANCE`` are no change.

    Raises:
        PreflightError: The reports are of two subjects, or have no target in common.
    """
    if report.subject != earlier.subject:
        raise PreflightError(
            f"The baseline is of {earlier.subject}, not of {report.subject}.",
            "What another model or function takes says nothing about this one.",
            "Make one of this one: tpu-preflight module:name --json > baseline.json",
        )
    # Targets that only one of them has are left out below.
    if not set(report.targets) & set(earlier.targets):
        raise PreflightError(
            f"The baseline is for {', '.join(earlier.targets)}, not for "
            f"{', '.join(report.targets)}.",
            "Time and memory can only be compared on the same target.",
            f"Ask for one of the baseline's: --target {earlier.targets[0]}.",
        )
    changes = [
        *_changed_states(report, earlier),
        *_changed_compilations(report, earlier),
        *_changed_numbers(report, earlier),
    ]
    return tuple(sorted(changes, key=lambda change: not change.worse))


def _changed_states(report: Report, earlier: Report) -> Iterator[Change]:
    earlier_states = _worst_states(earlier)
    states = _worst_states(report)
    for check, name in dict.fromkeys([*states, *earlier_states]):
        # An item that is in one report only is as one that passes in the other.
        earlier_state = earlier_states.get((check, name), PASS)
        state = states.get((check, name), PASS)
        severity_change = _SEVERITY[state] - _SEVERITY[earlier_state]
        if severity_change:
            yield Change(what=name, before=earlier_state, now=state, worse=severity_change > 0)


def _worst_states(report: Report) -> dict[tuple[int, str], str]:
    """The worst state of each check's items of the same name."""
    states: dict[tuple[int, str], str] = {}
    for item in sorted(report.items, key=lambda item: _SEVERITY[item.state]):
        states[item.check, item.name] = item.state  # a worse one comes later, and stays
    return states


def _changed_compilations(report: Report, earlier: Report) -> Iterator[Change]:
    count = report.compilations
    earlier_count = earlier.compilations
    if count is None or earlier_count is None or count == earlier_count:
        return
    yield Change(
        what="compilations",
        before=str(earlier_count),
        now=str(count),
        worse=count > earlier_count,
    )


def _milliseconds(number: float) -> str:
    return f"{plain_number(number)} ms"


# Of each part of a report the numbers that are compared, and how they are written.
_NUMBERS = {
    "estimates": (
        ("peak memory", "peak_bytes", size),
        ("least time", "bound_ms", _milliseconds),
    ),
    "timings": (("estimated time", "ms", _milliseconds),),
}


def _changed_numbers(report: Report, earlier: Report) -> Iterator[Change]:
    for part, numbers in _NUMBERS.items():
        earlier_parts = {estimate.target: estimate for estimate in getattr(earlier, part)}
        for estimate in getattr(report, part):
            if estimate.target not in earlier_parts:
                continue
            for what, field, written in numbers:
                number = getattr(estimate, field)
                earlier_number = getattr(earlier_parts[estimate.target], field)
                if abs(number - earlier_number) > TOLERANCE * earlier_number:
                    yield Change(
                        what=f"{what} on {estimate.target}",
                        before=written(earlier_number),
                        now=written(number),
                        worse=number > earlier_number,
                    )
