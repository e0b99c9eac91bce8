"""How long a step waits for other chips and the host: schedules counted by hand."""

import pytest

from tpu_preflight.chips.hardware import slice_of
from tpu_preflight.compiler.execution import Exchange, exchange
from tpu_preflight.compiler.waiting import Schedule, exchange_seconds
from tpu_preflight.program.instructions import computations

V6E = slice_of("v6e-8")
LINK = 86.8e9  # bytes a second over one link, measured
SENT = 8 * 1024 * 1024 * 4  # bytes of f32[8,1024,1024]
PERMUTE = 2.29e-6 + SENT / LINK

HEAD = """HloModule step, is_scheduled=true

ENTRY %main (p: f32[8,1024,1024]) -> f32[8,1024,1024] {
  %p = f32[8,1024,1024]{2,1,0} parameter(0)
"""
PERMUTED = """\
  %start = (f32[8,1024,1024]{2,1,0}, f32[8,1024,1024]{2,1,0}, u32[], u32[]) \
collective-permute-start(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %first = f32[8,1024,1024]{2,1,0} exponential(%p), metadata={op_name="first"}
  %done = f32[8,1024,1024]{2,1,0} collective-permute-done(%start), channel_id=1
  ROOT %second = f32[8,1024,1024]{2,1,0} negate(%done), metadata={op_name="second"}
}
"""


def waiting(text, **kernel_seconds):
    found, main = computations(HEAD + text)
    return Schedule(found, kernel_seconds, V6E).run(main).waiting


def test_a_kernel_between_start_and_done_hides_a_permutation():
    assert waiting(PERMUTED, second=1.0) == pytest.approx(PERMUTE)
    assert waiting(PERMUTED, first=1e-4, second=1.0) == pytest.approx(PERMUTE - 1e-4)
    assert waiting(PERMUTED, first=1.0) == 0.0


def test_transfers_over_the_same_links_follow_each_other():
    start, first, done, second = PERMUTED.splitlines()[:4]
    again = start.replace("%start", "%again")
    also = done.replace("%done", "%also").replace("%start", "%again")
    text = "\n".join([start, again, first, done, also, second, "}", ""])
    assert waiting(text, first=1e-4) == pytest.approx(2 * PERMUTE - 1e-4)


def test_what_goes_to_the_host_has_a_link_of_its_own():
    text = """\
  %to = (f32[8,1024,1024]{2,1,0:S(5)}, f32[8,1024,1024]{2,1,0}, u32[]) copy-start(%p)
  %start = (f32[8,1024,1024]{2,1,0}, f32[8,1024,1024]{2,1,0}, u32[], u32[]) \
collective-permute-start(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %done = f32[8,1024,1024]{2,1,0} collective-permute-done(%start), channel_id=1
  %kept = f32[8,1024,1024]{2,1,0:S(5)} copy-done(%to)
  ROOT %second = f32[8,1024,1024]{2,1,0} negate(%done), metadata={op_name="second"}
}
"""
    assert waiting(text) == pytest.approx(max(PERMUTE, SENT / 32e9))


def test_a_loop_waits_in_each_of_its_rounds():
    text = """HloModule step, is_scheduled=true

%body (state: (s32[], f32[8,1024,1024])) -> (s32[], f32[8,1024,1024]) {
  %state = (s32[], f32[8,1024,1024]{2,1,0}) parameter(0)
  %at = s32[] get-tuple-element(%state), index=0
  %p = f32[8,1024,1024]{2,1,0} get-tuple-element(%state), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%at, %one)
  %start = (f32[8,1024,1024]{2,1,0}, f32[8,1024,1024]{2,1,0}, u32[], u32[]) \
collective-permute-start(%p), channel_id=1, source_target_pairs={{0,1},{1,0}}
  %done = f32[8,1024,1024]{2,1,0} collective-permute-done(%start), channel_id=1
  ROOT %result = (s32[], f32[8,1024,1024]{2,1,0}) tuple(%next, %done)
}

%condition (state.1: (s32[], f32[8,1024,1024])) -> pred[] {
  %state.1 = (s32[], f32[8,1024,1024]{2,1,0}) parameter(0)
  %at.1 = s32[] get-tuple-element(%state.1), index=0
  %limit = s32[] constant(5)
  ROOT %less = pred[] compare(%at.1, %limit), direction=LT
}

ENTRY %main (x: f32[8,1024,1024]) -> (s32[], f32[8,1024,1024]) {
  %x = f32[8,1024,1024]{2,1,0} parameter(0)
  %zero = s32[] constant(0)
  %begin = (s32[], f32[8,1024,1024]{2,1,0}) tuple(%zero, %x)
  ROOT %loop = (s32[], f32[8,1024,1024]{2,1,0}) while(%begin), condition=%condition, body=%body
}
"""
    found, main = computations(text)
    passage = Schedule(found, {}, V6E).run(main)
    assert passage.waiting == passage.seconds == pytest.approx(5 * PERMUTE)


def test_a_sparsecore_sends_from_when_it_is_handed_something_until_it_is_awaited():
    # As libtpu 0.0.51 writes it for TPU7x: asked at ``ask``, given ``ready`` at ``hand``.
    text = """HloModule step, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}, execution_thread="sparsecore"

%sent (s: f32[8,1024,1024]) -> f32[8,1024,1024] {
  %s = f32[8,1024,1024]{2,1,0} parameter(0)
  ROOT %all-reduce.1 = f32[8,1024,1024]{2,1,0} all-reduce(%s), channel_id=1, \
replica_groups={{0,1,2,3,4,5,6,7}}, use_global_device_ids=true, to_apply=%sum
}, execution_thread="sparsecore"

%outer (o: f32[8,1024,1024]) -> f32[8,1024,1024] {
  %o = f32[8,1024,1024]{2,1,0} parameter(0)
  ROOT %call = f32[8,1024,1024]{2,1,0} custom-call(%o), custom_call_target="sparsecore", \
called_computations={%sent}
}, execution_thread="sparsecore"

ENTRY %main (p: f32[8,1024,1024]) -> f32[8,1024,1024] {
  %p = f32[8,1024,1024]{2,1,0} parameter(0)
  %ask = ((), (), (s32[64]{0}, s32[3]{0:S(10)})) async-start(), \
async_execution_thread="sparsecore", calls=%outer
  %ready = f32[8,1024,1024]{2,1,0} exponential(%p), metadata={op_name="ready"}
  %hand = ((f32[8,1024,1024]{2,1,0}), f32[8,1024,1024]{2,1,0}, (s32[64]{0})) \
async-update(%ask, %ready), output_to_operand_aliasing={{2,0}: (0, {2,0})}
  %beside = f32[8,1024,1024]{2,1,0} negate(%p), metadata={op_name="beside"}
  %done = f32[8,1024,1024]{2,1,0} async-done(%hand)
  ROOT %after = f32[8,1024,1024]{2,1,0} add(%done, %beside), metadata={op_name="after"}
}
"""
    found, main = computations(text)
    (ask,) = [instruction for instruction in found[main] if instruction.name == "ask"]
    assert exchange(ask, found, 1) == Exchange("all-reduce", SENT, SENT * 2 * 7 / 8, waits=False)

    def waits(slice_=V6E, **kernel_seconds):
        return Schedule(found, kernel_seconds, slice_).run(main).waiting

    whole = exchange_seconds(Exchange("all-reduce", SENT, SENT * 2 * 7 / 8), V6E)
    assert waits(ready=1.0, after=1.0) == pytest.approx(whole)
    assert waits(ready=1.0, beside=whole / 4) == pytest.approx(whole * 3 / 4)
    assert waits(ready=1.0, beside=1.0) == 0.0
    # On TPU7x, as measured, nothing hides it.
    tpu7x = slice_of("tpu7x-8", jax=True)
    one_device = exchange(ask, found, tpu7x.chip.replicas)
    assert waits(tpu7x, ready=1.0, beside=1.0) == pytest.approx(exchange_seconds(one_device, tpu7x))


@pytest.mark.parametrize(
    ("target", "hops", "links"),
    [("v6e-8", 4, 2), ("v6e-256", 16, 4), ("v6e-64", 32, 2)],  # 16 x 16 chips are a torus
)
def test_a_gather_takes_all_links_of_a_torus_and_two_of_what_is_none(target, hops, links):
    sent = Exchange("all-gather", 8 * SENT, 7 * SENT)
    expected = hops * 2.29e-6 + 7 * SENT / (links * LINK)
    assert exchange_seconds(sent, slice_of(target)) == pytest.approx(expected)


def test_without_a_measurement_links_are_as_fast_as_the_page_says():
    sent = Exchange("collective-permute", SENT, SENT)
    assert exchange_seconds(sent, slice_of("v5e-8")) == pytest.approx(SENT / 50e9)
