"""A report as a v5e would give it, to change and break."""

import copy
import json

from helpers.confirm import report as reports

CHIP = "v5e"


def content(**changes) -> dict:
    """The JSON of a report in which each program takes a tenth more than was predicted."""
    times = []
    for prediction in reports.predictions_of(CHIP).values():
        time = {
            "program": prediction.program,
            "steps_ms": [float(f"{1.1 * prediction.ms:.4g}")] * 10,
            "predicted_ms": prediction.ms,
            "peak_bytes": prediction.peak_bytes,
            "predicted_bytes": prediction.peak_bytes,
            "counter": "device",
        }
        times.append(time)
    sentences = []
    for sentence in reports.unconfirmed():
        verdict = {"id": sentence.id, "verdict": reports.NOT_APPLICABLE, "evidence": ""}
        sentences.append(verdict)
    report = {
        "schema": 1,
        "date": "2026-12-01",
        "rehearsed": False,
        "place": {"kind": "kaggle", "chip": CHIP, "devices": 8},
        "framework": {"name": "tensorflow", "versions": {"tensorflow-tpu": "2.20.0"}},
        "times": times,
        "sentences": sentences,
    }
    return copy.deepcopy(report) | changes


def text(**changes) -> str:
    return json.dumps(content(**changes))
