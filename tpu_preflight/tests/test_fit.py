"""What would make a step fit: the numbers, counted by hand."""

import dataclasses

import pytest

from tpu_preflight.estimate.fit import remedies
from tpu_preflight.program import Parameter, Program

GIB = 2**30
WEIGHT = Parameter("dense/kernel:0", "variable", f"f32[{GIB // 4}]")
FIRST = Parameter("Adam/dense/kernel/m:0", "variable", f"f32[{GIB // 4}]")
SECOND = Parameter("dense/kernel/v", "variable", f"f32[{GIB // 4}]")
BATCH = Parameter("x", "argument", f"f32[{GIB // 4}]")
PROGRAM = Program("step", b"", (BATCH, WEIGHT, FIRST, SECOND), (), (1, 2, 3))


@pytest.mark.parametrize(
    ("needed", "rows", "fitting", "says", "not_said"),
    [
        (
            24,
            64,
            30,
            [
                "30 rows on each device fit, by the compiler",
                "3 parts of 22 rows, one after the other, and 1.00 GiB for the sum",
                "is float32 now: 14.00 GiB of 15.75 GiB by arithmetic: would fit",  # 4 + 20 / 2
                "12 equal blocks): 15.55 GiB of 15.75 GiB by arithmetic: would fit",
                "optimizer state in parts over 8 devices, which needs code of your own: 22.25 GiB",
                "state and weights in parts over 8 devices, which needs code of your own: 21.38",
                "more memory on each device: v4, v5p, v6e",
            ],
            [],
        ),
        (200, 64, 0, ["a smaller batch: not enough", "not enough alone"], ["would fit", "v5p"]),
        (20, None, None, ["bfloat16"], ["batch", "accumulation"]),
    ],
)  # fmt: skip
def test_each_way_has_its_number(needed, rows, fitting, says, not_said):
    told = remedies(PROGRAM, "v5e-8", needed * GIB, rows, fitting)
    assert all(text in told for text in says), told
    assert not any(text in told for text in [*not_said, "jax", "tpu7x"]), told


def test_a_program_of_jax_is_told_its_own_ways_and_chips():
    told = remedies(dataclasses.replace(PROGRAM, form="stablehlo"), "v5e-8", 24 * GIB, None, None)
    assert "(jax.checkpoint around" in told and "v5p, v6e, tpu7x" in told and "tf." not in told
    parts = dataclasses.replace(PROGRAM, mesh=(("fsdp", 8),), shardings=((("fsdp",),),) * 4)
    told = remedies(parts, "v5e-8", 24 * GIB, None, None)
    assert "12.25 GiB of 15.75" in told and "in parts" not in told  # 0.5 + 23.5 / 2
