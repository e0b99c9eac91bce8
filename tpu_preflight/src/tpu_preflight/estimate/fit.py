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
    program: Program,
    target: str,
    needed_bytes: int,
    rows: int | None,
    fitting_rows: int | None,
) -> str:
    """List the ways to make a program fit, in the order in which they are easiest.

    Args:
        program: What doesn't fit.
        target: What it was compiled for, such as ``v5e-8``.
        needed_bytes: What it needs on one device of the target, by the compiler.
        rows: Rows of its batch on each device; None where a batch has no rows.
        fitting_rows: How many of them would fit; 0 if none, None where that isn't known.
    """
    slice_ = hardware.slice_of(target, jax=True)
    devices = slice_.replicas
    available_bytes = slice_.chip.available_gib * 2**30
    parameter_bytes = _bytes_on_a_device(program)
    # Donated are the variables that the step updates: weights, and what an optimizer keeps.
    variable_bytes = 0
    state_bytes = 0
    for i in program.donated:
        variable_bytes += parameter_bytes[i]
        if _STATE.search(program.parameters[i].name):
            state_bytes += parameter_bytes[i]
    weight_bytes = variable_bytes - state_bytes
    activation_bytes = max(needed_bytes - sum(parameter_bytes), 0)

    def arithmetic(freed_bytes: float) -> str:
        """Say what is needed without so many bytes, and whether that would fit."""
        remaining_bytes = needed_bytes - freed_bytes
        verdict = "would fit" if remaining_bytes <= available_bytes else "not enough alone"
        return f"{size(remaining_bytes)} of {size(available_bytes)} by arithmetic: {verdict}"

    # A batch can be made smaller without other code.
    lines = []
    if rows and fitting_rows:
        parts = math.ceil(rows / fitting_rows)
        lines.append(f"a smaller batch: {fitting_rows:,} rows on each device fit, by the compiler")
        lines.append(
            f"gradient accumulation: {parts} parts of {math.ceil(rows / parts):,} rows, one after "
            f"the other, and {size(weight_bytes)} for the sum of their gradients"
        )
    elif rows and fitting_rows == 0:
        lines.append("a smaller batch: not enough alone, by the compiler")

    uses_jax = program.form == "stablehlo"
    if activation_bytes:
        halved = arithmetic(activation_bytes * (1 - 1 / 2))
        lines.append(f"bfloat16 (mixed precision), if all is float32 now: {halved}")
        # With n blocks, the share 2 / √n of the activations remains.
        recomputed = arithmetic(activation_bytes * (1 - 2 / math.sqrt(BLOCKS)))
        function = "jax.checkpoint" if uses_jax else "tf.recompute_grad"
        lines.append(
            f"computing activations again ({function} around each of {BLOCKS} equal blocks): "
            f"{recomputed}"
        )

    # A program with a mesh is divided already.
    if devices > 1 and not program.mesh:
        divisible = {"optimizer state": state_bytes, "state and weights": variable_bytes}
        for name, bytes_ in divisible.items():
            if bytes_:
                lines.append(
                    f"{name} in parts over {devices} devices, which needs your own code: "
                    f"{arithmetic(bytes_ * (1 - 1 / devices))}"
                )

    larger = _larger_chips(needed_bytes, available_bytes, uses_jax)
    if larger:
        lines.append(f"more memory on each device: {', '.join(larger)}")
    if not lines:
        return "Make the model smaller."
    return "What would help: " + ";\n".join(lines) + "."


def _bytes_on_a_device(program: Program) -> list[float]:
    """Compute what each parameter takes on one device: its part, where it is sharded."""
    axis_sizes = dict(program.mesh)
    sizes = []
    for i, parameter in enumerate(program.parameters):
        parts = 1
        if program.shardings:
            for axes in program.shardings[i]:
                for axis in axes:
                    parts *= axis_sizes[axis]
        sizes.append(parameter.bytes / parts)
    return sizes


def _larger_chips(needed_bytes: int, available_bytes: float, uses_jax: bool) -> list[str]:
    """Name the kinds of TPU on which it would fit as it is; none where it fits here."""
    if needed_bytes <= available_bytes:
        return []
    kinds = hardware.ALL_CHIPS if uses_jax else hardware.CHIPS
    return [kind for kind, chip in kinds.items() if chip.available_gib * 2**30 >= needed_bytes]
