"""What would help a kernel: programs with a fault, and the same without it, by the compiler."""

import programs
import pytest
import tensorflow as tf
from programs import compile_all

from tpu_preflight.compiler import export, profile
from tpu_preflight.compiler.memory import padding_remedy, tiled

SPEC = tf.TensorSpec


def precision(dtype):
    def step(x, w):
        x = tf.cast(x, dtype)
        w = tf.cast(w, dtype)
        for _ in range(2):
            x = tf.nn.relu(x @ w)
            x = x - tf.reduce_mean(x, 0)
        return tf.reduce_sum(tf.cast(x, tf.float32))

    return step, SPEC([2**18, 256]), SPEC([256, 256])


def all_advice(step_profile):
    """List the advice on all kernels, the longest kernel's first."""
    advice = []
    for kernel in step_profile.kernels:
        advice += kernel.advice
    return advice


@pytest.mark.slow
class TestWithGooglesCompiler:
    pytestmark = programs.COMPILER

    def test_advice_is_given_where_it_helps(self):
        programs = [export(*precision("float32")), export(*precision("bfloat16"))]
        slow_program, fast_program = compile_all(programs, "v5e-1", effort="full")
        slow = profile(slow_program)
        fast = profile(fast_program)
        assert fast.seconds < slow.seconds

        remedy = "(mixed precision) halves that"
        slow_advice = all_advice(slow)
        assert slow_advice[0].kind == "float32"
        assert remedy in slow_advice[0].text
        for kernel in slow.kernels:
            for advice in kernel.advice:
                assert 0 < advice.seconds <= kernel.seconds
        assert any(remedy in share.help for share in slow.by_operation())
        for advice in all_advice(fast):
            assert remedy not in advice.text


@pytest.mark.parametrize(
    ("shape", "remedy"),
    [
        ("f32[4096,1]{1,0:T(8,128)}", "fills 1 of 128 places, 99% of the tile is empty; drop"),
        ("f32[8,224,224,3]{3,2,1,0:T(8,128)}", "an image has no more channels"),
        ("bf16[64,100]{1,0:T(8,128)(2,1)}", "128 instead of 100 would cost the same"),
        ("f32[16,128]{0,1:T(8,128)}", "a larger batch fills it (its first dimension, up to 128)"),
        ("s32[9,6]{1,0:T(8,128)}", "fills 6 of 128 places, 95% of the tile is empty; merge it"),
    ],
)
def test_a_padded_dimension_is_named_with_its_remedy(shape, remedy):
    assert remedy in padding_remedy(tiled(shape))
