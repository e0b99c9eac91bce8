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
PROGRAM = Program(
    name="step",
    hlo=b"",
    parameters=(BATCH, WEIGHT, FIRST, SECOND),
    results=(),
    donated=(1, 2, 3),
)


@pytest.mark.parametrize(
    ("needed", "rows", "fitting", "present", "absent"),
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
                "optimizer state in parts over 8 devices, which needs your own code: 22.25 GiB",
                "state and weights in parts over 8 devices, which needs your own code: 21.38",
                "more memory on each device: v4, v5p, v6e",
            ],
            [],
        ),
        (200, 64, 0, ["a smaller batch: not enough", "not enough alone"], ["would fit", "v5p"]),
        (20, None, None, ["bfloat16"], ["batch", "accumulation"]),
    ],
)  # fmt: skip
def test_each_way_has_its_number(needed, rows, fitting, present, absent):
    message = remedies(PROGRAM, "v5e-8", needed * GIB, rows, fitting)
    for text in present:
        assert text in message
    for text in [*absent, "jax", "tpu7x"]:
        assert text not in message


def test_a_program_of_jax_is_told_its_own_ways_and_chips():
    of_jax = dataclasses.replace(PROGRAM, form="stablehlo")
    message = remedies(of_jax, "v5e-8", 24 * GIB, None, None)
    assert "(jax.checkpoint around" in message
    assert "v5p, v6e, tpu7x" in message
    assert "tf." not in message

    sharded = dataclasses.replace(PROGRAM, mesh=(("fsdp", 8),), shardings=((("fsdp",),),) * 4)
    message = remedies(sharded, "v5e-8", 24 * GIB, None, None)
    assert "12.25 GiB of 15.75" in message  # 0.5 + 23.5 / 2
    assert "in parts" not in message
