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
        x, w = tf.cast(x, dtype), tf.cast(w, dtype)
        for _ in range(2):
            x = tf.nn.relu(x @ w)
            x = x - tf.reduce_mean(x, 0)
        return tf.reduce_sum(tf.cast(x, tf.float32))

    return step, SPEC([2**18, 256]), SPEC([256, 256])


@pytest.mark.slow
class TestWithGooglesCompiler:
    pytestmark = programs.COMPILER

    def test_advice_is_given_where_it_helps(self):
        both = [export(*precision(dtype)) for dtype in ("float32", "bfloat16")]
        slow, fast = map(profile, compile_all(both, "v5e-1", effort="full"))
        told, says = [a for k in slow.kernels for a in k.advice], "(mixed precision) halves that"
        assert told[0].kind == "float32" and says in told[0].text
        assert all(0 < a.seconds <= k.seconds for k in slow.kernels for a in k.advice)
        assert any(says in share.help for share in slow.by_operation())
        assert fast.seconds < slow.seconds
        assert says not in " ".join(a.text for k in fast.kernels for a in k.advice)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ("f32[4096,1]{1,0:T(8,128)}", "fills 1 of 128 places, 99% of the tile is empty; drop"),
        ("f32[8,224,224,3]{3,2,1,0:T(8,128)}", "an image has no more channels"),
        ("bf16[64,100]{1,0:T(8,128)(2,1)}", "128 instead of 100 would cost the same"),
        ("f32[16,128]{0,1:T(8,128)}", "a larger batch fills it (its first dimension, up to 128)"),
        ("s32[9,6]{1,0:T(8,128)}", "fills 6 of 128 places, 95% of the tile is empty; merge it"),
    ],
)
def test_a_padded_dimension_is_named_with_what_mends_it(shape, says):
    assert says in padding_remedy(tiled(shape))
