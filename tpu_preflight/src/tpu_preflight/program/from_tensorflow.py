"""A TensorFlow function as XLA's program, ready for the TPU's compiler, without running anything.

What refuses here is TensorFlow: while it builds the graph (`tracing`), or while it writes the graph
in XLA's operations. The error says at which operation, and on which of the learner's lines.

Imports TensorFlow only inside `export`.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tpu_preflight.chips.layout import BITS, shape_bytes
from tpu_preflight.program import messages
from tpu_preflight.program.messages import Source
from tpu_preflight.program.tracing import TIMEOUT, NotCompilable, Resource, Tracing, trace


@dataclasses.dataclass(frozen=True)
class Parameter:
    """What a program is given."""

    name: str  # the variable's or the argument's name
    kind: str  # ``argument``, ``variable`` or ``captured`` (another tensor from outside)
    shape: str  # type and shape as XLA writes them: ``f32[32,128]``

    @property
    def bytes(self) -> int:
        """Bytes of the values, without padding."""
        return shape_bytes(self.shape)


@dataclasses.dataclass(frozen=True)
class Bounded:
    """A tensor whose size depends on values; XLA takes the most that is possible."""

    shape: str  # type and shape with the bound: ``f32[<=8]``
    operation: str  # TensorFlow's operation, such as ``Where``; empty where it isn't known
    name: str  # the operation's name in the graph
    source: Source | None = None  # the learner's line, where it can be found

    def __repr__(self) -> str:
        at = f" at {self.source}" if self.source else f" ({self.name})" if self.name else ""
        return f"{self.operation or 'a tensor'} {self.shape}{at}"


@dataclasses.dataclass(frozen=True)
class Program:
    """A function as XLA's program. Holds plain values only, so it can be pickled.

    Attributes:
        name: The function's name.
        hlo: The module, a serialised ``HloModuleProto``, with numbers for TensorFlow's names. The
            same function gives the same bytes, in another process, too, and under another model's
            name.
        parameters: What it is given: first the arguments, then variables and other captures.
        results: Types and shapes of what it gives back; updated variables come last.
        donated: Positions of the parameters whose memory a result takes over: the variables that
            the function changes.
        replicas: How many devices run it together, with their gradients added up.
        bounded: Where sizes come to depend on values, in the order of the program.
        names: TensorFlow's names of the operations, which begin with their layers; the module
            holds a name's position instead (`named`).
        form: Of the module: ``hlo``, or ``stablehlo`` (JAX's, as text).
        mesh: Axes and sizes of the devices over which JAX shards it; empty without shardings.
        shardings: For each parameter, the axes of the mesh over which each dimension lies.
    """

    name: str
    hlo: bytes = dataclasses.field(repr=False)
    parameters: tuple[Parameter, ...] = dataclasses.field(repr=False)
    results: tuple[str, ...] = dataclasses.field(repr=False)
    donated: tuple[int, ...] = dataclasses.field(repr=False)
    replicas: int = 1
    bounded: tuple[Bounded, ...] = ()
    names: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    form: str = "hlo"
    mesh: tuple[tuple[str, int], ...] = ()
    shardings: tuple[tuple[tuple[str, ...], ...], ...] = dataclasses.field(default=(), repr=False)

    def __repr__(self) -> str:
        variables = sum(p.kind == "variable" for p in self.parameters)
        arguments = ", ".join(p.shape for p in self.arguments)
        return f"{self.name}({arguments}) with {variables} variables → {', '.join(self.results)}"

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        """The parameters that the caller hands in."""
        return tuple(p for p in self.parameters if p.kind == "argument")


def program(traced: Tracing) -> Program:
    """Let TensorFlow write a graph from `trace` in XLA's operations, or raise `NotCompilable`."""
    name, graph = traced.name, traced.graph
    for held in traced.resources:
        if held.kind != "variable":
            raise _held(held, traced)
    try:
        hlo = traced.function.experimental_get_compiler_ir(*traced.specs)(stage="hlo_serialized")
    except Exception as error:
        raise _refused(error, name, graph) from error
    return _program(traced, hlo)


def export(
    fn: Callable, *specs: Any, replicas: int = 1, timeout: float | None = TIMEOUT
) -> Program:
    """Trace a function and let TensorFlow make XLA's program of it, without running anything.

    Captured variables become parameters; those that the function changes become results that take
    over their memory, as on a TPU. A function that changes variables (a training step) does not
    change them here.

    Args:
        fn: A function of tensors, a ``tf.function``, or a Keras model; what it returns is kept.
            AutoGraph rewrites it, as ``tf.function`` does.
        *specs: A ``tf.TensorSpec`` for each argument, or nests of them (tuples, lists, dicts). A
            tensor or an array stands for its shape and type: its values are never seen.
        replicas: How many devices run it together. With more than one, Keras optimizers (and
            ``tf.distribute.get_replica_context().all_reduce``) add up gradients across them; the
            specs are those of one replica.
        timeout: Seconds for tracing; None for no limit. Kept in the main thread only.

    Raises:
        NotCompilable: Tracing or XLA refuses, or tracing did not end in time; says the operation
            and the line where it can.
    """
    return program(trace(fn, *specs, replicas=replicas, timeout=timeout))


def line_finder(graph: Any) -> Callable[[str], Source | None]:
    """Give a function that finds the learner's line by TensorFlow's name of an operation.

    It gives None for a name that isn't in the graph, and for what a library made alone.
    """
    operations = graph_operations(graph)

    @functools.cache
    def find(name: str) -> Source | None:
        made = operations.get(name)
        return None if made is None else made_by(made)

    return find


def made_by(operation: Any) -> Source | None:
    """Find the learner's line that made an operation; None for what a library made alone."""
    return messages.learners_line((f.filename, f.lineno, f.name) for f in operation.traceback)


def place_of(operation: Any) -> str:
    """Say where an operation is made: the learner's line, else its layer and a library's line."""
    frames = [(f.filename, f.lineno, f.name) for f in operation.traceback]
    return messages.place(messages.nearest_line(frames), messages.layer_of(operation.name))


def _held(held: Resource, traced: Tracing) -> NotCompilable:
    """Say that a table or an iterator is not for XLA, and where it is used."""
    user = _user(traced.graph)
    source = made_by(user) if user is not None else None
    where = place_of(user) if user is not None else ""
    at = f" at {where}" if where else ""
    return NotCompilable(
        f"{traced.name} uses the {held.kind} {held.name}".rstrip() + f"{at}.",
        f"The {held.kind} lives on the host; XLA can't hold it.",
        "Do this in the input pipeline, and hand in what was found.",
        user.type if user is not None else "",
        source,
        where=where,
        reason="no kernel",
    )


def _user(graph: Any) -> Any:
    """Find the first operation that asks a table or an iterator, in functions, too."""
    operations = graph_operations(graph).values()
    return next((o for o in operations if o.type.startswith(("LookupTable", "Iterator"))), None)


def _refused(error: Exception, name: str, graph: Any) -> NotCompilable:
    told = messages.refusal(error)
    operation, source = told.operation, told.source
    where = messages.place(source, told.layer)
    at = f" at {where}" if where else ""
    if operation == "_Arg":
        what, source, where = f"{name} has an argument of a type that XLA does not know.", None, ""
        fix = "Keep strings and the like in the input pipeline; hand in numbers."
    elif told.reason == "no kernel":
        what = f"XLA has no {operation}{at}."
        fix = "Do this in the input pipeline, before the model, or write it with other operations."
    elif told.reason == "size":
        what = f"The size that {operation} makes depends on a value{at}."
        fix = (
            "Take the size from a Python number or a static shape; or compute at the largest size "
            "and mask."
        )
    else:
        made = graph_operations(graph).get(told.node)
        operation = made.type if made is not None else told.node
        what = f"XLA refuses {operation or name}{at}."
        fix = "Read the line above: it is XLA's own. Cut the function down until it compiles."
    reason = "no kernel" if operation != "_Arg" and told.reason == "no kernel" else ""
    return NotCompilable(what, told.line[:500], fix, operation, source, str(error), where, reason)


def _shape_text(shape: Any) -> str:
    """Write a shape of XLA's protocol as XLA's text does."""
    from tensorflow.compiler.xla import xla_data_pb2

    kind = xla_data_pb2.PrimitiveType.Name(shape.element_type).lower()
    kind = kind if kind in BITS else "token"
    bounds = list(shape.is_dynamic_dimension) or [False] * len(shape.dimensions)
    sizes = (f"{'<=' * b}{n}" for n, b in zip(shape.dimensions, bounds, strict=True))
    return f"{kind}[{','.join(sizes)}]"


def named(text: str, names: Sequence[str]) -> str:
    """Put `Program.names` back into a text that has their positions."""

    def name(found: re.Match) -> str:
        at = int(found[1])
        return names[at] if at < len(names) else found[0]

    return re.sub(r"\btf_op_(\d+)\b", name, text)


def _program(traced: Tracing, hlo: bytes) -> Program:
    """Read from the module what a report needs, and make its bytes independent of this run."""
    from tensorflow.compiler.xla.service import hlo_pb2

    module = hlo_pb2.HloModuleProto.FromString(hlo)
    entry = next(c for c in module.computations if c.id == module.entry_computation_id)
    # The numbers that TensorFlow gives to functions, and paths of this machine's libraries.
    module.name, module.id = "tensorflow", 0
    module.ClearField("stack_frame_index")
    bounded = tuple(_bounded(module, traced.graph))
    names: dict[str, int] = {}
    for i, computation in enumerate(module.computations):
        computation.name = f"computation.{i}"
        shapes = {i.id: i.shape for i in computation.instructions}
        for instruction in computation.instructions:
            before = [shapes[operand] for operand in instruction.operand_ids]
            if instruction.opcode == "reshape" and before == [instruction.shape]:
                instruction.opcode = "copy"  # StableHLO can't reshape two bounded dimensions
            metadata = instruction.metadata
            for field in ("source_file", "source_line", "stack_frame_id"):
                if field in metadata.DESCRIPTOR.fields_by_name:
                    metadata.ClearField(field)
            # A model that is made again in the same process has another name: it isn't another
            # program. What XLA makes of a program doesn't depend on the names.
            if metadata.op_name:
                metadata.op_name = f"tf_op_{names.setdefault(metadata.op_name, len(names))}"
    module.entry_computation_name = entry.name

    variables = {id(held.handle): held.name for held in traced.variables}
    given = [(spec.name or f"argument {i}", "argument") for i, spec in enumerate(traced.specs)]
    for captured in traced.concrete.captured_inputs:
        kind = "variable" if id(captured) in variables else "captured"
        given.append((variables.get(id(captured), "a tensor from outside"), kind))
    shapes = map(_shape_text, module.host_program_shape.parameters)
    parameters = tuple(Parameter(*n, s) for n, s in zip(given, shapes, strict=True))
    result = module.host_program_shape.result
    return Program(
        traced.name,
        module.SerializeToString(deterministic=True),
        parameters,
        tuple(map(_shape_text, result.tuple_shapes or [result])),
        tuple(sorted({e.parameter_number for e in module.input_output_alias.entries})),
        traced.replicas,
        bounded,
        tuple(re.sub(r"(__(?:inference|forward|backward)_\w+?)_\d+", r"\1", n) for n in names),
    )


def graph_operations(graph: Any) -> dict[str, Any]:
    """List the operations of a graph and of the functions that it calls, by name."""
    found, graphs = {}, [graph]
    for known in graphs:
        for operation in known.get_operations():
            found.setdefault(operation.name, operation)
        inner = [getattr(f, "graph", None) for f in getattr(known, "_functions", {}).values()]
        graphs += [g for g in inner if g is not None and all(g is not k for k in graphs)]
    return found


def _bounded(module: Any, graph: Any) -> Iterator[Bounded]:
    """Find the operations that make a size depend on values, not those that only inherit it."""
    operations, seen = None, set()
    for computation in module.computations:
        dynamic = set()
        for instruction in computation.instructions:
            shape, metadata = instruction.shape, instruction.metadata
            parts = shape.tuple_shapes or [shape]
            bounded = [part for part in parts if any(part.is_dynamic_dimension)]
            if not bounded:
                continue
            inherited = dynamic.intersection(instruction.operand_ids)
            dynamic.add(instruction.id)
            if inherited or instruction.opcode == "parameter" or metadata.op_name in seen:
                continue
            seen.add(metadata.op_name)
            operations = graph_operations(graph) if operations is None else operations
            name = metadata.op_name  # in a tf.function that was called, the call stands before it
            made = operations.get(name) or operations.get(messages.forward_name(name))
            source = None if made is None else made_by(made)
            yield Bounded(_shape_text(bounded[0]), metadata.op_type, metadata.op_name, source)
