"""A function of JAX as XLA's program for a TPU, from shapes and types alone.

JAX writes StableHLO for a TPU on any machine (https://docs.jax.dev/en/latest/aot.html). Imports jax
only inside the functions, and TensorFlow never.
"""

import contextlib
import dataclasses
import functools
import math
import pathlib
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import numpy as np

from tpu_preflight.errors import PreflightError
from tpu_preflight.program import messages
from tpu_preflight.program.from_tensorflow import Parameter, Program
from tpu_preflight.program.messages import Frame, Source
from tpu_preflight.program.tracing import NotCompilable

_ADVICE = tomllib.loads(pathlib.Path(__file__).with_suffix(".toml").read_text("utf-8"))

# Types as StableHLO writes them, where XLA's text has another word.
_TYPES = {"i1": "pred", "complex<f32>": "c64", "complex<f64>": "c128"}


@dataclasses.dataclass(frozen=True)
class Call:
    """A call of Python from inside the compiled function: what it is, and the learner's line."""

    what: str
    source: Source | None


@dataclasses.dataclass(frozen=True)
class Exported:
    """A function of JAX that was traced and written for a TPU."""

    program: Program  # the program; one for all devices where the arguments carry shardings
    # Where it calls back into Python. Counted as if they took no time.
    calls: tuple[Call, ...]
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

    name = getattr(fn, "__name__", None) or type(fn).__name__
    jitted = fn if is_jitted(fn) else jax.jit(fn)
    try:
        with _whole_stacks(jax):
            traced = jitted.trace(*arguments)
            calls = tuple(_calls(traced.jaxpr.jaxpr))
            with _silent(traced.jaxpr.jaxpr) if calls else contextlib.nullcontext():
                lowered = traced.lower(lowering_platforms=("tpu",))
            text = lowered.as_text(debug_info=True)
    except NotCompilable:
        raise
    except Exception as error:  # whatever the learner's function raises is the finding
        raise _refused(error, name) from error
    names, sources, text = _named(text, name)
    main, mesh = _main(lowered.compiler_ir("stablehlo"))
    parameters = [Parameter(n, "argument", _shape(kind)) for n, kind, _ in main]
    program = Program(
        name,
        text.encode(),
        tuple(parameters),
        tuple(_shape(str(t)) for t in _results(lowered.compiler_ir("stablehlo"))),
        tuple(i for i, (_, _, told) in enumerate(main) if _DONATED.search(told)),
        math.prod(size for _, size in mesh),
        names=names,
        form="stablehlo",
        mesh=mesh,
        shardings=tuple(_spec(told) for _, _, told in main) if mesh else (),
    )
    return Exported(
        program,
        calls,
        _float64(text, names, sources),
        sum(getattr(x, "nbytes", 0) for x in traced.jaxpr.consts),
        _rounds(traced.jaxpr.jaxpr),
        sources,
    )


def is_jitted(fn: object) -> bool:
    """Say whether ``jax.jit`` made this."""
    return hasattr(fn, "trace") and hasattr(fn, "lower")


def _refused(error: Exception, name: str) -> NotCompilable:
    kind = next((t.__name__ for t in type(error).__mro__ if t.__name__ in _ADVICE), "other")
    advice = _ADVICE[kind]
    source = messages.source_of(error)
    line = messages.line_of(error)
    at = f" at {source}" if source else ""
    return NotCompilable(
        f"JAX can't trace {name}{at}.",
        advice["why"] if kind != "other" else f"{type(error).__name__}: {line}"[:500],
        advice["fix"],
        type(error).__name__,
        source,
        str(error),
    )


@contextlib.contextmanager
def _whole_stacks(jax: Any) -> Iterator[None]:
    """Keep every frame of an operation: of ten, all may be a library's."""
    option = "jax_traceback_in_locations_limit"
    before = getattr(jax.config, option)
    jax.config.update(option, -1)
    try:
        yield
    finally:
        jax.config.update(option, before)


# --- what the traced function holds -----------------------------------------------------------


def _inside(parameters: Mapping[str, Any]) -> Iterator[Any]:
    """Give the functions that an operation of a jaxpr holds."""
    for value in parameters.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield inner


def _operations(jaxpr: Any) -> Iterator[Any]:
    for operation in jaxpr.eqns:
        yield operation
        for inner in _inside(operation.params):
            yield from _operations(inner)


def _is_call(operation: Any) -> bool:
    name = operation.primitive.name
    return "callback" in name or name == "debug_print"


def _calls(jaxpr: Any) -> Iterator[Call]:
    for operation in filter(_is_call, _operations(jaxpr)):
        stack = getattr(operation.source_info.traceback, "frames", None) or ()
        frames = [(f.file_name, f.line_num, f.function_name) for f in stack]
        what = operation.primitive.name
        yield Call(what, messages.learners_line(frames[::-1]))


@contextlib.contextmanager
def _silent(jaxpr: Any) -> Iterator[None]:
    """Let calls of Python give zeros: jax can't write them for a TPU that isn't there."""
    import jax
    from jax.interpreters import mlir

    def zeros(context: Any, *_: Any, **__: Any) -> list[Any]:
        if len(context.tokens_in):
            context.set_tokens_out(context.tokens_in)
        shapes = ((aval.dtype, aval.shape) for aval in context.avals_out)
        return [mlir.ir_constant(np.broadcast_to(np.zeros((), t), s)) for t, s in shapes]

    if jax.default_backend() == "tpu":
        yield
        return
    table = mlir._platform_specific_lowerings["tpu"]
    entry = type(next(iter(table.values())))
    rules = {o.primitive: entry(zeros, True) for o in _operations(jaxpr) if _is_call(o)}
    with mock.patch.dict(table, rules):
        yield


def _rounds(jaxpr: Any) -> float:
    """Count the rounds of the longest loop."""
    most = 1.0
    for operation in jaxpr.eqns:
        times = operation.params.get("length", 1) if operation.primitive.name == "scan" else 1
        times = math.inf if operation.primitive.name == "while" else times
        most = max([most, times, *(times * _rounds(i) for i in _inside(operation.params))])
    return most


# --- what the text holds ----------------------------------------------------------------------

_ALIAS = re.compile(r"^(#loc\d*) = loc\((.*)\)$", re.MULTILINE)
_NAME = re.compile(r'"((?:[^"\\]|\\.)*)"\((#loc\d*)\)')
_FILE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):')
_TRANSFORM = re.compile(r"\b(?:jvp|transpose|vmap|checkpoint|remat|custom_[jv]+p)\(([^()]*)\)")
_DONATED = re.compile(r"tf\.aliasing_output|jax\.buffer_donor")


def _named(text: str, function: str) -> tuple[tuple[str, ...], dict[str, Source | None], str]:
    """Put numbers for the places in a module's text; give the names and the learner's lines.

    The same function then gives the same text, wherever it stands in its file.
    """
    places = dict(_ALIAS.findall(text))

    @functools.cache
    def frames(place: str) -> tuple[Frame, ...]:
        """The stack of a place, the outermost frame first."""
        told = places.get(place, "")
        if found := _FILE.match(told):
            return ((found[1], int(found[2]), ""),)
        if found := _NAME.match(told):
            inner = frames(found[2])
            is_frame = _FILE.match(places.get(found[2], ""))
            return tuple((f, n, found[1]) for f, n, _ in inner) if is_frame else inner
        if found := re.match(r"callsite\((#loc\d*) at (#loc\d*)\)", told):
            return frames(found[2]) + frames(found[1])
        return tuple(f for part in re.findall(r"#loc\d*", told) for f in frames(part))

    names: dict[str, int] = {}
    sources: dict[str, Source | None] = {}
    known: dict[tuple[str, Source | None], str] = {}

    def place(found: re.Match) -> str:
        told = _NAME.match(found[2])
        if told is None or _FILE.match(places.get(told[2], "")):  # a frame, no operation
            return f"{found[1]} = loc(unknown)"
        path, source = (
            _path(told[1]) or _last_jit(told[1]) or function,
            messages.learners_line(frames(found[1])),
        )
        name, number = known.get((path, source), path), 0
        while (path, source) not in known and name in names:  # another line's operation
            number += 1
            name = f"{path}_{number}"
        known[path, source] = name
        sources[name] = source
        return f'{found[1]} = loc("tf_op_{names.setdefault(name, len(names))}")'

    text = _ALIAS.sub(place, text)
    return tuple(names), sources, re.sub(r'loc\("[^"]*"\("[^)]*\)\)', "loc(unknown)", text)


def _path(name: str) -> str:
    """Give an operation's scopes and its name; its gradient has the same."""
    before = ""
    name = re.sub(r"\bp?jit\([^()]*\)", "", name)
    while name != before:
        before, name = name, _TRANSFORM.sub(r"\1", name)
    return "/".join(p for p in name.split("/") if p not in ("", "closed_call", "jit"))


def _last_jit(name: str) -> str:
    """Give the function that a call without scopes leads to."""
    found = re.findall(r"\bp?jit\(([^()]*)\)", name)
    return re.sub(r"\W", "", found[-1]) if found else ""


def _float64(
    text: str, names: tuple[str, ...], sources: Mapping[str, Source | None]
) -> tuple[str, Source | None] | None:
    """Find the first operation on 64-bit floating-point numbers."""
    numbers = dict(re.findall(r'^(#loc\d*) = loc\("tf_op_(\d+)"\)$', text, re.MULTILINE))
    for line in text.splitlines():
        found = re.search(r"(?:x|<)f64>.*loc\((#loc\d*)\)$", line)
        if found and found[1] in numbers and " = " in line:
            name = names[int(numbers[found[1]])]
            return name.rpartition("/")[2], sources[name]
    return None


def _function(module: Any) -> Any:
    return next(f for f in module.body.operations if "@main" in str(f).split("(", 1)[0])


def _main(module: Any) -> tuple[list[tuple[str, str, str]], tuple[tuple[str, int], ...]]:
    """Give name, type and attributes of the main function's arguments, and the mesh's axes."""
    main = _function(module)
    arguments = list(main.regions[0].blocks[0].arguments)
    told = list(main.attributes["arg_attrs"]) if "arg_attrs" in main.attributes else []
    told = [*map(str, told), *[""] * (len(arguments) - len(told))]
    names = [re.match(r'loc\("(.*)"\)', str(a.location)) for a in arguments]
    for argument in arguments:
        if not str(argument.type).startswith("tensor<"):
            raise NotCompilable(
                "The function calls Python in a fixed order (ordered=True).",
                "jax writes such a program only where a TPU is.",
                "Take ordered=True out for the preflight.",
            )
    listed = [
        (name[1] if name else f"argument {i}", str(argument.type), attributes)
        for i, (name, argument, attributes) in enumerate(zip(names, arguments, told, strict=True))
    ]
    meshes = [str(o) for o in module.body.operations if str(o).startswith("sdy.mesh")]
    if len(meshes) > 1:
        raise PreflightError(
            "The arguments' shardings lie over several meshes.",
            "One program for one mesh is asked about.",
            "Put all arguments over the same mesh.",
        )
    axes = re.findall(r'"(\w+)"=(\d+)', "".join(meshes))
    return listed, tuple((axis, int(size)) for axis, size in axes)


def _results(module: Any) -> list[Any]:
    main = _function(module)
    return [v.type for v in list(main.regions[0].blocks[0].operations)[-1].operands]


def _shape(kind: str) -> str:
    """Write a type of StableHLO as XLA's text does: ``tensor<8x16xf32>`` is ``f32[8,16]``."""
    inside = kind.removeprefix("tensor<").removesuffix(">")
    *sizes, element = re.match(r"((?:\d+x)*)(.*)", inside).groups()
    element = re.sub(r"^i(?=\d)", "s", _TYPES.get(element, element))
    element = re.sub(r"^ui", "u", element).lower()
    return f"{element}[{','.join(re.findall(r'[0-9]+', sizes[0]))}]"


def _spec(told: str) -> tuple[tuple[str, ...], ...]:
    """Read an argument's sharding: the axes of the mesh over which each dimension lies."""
    found = re.search(r"sdy\.sharding<@\w+, \[(.*?)\]", told)
    parts = re.findall(r"\{([^}]*)\}", found[1]) if found else []
    return tuple(tuple(re.findall(r'"(\w+)"', part)) for part in parts)
