"""What would make a step fit that needs more memory than a device has, each with its number.

The batch's number is the compiler's. The others can't be compiled from outside, since they change
the model's code: they are arithmetic on the program's variables and on what lies between them.
"""

import math
import re

from tpu_preflight.chips import hardware
from tpu_preflight.program import Program
from tpu_preflight.text import size

# What optimizers call the variables that they keep for each weight.
_STATE = re.compile(
    r"\b(?:adam\w*|sgd|rmsprop|lamb|adafactor)\b.*/|/(?:m|v|momentum\w*|velocity\w*|vhat)(?::0)?$",
    re.IGNORECASE,
)

BLOCKS = 12  # of a model whose activations are computed again, as in BERT-base


def remedies(
    program: Program, target: str, needed: int, rows: int | None, fitting: int | None
) -> str:
    """List the ways to make a program fit, in the order in which they are easiest.

    By the compiler it needs so many bytes on one device of the target, where ``rows`` of its batch
    are (None without), and ``fitting`` rows would fit (None where that isn't known, 0 if none).
    """
    of_jax = program.form == "stablehlo"
    slice_ = hardware.slice_of(target, jax=True)
    devices, there = slice_.replicas, slice_.chip.available_gib * 2**30
    # Of what lies in parts over a mesh, those of one device.
    axes, every = dict(program.mesh), program.parameters
    shares = [math.prod(axes[x] for axis in s for x in axis) for s in program.shardings]
    held = [p.bytes / n for p, n in zip(every, shares or [1] * len(every), strict=True)]
    state = sum(held[i] for i in program.donated if _STATE.search(every[i].name))
    weights = sum(held[i] for i in program.donated) - state
    between = max(needed - sum(held), 0)

    def arithmetic(after: float) -> str:
        verdict = "would fit" if after <= there else "not enough alone"
        return f"{size(after)} of {size(there)} by arithmetic: {verdict}"

    found = []
    if rows and fitting:
        parts = math.ceil(rows / fitting)
        found.append(f"a smaller batch: {fitting:,} rows on each device fit, by the compiler")
        found.append(
            f"gradient accumulation: {parts} parts of {math.ceil(rows / parts):,} rows, one after "
            f"the other, and {size(weights)} for the sum of their gradients"
        )
    elif rows and fitting == 0:
        found.append("a smaller batch: not enough alone, by the compiler")
    if between:
        half, again = (needed - between * (1 - x) for x in (1 / 2, 2 / math.sqrt(BLOCKS)))
        found.append(f"bfloat16 (mixed precision), if all is float32 now: {arithmetic(half)}")
        recompute = "jax.checkpoint" if of_jax else "tf.recompute_grad"
        found.append(
            f"computing activations again ({recompute} around each of {BLOCKS} equal "
            f"blocks): {arithmetic(again)}"
        )
    for name, part in (("optimizer state", state), ("state and weights", state + weights)):
        if part and devices > 1 and not axes:
            text = f"{name} in parts over {devices} devices, which needs code of your own"
            found.append(f"{text}: {arithmetic(needed - part * (1 - 1 / devices))}")
    kinds = hardware.ALL_CHIPS if of_jax else hardware.CHIPS
    larger = [kind for kind, chip in kinds.items() if chip.available_gib * 2**30 >= needed > there]
    if larger:
        found.append(f"more memory on each device: {', '.join(larger)}")
    return "What would help: " + ";\n".join(found) + "." if found else "Make the model smaller."
