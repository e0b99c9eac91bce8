"""A function of JAX as XLA's program for a TPU, from shapes and types alone.

JAX writes StableHLO for a TPU on any machine (https://docs.jax.dev/en/latest/aot.html). Imports jax
only inside the functions, and TensorFlow never.
"""

import contextlib
import dataclasses
import functools
import inspect
import math
import pathlib
import re
import sys
import tomllib
import traceback
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
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
_ON_HOST = re.compile(r'mhlo\.memory_kind = "(?:un)?pinned_host"')
# What JAX puts around the name of a function that it transforms.
_TRANSFORM = re.compile(r"\b(?:jvp|transpose|vmap|checkpoint|remat|custom_[jv]+p)\(([^()]*)\)")


@dataclasses.dataclass(frozen=True)
class Result:
    """One array that a function of JAX gives."""

    name: str  # with its place in the nest: ``result[0]['kernel']``
    source: Source | None  # the learner's line that makes it
    # Whether the function says how it is sharded: by ``out_shardings``, or by a constraint.
    is_placed: bool


@dataclasses.dataclass(frozen=True)
class Exported:
    """A function of JAX that was traced and written for a TPU."""

    program: Program  # one for all devices where the arguments carry shardings
    # Its calls of Python, with the learner's lines. Counted as if they took no time.
    calls: tuple[tuple[str, Source | None], ...]
    # The first operation in float64 or complex128, and its line; None without one.
    float64: tuple[str, Source | None] | None
    constants: int  # bytes of the arrays from outside that became part of the program
    # Rounds of its longest loop, nested ones multiplied; infinite where it is unknown.
    rounds: float
    sources: Mapping[str, Source | None]  # the learner's line of each of the program's names
    results: tuple[Result, ...]  # one for each of the program's
    # The learner's lines that fill an array with one value, by its shape: ``f32[8,128]``.
    fills: Mapping[str, Sequence[Source]]
    replicated: tuple[str, ...]  # the shapes that a constraint puts on each device as a whole
    # Pairs of arguments that are one array, of which the step gives the memory away.
    donated_twice: tuple[tuple[str, str], ...]

    def find(self, name: str) -> Source | None:
        """Look up the learner's line of an operation.

        The compiler puts the name of a call before the names inside: the inner line tells more,
        the outer one is the learner's where the function is a library's.
        """
        parts = name.split("/")
        candidates = []
        for i in range(len(parts)):
            candidates.append("/".join(parts[i:]))
        for i in range(len(parts) - 1, 0, -1):
            candidates.append("/".join(parts[:i]))
        for candidate in candidates:
            source = self.sources.get(candidate)
            if source is not None:
                return source
        return None


def export(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Exported:
    """Trace a function of JAX and write its program for a TPU, without running anything.

    Args:
        fn: A function, or what ``jax.jit`` made of one; its donated and static arguments count. Any
            callable with a ``lower`` like that of ``jax.jit`` (Equinox' ``filter_jit``) will do.
        arguments: Arrays or ``jax.ShapeDtypeStruct``s, or nests of them. Those that carry a
            ``NamedSharding`` share one mesh (a ``jax.sharding.AbstractMesh`` needs no devices).

    Raises:
        NotCompilable: JAX refuses; says at which line, and what to write instead. Its reason is
            ``limit`` where JAX might take it on a TPU, and only the preflight can't.

    Example:
        >>> x = jax.ShapeDtypeStruct((8, 128), jnp.float32)  # doctest: +SKIP
        >>> export(jnp.tanh, (x,)).program.results  # doctest: +SKIP
        ('f32[8,128]',)
    """
    from jax._src.config import traceback_in_locations_limit

    name = getattr(fn, "__name__", None) or type(fn).__name__
    # With every frame of an operation: of the usual ten, all may be a library's.
    with traceback_in_locations_limit(-1):
        traced = _trace(fn, arguments, name)
        module = _lower(traced, name)

    # What the module itself says of arguments and results: jax may have left some out, and has
    # flattened nests.
    main = _main(module)
    body = main.regions[0].blocks[0]
    _refuse_tokens(body, traced.jaxpr.jaxpr)
    attributes = _attributes(main, "arg_attrs", len(body.arguments))
    parameters = tuple(_parameter(i, argument) for i, argument in enumerate(body.arguments))
    result = list(body.operations)[-1]
    result_attributes = _attributes(main, "res_attrs", len(result.operands))
    mesh = _mesh(module)
    results = _results(main, result.operands)
    fills = _fills(module)
    # Last, as it changes the module.
    sources, float64, text = _replace_names(module, name)
    program = Program(
        name=name,
        hlo=text.encode(),
        parameters=parameters,
        results=tuple(_shape(value.type) for value in result.operands),
        donated=_positions(_DONATED, attributes),
        replicas=math.prod(size for _, size in mesh),
        names=tuple(sources),
        form="stablehlo",
        mesh=mesh,
        shardings=tuple(map(_spec, attributes)) if mesh else (),
        host_parameters=_positions(_ON_HOST, attributes),
        host_results=_positions(_ON_HOST, result_attributes),
    )
    jaxpr = traced.jaxpr.jaxpr
    return Exported(
        program=program,
        calls=tuple((call.primitive.name, _line(call)) for call in _python_calls(jaxpr)),
        float64=float64,
        constants=sum(getattr(constant, "nbytes", 0) for constant in traced.jaxpr.consts),
        rounds=_rounds(jaxpr),
        sources=sources,
        results=results,
        fills=fills,
        replicated=_replicated(module),
        donated_twice=_donated_twice(arguments, program.donated, len(parameters)),
    )


class _IsTraced(BaseException):
    """Ends a call of ``lower`` once the function is traced; passes through ``except Exception``."""


def _trace(fn: Callable[..., Any], arguments: tuple[Any, ...], name: str) -> Any:
    """Trace a function, as ``jax.jit`` does. Raises `NotCompilable`."""
    import jax
    from jax._src.config import traceback_filtering

    is_plain = not is_jitted(fn)
    if is_plain:
        fn = jax.jit(fn)
    try:
        # With JAX's own frames: one of them may hold the rule that is at fault.
        with traceback_filtering("off"):
            if hasattr(fn, "trace"):
                traced = fn.trace(*arguments)
            else:
                traced = _trace_by_lower(fn, arguments)
    except Exception as error:  # whatever the learner's function raises is the finding
        # JAX speaks of the arguments before it traces anything.
        if is_plain and "as an abstract array" in str(error):
            raise _not_arrays(error, name) from error
        place = _definition(fn)
        raise _refused(error, f"JAX can't trace {name}", _advice(error), place) from error
    # flax.nnx.jit puts what JAX gives into an object of its own.
    traced = getattr(traced, "traced", traced)
    if not hasattr(traced, "jaxpr"):
        raise NotCompilable(
            f"{name} is made by {type(fn).__module__}, and can't be read.",
            "What it gives when it is traced or lowered is not what jax.jit gives.",
            "Hand in a function of arrays, or what jax.jit makes of it.",
            reason="limit",
        )
    return traced


def _trace_by_lower(fn: Any, arguments: tuple[Any, ...]) -> Any:
    """Give what JAX traced before a function lowers it; None where it calls no ``jax.jit``."""
    import jax

    captured = []

    def stop(traced: Any, **_: Any) -> Any:
        captured.append(traced)
        raise _IsTraced

    # It would be lowered for this machine, and a TPU's program can't be made of that.
    with mock.patch.object(jax.stages.Traced, "lower", stop), contextlib.suppress(_IsTraced):
        fn.lower(*arguments)
    return captured[0] if captured else None


def _lower(traced: Any, name: str) -> Any:
    """Write a traced function in StableHLO, for a TPU that isn't here. Raises `NotCompilable`."""
    from jax._src import dispatch
    from jax.interpreters import mlir

    jaxpr = traced.jaxpr.jaxpr
    lowerings = mlir._platform_specific_lowerings["tpu"]
    rules = {}
    # jax can't write calls of Python for a TPU that isn't there.
    rule_type = type(next(iter(lowerings.values())))
    for call in _python_calls(jaxpr):
        rules[call.primitive] = rule_type(_zeros, True)
    # Without them, it needs the devices of a mesh for less.
    need_devices = dispatch.prim_requires_devices_during_lowering - rules.keys()
    # Its kernels say what they compute, as XLA doesn't look into them.
    kernels = {o.primitive for o in _operations(jaxpr) if o.primitive.name == "pallas_call"}
    if kernels:
        constants = dict(zip(jaxpr.constvars, traced.jaxpr.consts, strict=True))
        works = dict(pallas.kernel_work(jaxpr, constants))
        for kernel in kernels:
            rules[kernel] = pallas.counting_rule(mlir._lowerings[kernel], works)
    patched_devices = mock.patch.object(
        dispatch, "prim_requires_devices_during_lowering", need_devices
    )
    with mock.patch.dict(lowerings, rules), patched_devices:
        try:
            return traced.lower(lowering_platforms=("tpu",)).compiler_ir("stablehlo")
        except Exception as error:
            raise _refused_lowering(error, jaxpr, name) from error


def is_jitted(fn: object) -> bool:
    """Say whether ``jax.jit`` made this, or what lowers as that does."""
    return callable(fn) and callable(getattr(fn, "lower", None))


def without_modules(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Callable, tuple]:
    """Turn a function that changes modules of Flax NNX into one of arrays, with its arguments.

    Their state goes in and comes out, each in its own memory, as ``nnx.jit`` does it where it isn't
    told to donate. Any other function is given back as it is: what ``jax.jit`` made changes no
    module.
    """
    import jax

    nnx = sys.modules.get("flax.nnx")
    if nnx is None or type(fn).__module__.startswith("jax"):
        return fn, arguments
    modules = {i: x for i, x in enumerate(arguments) if isinstance(x, nnx.Pytree)}
    if not modules:
        return fn, arguments
    graph, state = nnx.split(modules)

    # The names of its parameters become those of the program's.
    def step(state: Any, *others: Any) -> tuple[Any, Any]:
        merged = nnx.merge(graph, state)
        remaining = iter(others)
        whole_arguments = []
        for i in range(len(arguments)):
            whole_arguments.append(merged[i] if i in merged else next(remaining))
        result = fn(*whole_arguments)
        return result, nnx.state(merged)

    step.__name__ = getattr(fn, "__name__", "step")
    arrays = [x for i, x in enumerate(arguments) if i not in modules]
    return jax.jit(step), (state, *arrays)


def _refused(
    error: Exception,
    what: str,
    advice: Mapping[str, str],
    place: Source | None = None,
    reason: str = "",
) -> NotCompilable:
    """Describe an error of JAX.

    Args:
        error: What JAX, or the function, raised.
        what: What can't be done.
        advice: A row of ``jax_export.toml``.
        place: The learner's line, where the error's own stack doesn't lead to it.
        reason: As for `NotCompilable`.
    """
    source = _backward_rule(error) or messages.source_of(error)
    if source is None and isinstance(error.__cause__, Exception):
        # While it lowers, JAX keeps the stack of the tracing there.
        source = messages.source_of(error.__cause__)
    if source is None:
        source = place
    refusal = messages.Refusal(
        line=messages.line_of(error),
        operation=type(error).__name__,
        source=source,
        layer=messages.layer_in(str(error)),
        text=str(error),
    )
    if refusal.where:
        what += f" at {refusal.where}"
    why = advice["why"] or f"{refusal.operation}: {refusal.line}"[:500]
    return NotCompilable(f"{what}.", why=why, fix=advice["fix"], refusal=refusal, reason=reason)


def _advice(error: Exception) -> Mapping[str, str]:
    """Choose the advice for an error's class, the nearest of its parents that has one, or its text.

    What a library raises says nothing of its kind but its text, and the files of its stack.
    """
    for kind in type(error).__mro__:
        if kind.__name__ in _ADVICE:
            return _ADVICE[kind.__name__]
    files = [frame.f_code.co_filename for frame in _stack(error)]
    for row in _ADVICE["tracing"]:
        match = re.search(row["pattern"], str(error), re.DOTALL)
        if match is None or not any(re.search(row.get("stack", ""), file) for file in files):
            continue
        return {key: row[key].format(**match.groupdict()) for key in ("why", "fix")}
    return _ADVICE["other"]


def _stack(error: BaseException) -> list[types.FrameType]:
    """List the frames of an error, the outermost first."""
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _backward_rule(error: BaseException) -> Source | None:
    """Find the backward rule of a ``custom_vjp`` whose gradients JAX refuses; None otherwise.

    JAX looks at them once the rule has ended, so it isn't in the stack any more.
    """
    frames = _stack(error)
    if not frames or frames[-1].f_code.co_name != "_flatten_bwd":
        return None
    return _definition(frames[-1].f_locals.get("f"))


def _definition(function: Any) -> Source | None:
    """Find the line where a function is defined (of its decorators the first); None of a library's.

    A partial's function may be a library's that calls one of the arguments.
    """
    if isinstance(function, functools.partial):
        for part in (function.func, *function.args):
            source = _definition(part)
            if source is not None:
                return source
        return None
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return None
    return messages.learners_line([(code.co_filename, code.co_firstlineno, code.co_name)])


def _refused_lowering(error: Exception, jaxpr: Any, name: str) -> NotCompilable:
    """Describe an error that JAX raised when it wrote a traced function for a TPU."""
    text = str(error)
    what = f"JAX can't write {name} for a TPU"
    for row in _ADVICE["lowering"]:
        match = re.search(row["pattern"], text)
        if match is None:
            continue
        primitives = row.get("primitives") or match.groups()
        primitive, place = _first_operation(jaxpr, primitives) or (name, None)
        advice = {key: row[key].format(primitive=primitive) for key in ("why", "fix")}
        return _refused(error, what, advice, place, row.get("reason", ""))
    if _advice(error) is not _ADVICE["other"]:
        return _refused(error, what, _advice(error))
    # Anything but a refusal in so many words is a fault of JAX, or of how it is called here.
    is_refusal = isinstance(error, NotImplementedError | TypeError | ValueError)
    if is_refusal or "Lowering" in type(error).__name__:
        return _refused(error, what, _ADVICE["not_lowered"])
    return _refused(error, what, _ADVICE["lowering_failed"], reason="limit")


def _first_operation(jaxpr: Any, primitives: Sequence[str]) -> tuple[str, Source | None] | None:
    """Find the first operation of these primitives; give its primitive and the learner's line."""
    for operation in jaxpr.eqns:
        if operation.primitive.name in primitives:
            return operation.primitive.name, _line(operation)
        for inner in pallas.inside(operation.params):
            match = _first_operation(inner, primitives)
            if match is not None:
                primitive, place = match
                # The stack of what a library compiles begins there: its call has the learner's.
                return primitive, place or _line(operation)
    return None


def _not_arrays(error: Exception, name: str) -> NotCompilable:
    """Describe arguments that ``jax.jit`` doesn't take; the learner's own call may."""
    return _refused(
        error, f"jax.jit, which the preflight calls on {name}, refuses its arguments",
        _ADVICE["not_arrays"], reason="limit",
    )  # fmt: skip


def _refuse_tokens(body: Any, jaxpr: Any) -> None:
    """Refuse a program with tokens among its arguments, which keep calls of Python in order."""
    if all(str(argument.type).startswith("tensor<") for argument in body.arguments):
        return
    source = None
    for call in _python_calls(jaxpr):
        if any("Ordered" in type(effect).__name__ for effect in call.effects):
            source = _line(call)
            break
    raise NotCompilable(
        "The function calls Python in a fixed order (ordered=True).",
        "JAX writes such a program only where a TPU is, so this says nothing of your function.",
        "Take ordered=True out for the preflight, and put it in again afterwards.",
        messages.Refusal("", source=source),
        reason="limit",
    )


# --- what the traced function holds -----------------------------------------------------------


def _operations(jaxpr: Any) -> Iterator[Any]:
    for operation in jaxpr.eqns:
        yield operation
        for inner in pallas.inside(operation.params):
            yield from _operations(inner)


def _python_calls(jaxpr: Any) -> list[Any]:
    return [o for o in _operations(jaxpr) if _CALL.search(o.primitive.name)]


def _line(operation: Any) -> Source | None:
    stack = getattr(operation.source_info.traceback, "frames", None) or ()
    frames = [(frame.file_name, frame.line_num, frame.function_name) for frame in stack]
    frames.reverse()
    return messages.learners_line(frames)


def _zeros(context: Any, *_: Any, **__: Any) -> list[Any]:
    """Write zeros in the place of what a call of Python gives."""
    from jax.interpreters import mlir

    if len(context.tokens_in):
        context.set_tokens_out(context.tokens_in)
    results = []
    for aval in context.avals_out:
        zeros = np.broadcast_to(np.zeros((), aval.dtype), aval.shape)
        results.append(mlir.ir_constant(zeros))
    return results


def _rounds(jaxpr: Any) -> float:
    """Count the rounds of the longest loop; infinite where a ``while`` has no known number."""
    longest = 1.0
    for operation in jaxpr.eqns:
        if operation.primitive.name == "while":
            rounds = math.inf
        elif operation.primitive.name == "scan":
            rounds = operation.params.get("length", 1)
        else:
            rounds = 1
        longest = max(longest, rounds)
        for inner in pallas.inside(operation.params):
            longest = max(longest, rounds * _rounds(inner))
    return longest


# --- what the module holds --------------------------------------------------------------------


def _main(module: Any) -> Any:
    for operation in module.body.operations:
        if str(operation.attributes["sym_name"]) == '"main"':
            return operation
    raise ValueError("a module without a main function")


def _attributes(main: Any, kind: str, count: int) -> list[str]:
    """Give the attributes of each of a function's arguments (or results), as text."""
    if kind not in main.attributes:
        return [""] * count
    return list(map(str, main.attributes[kind])) or [""] * count


def _donated_twice(
    arguments: tuple[Any, ...], donated: Sequence[int], parameters: int
) -> tuple[tuple[str, str], ...]:
    """Name arguments that are the same array, where one of the two is donated."""
    import jax

    leaves, _ = jax.tree.flatten_with_path(arguments)
    # Of arguments that the function doesn't use, or that are static, the program has none.
    if len(leaves) != parameters:
        return ()
    positions: dict[int, int] = {}  # where each array was met first
    pairs = []
    for position, (path, leaf) in enumerate(leaves):
        if not isinstance(leaf, jax.Array):
            continue
        first = positions.setdefault(id(leaf), position)
        if first != position and (first in donated or position in donated):
            pairs.append((_argument(leaves[first][0]), _argument(path)))
    return tuple(pairs)


def _argument(path: Any) -> str:
    """Write where an argument's array is: ``argument 0, .params['w1']``."""
    from jax.tree_util import keystr

    place = keystr(path[1:])
    name = f"argument {path[0].idx}"
    return f"{name}, {place}" if place else name


def _positions(expression: re.Pattern[str], attributes: Sequence[str]) -> tuple[int, ...]:
    """Give the positions of the arguments (or results) whose attributes match."""
    return tuple(i for i, attribute in enumerate(attributes) if expression.search(attribute))


def _results(main: Any, values: Sequence[Any]) -> tuple[Result, ...]:
    """Describe what the main function gives."""
    from jax.extend.mlir import ir

    results = []
    for attribute, value in zip(_attributes(main, "res_attrs", len(values)), values, strict=True):
        name = re.search(r'jax\.result_info = "(.*?)"', attribute)
        source = None
        is_placed = "sdy.sharding" in attribute
        # An argument that is given back has no operation.
        if not isinstance(value.owner, ir.Block):
            source = messages.learners_line(_frames(value.owner.location))
            is_placed = is_placed or value.owner.name == "sdy.sharding_constraint"
        results.append(Result(name[1] if name else "result", source, is_placed))
    return tuple(results)


def _fills(module: Any) -> dict[str, list[Source]]:
    """Find the learner's lines that fill an array with one value, by the array's shape."""
    from jax.extend.mlir import ir

    fills: dict[str, list[Source]] = {}
    for operation in _all_operations(module):
        if operation.name != "stablehlo.broadcast_in_dim":
            continue
        value = operation.operands[0].owner
        if isinstance(value, ir.Block) or value.name != "stablehlo.constant":
            continue
        source = messages.learners_line(_frames(operation.location))
        lines = fills.setdefault(_shape(operation.results[0].type), [])
        if source is not None and source not in lines:
            lines.append(source)
    return fills


def _replicated(module: Any) -> tuple[str, ...]:
    """Give the shapes for which a constraint says that each device has the whole."""
    shapes = []
    for operation in _all_operations(module):
        if operation.name != "sdy.sharding_constraint":
            continue
        if not any(_spec(str(operation.attributes["sharding"]))):
            shapes.append(_shape(operation.results[0].type))
    return tuple(shapes)


class _Names:
    """The names of a module's operations, and which line of the learner's made each."""

    def __init__(self) -> None:
        self.sources: dict[str, Source | None] = {}  # by name; a name's position is its number
        self._entries: dict[tuple[str, Source | None], tuple[int, str]] = {}

    def add(self, path: str, source: Source | None) -> tuple[int, str]:
        """Give the number and the name of an operation; for the same path and line, the same."""
        if (path, source) not in self._entries:
            name = path
            suffix = 0
            while name in self.sources:  # another line's operation
                suffix += 1
                name = f"{path}_{suffix}"
            self._entries[path, source] = (len(self.sources), name)
            self.sources[name] = source
        return self._entries[path, source]


def _replace_names(
    module: Any, function: str
) -> tuple[dict[str, Source | None], tuple[str, Source | None] | None, str]:
    """Put numbers for the names and places of a module's operations, and write it.

    The same function then gives the same text, wherever it is in its file.

    Returns:
        The names with the learner's lines; the first operation on 64-bit floating-point numbers,
        None without one; and the module's text.
    """
    from jax.extend.mlir import ir

    names = _Names()
    entries: dict[Any, tuple[int, str]] = {}  # by a place's attribute, which operations share
    float64 = None
    with module.context:
        for operation in _all_operations(module):
            place = operation.location
            if not isinstance(place, ir.NameLoc):
                operation.location = ir.Location.unknown()
                continue
            if place.attr not in entries:
                source = messages.learners_line(_frames(place))
                entries[place.attr] = names.add(_path(place.name_str) or function, source)
            number, name = entries[place.attr]
            operation.location = ir.Location.name(f"tf_op_{number}")
            if float64 is None and _has_float64(operation):
                float64 = (name.rpartition("/")[2], names.sources[name])
    text = module.operation.get_asm(enable_debug_info=True)
    # What is left are the names of arguments, and their places in the learner's file.
    argument_place = re.compile(r'^(#loc\d*) = loc\((?!"tf_op_).*$', re.MULTILINE)
    return names.sources, float64, argument_place.sub(r"\1 = loc(unknown)", text)


def _all_operations(module: Any) -> list[Any]:
    """List a module's operations, those inside others after these, without the module itself."""
    from jax.extend.mlir import ir

    operations: list[Any] = []

    def collect(operation: Any) -> Any:
        operations.append(operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(collect, ir.WalkOrder.PRE_ORDER)
    return operations[1:]


def _has_float64(operation: Any) -> bool:
    """Say whether an operation takes or gives float64 or complex128."""
    values = (*operation.operands, *operation.results)
    return any("f64>" in str(value.type) for value in values)


def _frames(place: Any) -> list[Frame]:
    """Give the stack of a place, the outermost frame first."""
    from jax.extend.mlir import ir

    if isinstance(place, ir.CallSiteLoc):
        return _frames(place.caller) + _frames(place.callee)
    if isinstance(place, ir.FusedLoc):
        frames = []
        for part in place.locations:
            frames += _frames(part)
        return frames
    if not isinstance(place, ir.NameLoc):
        return []
    inner = place.child_loc
    if isinstance(inner, ir.FileLineColLoc):
        return [(inner.filename, inner.start_line, place.name_str)]
    return _frames(inner)


def _path(name: str) -> str:
    """Give an operation's scopes and its name, which its gradient has as well.

    A call without scopes has the name of the function that it leads to.

    >>> _path("jit(step)/transpose(jvp(dense))/dot_general")
    'dense/dot_general'
    """
    path = re.sub(r"\bp?jit\([^()]*\)", "", name)
    # Transformations are nested, and each round takes the innermost away.
    while _TRANSFORM.search(path):
        path = _TRANSFORM.sub(r"\1", path)
    path = "/".join(part for part in path.split("/") if part not in ("", "closed_call", "jit"))
    if path:
        return path
    functions = re.findall(r"\bp?jit\(([^()]*)\)", name)
    if not functions:
        return ""
    return re.sub(r"\W", "", functions[-1])


def _mesh(module: Any) -> tuple[tuple[str, int], ...]:
    """Give the axes of the devices over which the arguments are sharded, and their sizes."""
    operations = map(str, module.body.operations)
    meshes = [text for text in operations if text.startswith("sdy.mesh")]
    if not meshes:
        return ()
    if len(meshes) > 1:
        raise PreflightError(
            "The arguments' shardings use several meshes.",
            "One program is compiled for one mesh.",
            "Put all arguments on the same mesh.",
        )
    return tuple((axis, int(size)) for axis, size in re.findall(r'"(\w+)"=(\d+)', meshes[0]))


def _parameter(number: int, argument: Any) -> Parameter:
    name = getattr(argument.location, "name_str", f"argument {number}")
    return Parameter(name, "argument", _shape(argument.type))


def _shape(kind: Any) -> str:
    """Write a type of StableHLO as XLA's text does: ``tensor<8x16xf32>`` is ``f32[8,16]``."""
    element = str(kind.element_type)
    element = _TYPES.get(element, element).lower()
    # Signed integers are i32 in StableHLO and s32 in XLA, unsigned ones ui32 and u32.
    element = re.sub(r"^ui(?=\d)", "u", element)
    element = re.sub(r"^i(?=\d)", "s", element)
    return f"{element}[{','.join(map(str, kind.shape))}]"


def _spec(attributes: str) -> tuple[tuple[str, ...], ...]:
    """Read an argument's sharding: the axes of the mesh over which each dimension is sharded."""
    sharding = re.search(r"sdy\.sharding<@\w+, \[(.*?)\]", attributes)
    if sharding is None:
        return ()
    dimensions = re.findall(r"\{([^}]*)\}", sharding[1])
    return tuple(tuple(re.findall(r'"(\w+)"', axes)) for axes in dimensions)
