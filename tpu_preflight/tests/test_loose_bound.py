"""Where the least time of a step says little: loops, and kernels that multiply nothing."""

import gzip
import math
from types import SimpleNamespace

import pytest

from tpu_preflight import compiler
from tpu_preflight.checks import cost
from tpu_preflight.context import Answer
from tpu_preflight.report import WARN

# A program with a product, and one that adds in a loop of 1,000 rounds.
PROGRAM = """HloModule step

%fused (p: f32[1024,1024]) -> f32[1024,1024] {{
  %p = f32[1024,1024]{{1,0}} parameter(0)
  ROOT %sine = f32[1024,1024]{{1,0}} sine(%p)
}}

%body (state: (s32[], f32[1024,1024])) -> (s32[], f32[1024,1024]) {{
  %state = (s32[], f32[1024,1024]{{1,0}}) parameter(0)
  %counter = s32[] get-tuple-element(%state), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%counter, %one)
  %value = f32[1024,1024]{{1,0}} get-tuple-element(%state), index=1
  %sines = f32[1024,1024]{{1,0{space}}} fusion(%value), kind=kLoop, calls=%fused
  ROOT %result = (s32[], f32[1024,1024]{{1,0}}) tuple(%next, %sines)
}}

%condition (state.1: (s32[], f32[1024,1024])) -> pred[] {{
  %state.1 = (s32[], f32[1024,1024]{{1,0}}) parameter(0)
  %counter.1 = s32[] get-tuple-element(%state.1), index=0
  %limit = s32[] constant({rounds})
  ROOT %less = pred[] compare(%counter.1, %limit), direction={direction}
}}

ENTRY %main (x: f32[1024,1024]) -> f32[1024,1024] {{
  %x = f32[1024,1024]{{1,0}} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[1024,1024]{{1,0}}) tuple(%zero, %x)
  %loop = (s32[], f32[1024,1024]{{1,0}}) while(%start), condition=%condition, body=%body
  %last = f32[1024,1024]{{1,0}} get-tuple-element(%loop), index=1
  ROOT %product = f32[1024,1024]{{1,0}} dot(%last, %x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""  # noqa: E501


def program(rounds, direction="LT", space=""):
    return PROGRAM.format(rounds=rounds, direction=direction, space=space)


def test_writes_of_kernels_without_a_product_are_counted_by_hand():
    elsewhere = compiler.without_products(program(1000))
    assert elsewhere.rounds == 1000
    assert elsewhere.written_bytes == 1000 * 4 * 1024 * 1024
    assert compiler.without_products(program(1000, space=":S(1)")).written_bytes == 0
    assert compiler.without_products(program(1000, direction="GT")).rounds == math.inf


@pytest.mark.parametrize(
    ("options", "flops", "words"),
    [
        # 4 GB at 819 GB/s.
        ({"rounds": 1000}, 1e10, "write 3.91 GiB to memory, which alone takes 5.12 ms"),
        ({"rounds": 1000, "space": ":S(1)"}, 1e10, "a loop runs 1,000 times"),
        ({"rounds": 9, "direction": "GT"}, 1e10, "an unknown number of times"),
        ({"rounds": 1000, "space": ":S(1)"}, 0, ""),  # a bound that is not written
        ({"rounds": 9}, 1e10, ""),
    ],
)
def test_the_report_says_where_the_least_time_says_little(options, flops, words):
    compiled = compiler.Compiled(
        "step",
        "v5e-1",
        "compiles",
        flops=flops,
        _text=gzip.compress(program(**options).encode()),
    )
    job = SimpleNamespace(target="v5e-1", replicas=1, rows=None)
    items = cost._loose_bound(Answer(job, compiled))
    assert [item.state for item in items] == [WARN] * bool(words)
    for item in items:
        assert words in item.finding
        assert "--profile" in item.fix
