"""A function of JAX as XLA's program for a TPU, from shapes and types alone.

JAX writes StableHLO for a TPU on any machine (https://docs.jax.dev/en/latest/aot.html). Imports jax
only inside the functions, and TensorFlow never.
"""

import dataclasses
import functools
import math
import pathlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np

from tpu_preflight.errors import PreflightError
from tpu_preflight.program import messages, pallas
from tpu_preflight.program.messages import Frame, Source
from tpu_preflight.program.tensorflow_export import Parameter, Program
from tpu_preflight.program.tracing import NotCompilable

_ADVICE = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text("utf-8"))

# Types as StableHLO writes them, where XLA's text has another word.
_TYPES = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}

_CALL = re.compile(r"callback|^debug_print$")  # an operation that calls Python
_DONATED = re.compile(r"tf\.aliasing_output|jax\.buffer_donor")
# What JAX puts around the name of a function that it transforms.
_TRANSFORM = re.compile(r"\b(?:jvp|transpose|vmap|checkpoint|remat|custom_[jv]+p)\(([^()]*)\)")


@dataclasses.dataclass(frozen=True)
class Exported:
    """A function of JAX that was traced and written for a TPU."""

    program: Program  # the program; one for all devices where the arguments carry shardings
    # Its calls of Python, with the learner's lines. Counted as if they took no time.
    calls: tuple[tuple[str, Source | None], ...]
    # The first operation in float64 or complex128, and its line; None without one.
    float64: tuple[str, Source | None] | None
    constants: int  # bytes of the arrays from outside that became part of the program
    # Rounds of its longest loop, nested ones multiplied; infinite where it is unknown.
    rounds: float
    sources: Mapping[str, Source | None]  # the learner's line of each of the program's names

    def find(self, name: str) -> Source | None:
        """Look up the learner's line of an operation.

        The compiler puts the name of a call before the names inside: the inner line tells more,
        the outer one is the learner's where the function is a library's.
        """
        parts = name.split("/")
        inner = ("/".join(parts[i:]) for i in range(len(parts)))
        outer = ("/".join(parts[:i]) for i in range(len(parts) - 1, 0, -1))
        return next(filter(None, map(self.sources.get, (*inner, *outer))), None)


def export(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Exported:
    """Trace a function of JAX and write its program for a TPU, without running anything.

    Args:
        fn: A function, or what ``jax.jit`` made of one; its donated and static arguments count.
        arguments: Arrays or ``jax.ShapeDtypeStruct``s, or nests of them. Those that carry a
            ``NamedSharding`` share one mesh (a ``jax.sharding.AbstractMesh`` needs no devices).

    Raises:
        NotCompilable: JAX refuses; says at which line, and what to write instead.
    """
    import jax
    from jax._src.config import traceback_in_locations_limit
    from jax.interpreters import mlir

    name = getattr(fn, "__name__", None) or type(fn).__name__
    jitted = fn if is_jitted(fn) else jax.jit(fn)
    lowerings = mlir._platform_specific_lowerings["tpu"]
    try:
        # With every frame of an operation: of the usual ten, all may be a library's.
        with traceback_in_locations_limit(-1):
            # flax.nnx.jit puts what JAX gives into an object of its own.
            traced = getattr(made := jitted.trace(*arguments), "traced", made)
            jaxpr = traced.jaxpr.jaxpr
            calls = [o for o in _operations(jaxpr) if _CALL.search(o.primitive.name)]
            # jax can't write calls of Python for a TPU that isn't there.
            rule = type(next(iter(lowerings.values())))(_zeros, True)
            rules = {call.primitive: rule for call in calls}
            kinds = {o.primitive for o in _operations(jaxpr) if o.primitive.name == "pallas_call"}
            for kind in kinds:
                found = pallas.counted(
                    jaxpr, dict(zip(jaxpr.constvars, traced.jaxpr.consts, strict=True))
                )
                rules[kind] = pallas.lowering(mlir._lowerings[kind], dict(found))
            with mock.patch.dict(lowerings, rules):
                module = traced.lower(lowering_platforms=("tpu",)).compiler_ir("stablehlo")
    except Exception as error:  # whatever the learner's function raises is the finding
        raise _refused(error, name) from error
    (main,) = (o for o in module.body.operations if str(o.attributes["sym_name"]) == '"main"')
    inside, attributes = main.regions[0].blocks[0], main.attributes
    about = map(str, attributes["arg_attrs"]) if "arg_attrs" in attributes else ()
    about = [*about] or [""] * len(inside.arguments)
    parameters = tuple(_parameter(i, argument) for i, argument in enumerate(inside.arguments))
    mesh = _mesh(module)
    sources, float64, text = _numbered(module, name)
    program = Program(
        name,
        text.encode(),
        parameters,
        tuple(_shape(value.type) for value in list(inside.operations)[-1].operands),
        tuple(i for i, told in enumerate(about) if _DONATED.search(told)),
        math.prod(size for _, size in mesh),
        names=tuple(sources),
        form="stablehlo",
        mesh=mesh,
        shardings=tuple(map(_spec, about)) if mesh else (),
    )
    return Exported(
        program,
        tuple((call.primitive.name, _line(call)) for call in calls),
        float64,
        sum(getattr(x, "nbytes", 0) for x in traced.jaxpr.consts),
        _rounds(jaxpr),
        sources,
    )


def is_jitted(fn: object) -> bool:
    """Say whether ``jax.jit`` made this."""
    return hasattr(fn, "trace") and hasattr(fn, "lower")


def without_modules(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Callable, tuple]:
    """Turn a function that changes modules of Flax NNX into one of arrays, with its arguments.

    Their state goes in and comes out, each in its own memory, as ``nnx.jit`` does it where it isn't
    told to donate. Any other function is given back as it is: what ``jax.jit`` made changes no
    module.
    """
    import jax

    nnx = sys.modules.get("flax.nnx")
    modules = {i: x for i, x in enumerate(arguments) if nnx and isinstance(x, nnx.Pytree)}
    if not modules or type(fn).__module__.startswith("jax"):
        return fn, arguments
    graph, state = nnx.split(modules)

    def step(state: Any, *others: Any) -> tuple[Any, Any]:
        merged, left = nnx.merge(graph, state), iter(others)
        result = fn(*(merged[i] if i in merged else next(left) for i in range(len(arguments))))
        return result, nnx.state(merged)

    step.__name__ = getattr(fn, "__name__", "step")
    others = [x for i, x in enumerate(arguments) if i not in modules]
    return jax.jit(step), (state, *others)


def _refused(error: Exception, name: str) -> NotCompilable:
    kind = next((t.__name__ for t in type(error).__mro__ if t.__name__ in _ADVICE), "other")
    told = messages.Refusal(
        messages.line_of(error),
        operation=type(error).__name__,
        source=messages.source_of(error),
        text=str(error),
    )
    return NotCompilable(
        f"JAX can't trace {name}" + (f" at {told.where}." if told.where else "."),
        _ADVICE[kind]["why"] or f"{told.operation}: {told.line}"[:500],
        _ADVICE[kind]["fix"],
        told,
    )


# --- what the traced function holds -----------------------------------------------------------


def _operations(jaxpr: Any) -> Iterator[Any]:
    for operation in jaxpr.eqns:
        yield operation
        for inner in pallas.inside(operation.params):
            yield from _operations(inner)


def _line(operation: Any) -> Source | None:
    stack = getattr(operation.source_info.traceback, "frames", None) or ()
    frames = [(f.file_name, f.line_num, f.function_name) for f in stack]
    return messages.learners_line(frames[::-1])


def _zeros(context: Any, *_: Any, **__: Any) -> list[Any]:
    """Write zeros in the place of what a call of Python gives."""
    from jax.interpreters import mlir

    if len(context.tokens_in):
        context.set_tokens_out(context.tokens_in)
    shapes = ((aval.dtype, aval.shape) for aval in context.avals_out)
    return [mlir.ir_constant(np.broadcast_to(np.zeros((), t), s)) for t, s in shapes]


def _rounds(jaxpr: Any) -> float:
    """Count the rounds of the longest loop."""
    most = 1.0
    for operation in jaxpr.eqns:
        times = operation.params.get("length", 1) if operation.primitive.name == "scan" else 1
        times = math.inf if operation.primitive.name == "while" else times
        most = max([most, times, *(times * _rounds(i) for i in pallas.inside(operation.params))])
    return most


# --- what the module holds --------------------------------------------------------------------


def _numbered(
    module: Any, function: str
) -> tuple[dict[str, Source | None], tuple[str, Source | None] | None, str]:
    """Put numbers for the names and places of a module's operations, and write it.

    The same function then gives the same text, wherever it stands in its file. Gives the names with
    the learner's lines, and the first operation on 64-bit floating-point numbers, too.
    """
    from jax.extend.mlir import ir

    sources: dict[str, Source | None] = {}
    places: dict[Any, tuple[int, str]] = {}
    float64 = None

    @functools.cache
    def added(path: str, source: Source | None) -> tuple[int, str]:
        name, number = path, 0
        while name in sources:  # another line's operation
            number += 1
            name = f"{path}_{number}"
        sources[name] = source
        return len(sources) - 1, name

    operations: list[Any] = []
    module.operation.walk(
        lambda each: operations.append(each) or ir.WalkResult.ADVANCE, ir.WalkOrder.PRE_ORDER
    )
    with module.context:
        for operation in operations[1:]:
            place = operation.location
            if not isinstance(place, ir.NameLoc):
                operation.location = ir.Location.unknown()
                continue
            if place.attr not in places:
                source = messages.learners_line(_frames(place))
                places[place.attr] = added(_path(place.name_str) or function, source)
            number, name = places[place.attr]
            operation.location = ir.Location.name(f"tf_op_{number}")
            values = (*operation.operands, *operation.results)
            if float64 is None and any("f64>" in str(value.type) for value in values):
                float64 = name.rpartition("/")[2], sources[name]
    text = module.operation.get_asm(enable_debug_info=True)
    of_arguments = re.compile(r'^(#loc\d*) = loc\((?!"tf_op_).*$', re.MULTILINE)
    return sources, float64, of_arguments.sub(r"\1 = loc(unknown)", text)


def _frames(place: Any) -> list[Frame]:
    """Give the stack of a place, the outermost frame first."""
    from jax.extend.mlir import ir

    if isinstance(place, ir.CallSiteLoc):
        return _frames(place.caller) + _frames(place.callee)
    if isinstance(place, ir.FusedLoc):
        return [frame for part in place.locations for frame in _frames(part)]
    if not isinstance(place, ir.NameLoc):
        return []
    inner = place.child_loc
    if isinstance(inner, ir.FileLineColLoc):
        return [(inner.filename, inner.start_line, place.name_str)]
    return _frames(inner)


def _path(name: str) -> str:
    """Give an operation's scopes and its name, which its gradient has, too.

    A call without scopes has the name of the function that it leads to.
    """
    called = re.findall(r"\bp?jit\(([^()]*)\)", name)
    before, path = "", re.sub(r"\bp?jit\([^()]*\)", "", name)
    while path != before:
        before, path = path, _TRANSFORM.sub(r"\1", path)
    path = "/".join(p for p in path.split("/") if p not in ("", "closed_call", "jit"))
    return path or re.sub(r"\W", "", "".join(called[-1:]))


def _mesh(module: Any) -> tuple[tuple[str, int], ...]:
    """Give the axes of the devices over which the arguments lie, and their sizes."""
    meshes = [str(o) for o in module.body.operations if str(o).startswith("sdy.mesh")]
    if len(meshes) > 1:
        raise PreflightError(
            "The arguments' shardings lie over several meshes.",
            "One program for one mesh is asked about.",
            "Put all arguments over the same mesh.",
        )
    return tuple((axis, int(n)) for axis, n in re.findall(r'"(\w+)"=(\d+)', "".join(meshes)))


def _parameter(number: int, argument: Any) -> Parameter:
    if not str(argument.type).startswith("tensor<"):
        raise NotCompilable(
            "The function calls Python in a fixed order (ordered=True).",
            "jax writes such a program only where a TPU is.",
            "Take ordered=True out for the preflight.",
        )
    name = getattr(argument.location, "name_str", f"argument {number}")
    return Parameter(name, "argument", _shape(argument.type))


def _shape(kind: Any) -> str:
    """Write a type of StableHLO as XLA's text does: ``tensor<8x16xf32>`` is ``f32[8,16]``."""
    element = str(kind.element_type)
    element = _TYPES.get(element, element).lower()
    element = re.sub(r"^(u?)i(?=\d)", lambda found: found[1] or "s", element)
    return f"{element}[{','.join(map(str, kind.shape))}]"


def _spec(told: str) -> tuple[tuple[str, ...], ...]:
    """Read an argument's sharding: the axes of the mesh over which each dimension lies."""
    found = re.search(r"sdy\.sharding<@\w+, \[(.*?)\]", told)
    parts = re.findall(r"\{([^}]*)\}", found[1]) if found else []
    return tuple(tuple(re.findall(r'"(\w+)"', part)) for part in parts)
