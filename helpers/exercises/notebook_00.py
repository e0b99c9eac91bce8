"""The exercises of notebook 00, what a TPU is."""

import numpy as np

from helpers.display import systolic
from helpers.exercises import Wrong, check_table, returned
from tpu_preflight.chips.hardware import slice_of


def _check_replicas(answer: object) -> str:
    truth = {}
    for name in ("v2-8", "v3-32", "v4-8", "v5e-4"):
        tpu = slice_of(name)
        truth[name] = (
            tpu.replicas,
            f"It has {tpu.chips} chips; what is one replica there: a core, two cores that work as "
            "one, or a chip?",
        )
    check_table(answer, truth)
    return "Cores on v2 and v3, pairs of cores on v4, chips on v5e: four rules, one attribute."


def _check_busy_share(answer: object) -> str:
    for rows, cells in ((1, 2), (2, 2), (5, 3), (12, 4)):
        unit = systolic.multiply(np.ones((rows, cells), int), np.ones((cells, cells), int))
        given = float(returned(answer(rows, cells)))
        if not np.isclose(given, unit.utilisation, atol=1e-6):
            raise Wrong(
                f"rows={rows}, cells={cells}: each cell works in {rows} of {unit.ticks} ticks, "
                f"{unit.utilisation:.4f} of the time; your formula says {given:.4f}."
            )
    return (
        "128 rows keep a third of 128 x 128 cells busy, but only a fifth of 256 x 256: a larger "
        "unit wants a larger batch."
    )


def _check_hours_needed(answer: object) -> str:
    for flops, name, efficiency in (
        (1e18, "v5e-1", 1.0),
        (1e18, "v5e-8", 0.5),
        (3e19, "v3-8", 0.4),
        (3e19, "v4-8", 0.4),
    ):
        tpu = slice_of(name)
        truth = flops / (tpu.chips * tpu.chip.bf16_tflops * 1e12 * efficiency) / 3600
        given = float(returned(answer(flops, name, efficiency)))
        if np.isclose(given, truth * 3600, rtol=1e-6):
            raise Wrong("These are seconds: an hour has 3600 of them.")
        if not np.isclose(given, truth, rtol=1e-6):
            raise Wrong(
                f"{flops:.0e} operations on {name} at {efficiency:.0%}: not {given:.4g} hours. "
                f"Chips: {tpu.chips}, of {tpu.chip.bf16_tflops:g} TFLOP/s each."
            )
    return "Now multiply by chips and price, and you have the bill before the run."
