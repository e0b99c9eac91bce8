"""What follows from a report of notebook 13: rows for the published runs, sentences to change."""

from helpers.confirm import report as reports
from helpers.confirm.programs import PROGRAMS
from helpers.confirm.report import CONFIRMED, NOT_APPLICABLE, Report, Time
from tpu_preflight.estimate.calibration import TABLE, Run

# Why such a row counts for no factor.
EXCLUDED = "a single program of some milliseconds, not a training run"
REMARKS = {
    "confirmed": "take out that it isn't confirmed, and name the report",
    "refuted": "change the sentence: it is not so",
}


def summary(report: Report) -> str:
    """Write a line about where the report is from and what is in it."""
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    counts = []
    for verdict in (CONFIRMED, "refuted", NOT_APPLICABLE):
        count = [row.verdict for row in report.verdicts].count(verdict)
        counts.append(f"{count} {verdict}")
    return (
        f"{report.date}, {report.chip} with {report.devices} devices ({report.place}), {versions}: "
        f"{len(report.times)} programs; sentences: {', '.join(counts)}"
    )


def comparison(report: Report) -> list[str]:
    """Write each program's prediction beside what was measured, a line each."""
    lines = []
    for time in report.times:
        line = (
            f"{time.program:9} predicted {time.predicted_ms:8.4g} ms, measured "
            f"{time.median_ms:8.4g} ({time.median_ms / time.predicted_ms:.2f} times)"
        )
        if time.counter == "device":
            line += (
                f"; memory predicted {time.predicted_bytes / 2**20:,.0f} MiB, "
                f"counted {time.peak_bytes / 2**20:,.0f}"
            )
        lines.append(line)
    return lines


def published_rows(report: Report) -> list[str]:
    """Write the rows for ``published.tsv``; whoever adds them fills in each ``?``."""
    rows = []
    for time in report.times:
        values = _run_fields(report, time)
        rows.append("\t".join(values[name] for name in Run.__dataclass_fields__))
    return rows


def _run_fields(report: Report, time: Time) -> dict[str, str]:
    prediction = reports.predictions_of(report.chip)[time.program]
    program = next(program for program in PROGRAMS if program.name == time.program)
    first = program.state[0]
    return {
        "run": f"Notebook 13, {time.program}",
        "target": prediction.target,
        "devices": "1",
        "rows": str(first.shape[0]),
        "model": f"confirm {time.program}",
        "size": str(first.shape[1]),
        "precision": first.dtype,
        "month": report.date[:7],
        "published_ms": f"{time.median_ms:.4g}",
        "computed": "the median of ten measurements of ten steps, by the host's clock",
        "source": "?",
        "checked": report.date[:7],
        "remark": report.framework,
        "excluded": EXCLUDED,
        "estimate_ms": f"{prediction.ms:g}",
        "roofline_ms": f"{prediction.least_ms:g}",
    }


def sentences_to_change(report: Report) -> list[str]:
    """Write, for each sentence that was confirmed or refuted, where it is and what to do."""
    sentences = {sentence.id: sentence for sentence in reports.unconfirmed()}
    texts = []
    for verdict in report.verdicts:
        if verdict.verdict == NOT_APPLICABLE:
            continue
        sentence = sentences[verdict.id]
        texts.append(
            f"{sentence.where}: {REMARKS[verdict.verdict]}\n"
            f"  {sentence.sentence}\n"
            f"  {verdict.verdict}: {sentence.claim} ({verdict.evidence})"
        )
    return texts


def text(report: Report) -> str:
    """Write all of it; of a rehearsal only that it is one."""
    lines = [summary(report), *comparison(report)]
    if report.rehearsed:
        lines.append("Rehearsed on a CPU: it has the right form, and it confirms nothing.")
        return "\n".join(lines)
    lines += ["", f"Rows for {TABLE.name} (fill in each ?):", *published_rows(report)]
    lines += ["", "Sentences to change:", *sentences_to_change(report)]
    return "\n".join(lines)
