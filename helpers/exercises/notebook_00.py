"""The exercises of notebook 00, what a TPU is."""

import numpy as np

from helpers.display import systolic
from helpers.exercises import Exercise, Wrong, returned
from helpers.tpu.hardware import slice_of

_ASKED = ("v2-8", "v3-32", "v4-8", "v5e-4")


def _check_replicas(answer: object) -> str:
    given = answer()
    if not isinstance(given, dict) or set(given) != set(_ASKED):
        raise Wrong("Return the dictionary with its four keys unchanged.")
    for name in _ASKED:
        tpu = slice_of(name)
        if given[name] != tpu.replicas:
            raise Wrong(
                f"{name} has not {given[name]} replicas. It has {tpu.chips} chips; what is one "
                "replica there: a core, two cores that work as one, or a chip?"
            )
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


def _check_hours(answer: object) -> str:
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


EXERCISES = {
    "00-1": Exercise(
        stub="""def replicas():
    raise NotImplementedError
    return {"v2-8": 0, "v3-32": 0, "v4-8": 0, "v5e-4": 0}""",
        answer="replicas",
        check=_check_replicas,
        hints=(
            "What does the number after the dash count: cores or chips? It depends on the kind.",
            "v2 and v3: it counts cores, and each is a replica. v4: it counts cores, two per chip.",
            "On v4 the two cores of a chip are one replica; on v5e the number counts chips.",
        ),
        solution="""def replicas():
    return {"v2-8": 8, "v3-32": 32, "v4-8": 4, "v5e-4": 4}""",
        wrong={
            "v4-8 has not 8 replicas": """def replicas():
    return {"v2-8": 8, "v3-32": 32, "v4-8": 8, "v5e-4": 4}""",
            "v2-8 has not 4 replicas": """def replicas():
    return {"v2-8": 4, "v3-32": 16, "v4-8": 4, "v5e-4": 4}""",
            "four keys unchanged": """def replicas():
    return {"v2-8": 8}""",
        },
    ),
    "00-2": Exercise(
        stub='''def busy_share(rows, cells):
    """Share of the cells x cells that multiply, on average, from 0 to 1."""
    raise NotImplementedError''',
        answer="busy_share",
        check=_check_busy_share,
        hints=(
            "Every cell multiplies once for every row. For how many ticks does the run last?",
            "The last row enters in tick `rows`; its last sum still crosses all cells, down and "
            "to the right.",
            "ticks = rows + 2 * cells - 2, as in the cell that checks the formula above.",
        ),
        solution='''def busy_share(rows, cells):
    """Share of the cells x cells that multiply, on average, from 0 to 1."""
    return rows / (rows + 2 * cells - 2)''',
        wrong={
            "0.5556 of the time; your formula says 0.6250": """\
def busy_share(rows, cells):
    return rows / (rows + cells)""",
            "0.3333 of the time; your formula says 0.5000": """\
def busy_share(rows, cells):
    return min(1.0, rows / cells)""",
            "0.3333 of the time; your formula says 0.2000": """\
def busy_share(rows, cells):
    return rows / (rows + 2 * cells)""",
        },
    ),
    "00-3": Exercise(
        stub='''def hours_needed(flops, accelerator, efficiency):
    """Hours that a slice such as "v5e-8" takes for so many operations."""
    raise NotImplementedError''',
        answer="hours_needed",
        check=_check_hours,
        hints=(
            "`slice_of(accelerator)` has `.chips`, and `.chip.bf16_tflops` per chip.",
            "10**12 operations are a teraflop; `efficiency` of the peak is what you get.",
            "hours = flops / (chips * TFLOP/s * 1e12 * efficiency) / 3600",
        ),
        solution='''from helpers.tpu.hardware import slice_of


def hours_needed(flops, accelerator, efficiency):
    """Hours that a slice such as "v5e-8" takes for so many operations."""
    tpu = slice_of(accelerator)
    per_second = tpu.chips * tpu.chip.bf16_tflops * 1e12 * efficiency
    return flops / per_second / 3600''',
        wrong={
            "Chips: 4, of 123 TFLOP/s each": """from helpers.tpu.hardware import slice_of


def hours_needed(flops, accelerator, efficiency):
    tpu = slice_of(accelerator)
    return flops / (tpu.replicas * tpu.chip.bf16_tflops * 1e12 * efficiency) / 3600""",
            "at 50%": """from helpers.tpu.hardware import slice_of


def hours_needed(flops, accelerator, efficiency):
    tpu = slice_of(accelerator)
    return flops / (tpu.chips * tpu.chip.bf16_tflops * 1e12) / 3600""",
            "These are seconds": """from helpers.tpu.hardware import slice_of


def hours_needed(flops, accelerator, efficiency):
    tpu = slice_of(accelerator)
    return flops / (tpu.chips * tpu.chip.bf16_tflops * 1e12 * efficiency)""",
        },
    ),
}
