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
from tpu_preflight.program.messages import Frame, Refusal, Source
from tpu_preflight.program.tracing import TIMEOUT, NotCompilable, Resource, Tracing, trace

# What to write instead of what only the host can do, by TensorFlow's name of it; else in general.
_CTC = (
    "Hand in dense labels with their lengths, no SparseTensor, to tf.nn.ctc_loss(labels, logits, "
    "label_length, logit_length, logits_time_major=False, blank_index=...)."
)
_FIXES = {
    "CTCLoss": _CTC,
    "CTCLossV2": _CTC,
    "summary writer": "Take tf.summary out of the step: return the value, and write it "
    "after the step or from a callback.",
}


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


@dataclasses.dataclass(frozen=True)
class Program:
    """A function as XLA's program. Holds plain values only, so it can be pickled."""

    name: str  # the function's name
    # The module, a serialised ``HloModuleProto``, or StableHLO's text, with numbers for the names
    # of operations. The same function gives the same bytes, in another process, too, and under
    # another model's name.
    hlo: bytes = dataclasses.field(repr=False)
    # What it is given: first the arguments, then variables and other captures.
    parameters: tuple[Parameter, ...]
    # Types and shapes of what it gives back; updated variables come last.
    results: tuple[str, ...]
    # Positions of the parameters whose memory a result takes over: the variables that the function
    # changes, or what JAX was told.
    donated: tuple[int, ...]
    replicas: int = 1  # how many devices run it together, with their gradients added up
    bounded: tuple[Bounded, ...] = ()  # where sizes come to depend on values, in its order
    # Names of the operations, which begin with their layers; the module holds a name's position
    # instead (`restore_names`).
    names: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    form: str = "hlo"  # of the module: ``hlo``, or ``stablehlo`` (JAX's, as text)
    # Axes and sizes of the devices over which JAX shards it; empty without shardings.
    mesh: tuple[tuple[str, int], ...] = ()
    # For each parameter, the axes of the mesh over which each dimension lies.
    shardings: tuple[tuple[tuple[str, ...], ...], ...] = ()


def program(traced: Tracing) -> Program:
    """Let TensorFlow write a graph from `trace` in XLA's operations, or raise `NotCompilable`."""
    from tensorflow.compiler.xla.service import hlo_pb2

    for held in traced.resources:
        if held.kind != "variable":
            raise _held(held, traced)
    try:
        hlo = traced.function.experimental_get_compiler_ir(*traced.specs)(stage="hlo_serialized")
    except Exception as error:
        raise _refused(error, traced.name, traced.graph) from error
    module = hlo_pb2.HloModuleProto.FromString(hlo)
    bounded = tuple(_bounded(module, traced.graph))
    names = _numbered(module)

    given = [(spec.name or f"argument {i}", "argument") for i, spec in enumerate(traced.specs)]
    outside = "a tensor from outside", "captured"
    variables = {id(held.handle): (held.name, "variable") for held in traced.variables}
    given += [variables.get(id(x), outside) for x in traced.concrete.captured_inputs]
    shapes = map(_shape_text, module.host_program_shape.parameters)
    result = module.host_program_shape.result
    return Program(
        traced.name,
        module.SerializeToString(deterministic=True),
        tuple(Parameter(*about, shape) for about, shape in zip(given, shapes, strict=True)),
        tuple(map(_shape_text, result.tuple_shapes or [result])),
        tuple(sorted({e.parameter_number for e in module.input_output_alias.entries})),
        traced.replicas,
        bounded,
        tuple(re.sub(r"(__(?:inference|forward|backward)_\w+?)_\d+", r"\1", n) for n in names),
    )


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
    operations: dict[str, Any] = {}

    @functools.cache
    def find(name: str) -> Source | None:
        if not operations:
            operations.update(graph_operations(graph))
        made = operations.get(name)
        return None if made is None else messages.learners_line(_frames(made))

    return find


def _frames(operation: Any) -> list[Frame]:
    return [(f.filename, f.lineno, f.name) for f in operation.traceback]


def place_of(operation: Any) -> str:
    """Say where an operation is made: the learner's line, else its layer and a library's line."""
    source = messages.nearest_line(_frames(operation))
    return messages.place(source, messages.layer_of(operation.name))


def _held(held: Resource, traced: Tracing) -> NotCompilable:
    """Say that a table or an iterator is not for XLA, and where it is used."""
    uses = (
        Refusal(
            "",
            operation=operation.type,
            source=messages.nearest_line(_frames(operation)),
            layer=messages.layer_of(operation.name),
        )
        for operation in graph_operations(traced.graph).values()
        if operation.type.startswith(("LookupTable", "Iterator", "Write"))
    )
    told = next(uses, Refusal(""))
    return NotCompilable(
        f"{traced.name} uses the {held.kind}{_at(told)}.",
        f"The {held.kind} lives on the host; XLA can't hold it.",
        _FIXES.get(held.kind, "Do this in the input pipeline, and hand in what was found."),
        told,
        "no kernel",
    )


def _at(told: Refusal) -> str:
    return f" at {told.where}" if told.where else ""


def _refused(error: Exception, name: str, graph: Any) -> NotCompilable:
    told = messages.refusal(error)
    if told.operation == "_Arg":
        told = dataclasses.replace(told, reason="argument", source=None, layer="")
    elif told.reason not in ("no kernel", "size"):
        made = graph_operations(graph).get(told.node)
        operation = made.type if made is not None else told.node
        told = dataclasses.replace(told, reason="", operation=operation)
    what, fix = {
        "argument": (
            f"{name} has an argument of a type that XLA does not know.",
            "Keep strings and the like in the input pipeline; hand in numbers.",
        ),
        "no kernel": (
            f"XLA has no {told.operation}{_at(told)}.",
            "Do this in the input pipeline, before the model, or write it with other operations.",
        ),
        "size": (
            f"The size that {told.operation} makes depends on a value{_at(told)}.",
            "Take the size from a Python number or a static shape; or compute at the largest size "
            "and mask.",
        ),
        "": (
            f"XLA refuses {told.operation or name}{_at(told)}.",
            "Read the line above: it is XLA's own. Cut the function down until it compiles.",
        ),
    }[told.reason]
    return NotCompilable(what, told.line[:500], _FIXES.get(told.operation, fix), told, told.reason)


def _shape_text(shape: Any) -> str:
    """Write a shape of XLA's protocol as XLA's text does."""
    from tensorflow.compiler.xla import xla_data_pb2

    kind = xla_data_pb2.PrimitiveType.Name(shape.element_type).lower()
    kind = kind if kind in BITS else "token"
    bounds = list(shape.is_dynamic_dimension) or [False] * len(shape.dimensions)
    sizes = (f"{'<=' * b}{n}" for n, b in zip(shape.dimensions, bounds, strict=True))
    return f"{kind}[{','.join(sizes)}]"


def restore_names(text: str, names: Sequence[str]) -> str:
    """Put `Program.names` back into a text that has their positions."""
    known = {f"tf_op_{at}": name for at, name in enumerate(names)}
    return re.sub(r"\btf_op_\d+\b", lambda found: known.get(found[0], found[0]), text)


def _numbered(module: Any) -> list[str]:
    """Make a module's bytes independent of this run: numbers for names, which it gives."""
    # The numbers that TensorFlow gives to functions, and paths of this machine's libraries.
    module.name, module.id = "tensorflow", 0
    module.ClearField("stack_frame_index")
    names: dict[str, int] = {}
    for i, computation in enumerate(module.computations):
        computation.name = f"computation.{i}"
        if computation.id == module.entry_computation_id:
            module.entry_computation_name = computation.name
        shapes = {i.id: i.shape for i in computation.instructions}
        for instruction in computation.instructions:
            before = [shapes[operand] for operand in instruction.operand_ids]
            if instruction.opcode == "reshape" and before == [instruction.shape]:
                instruction.opcode = "copy"  # StableHLO can't reshape two bounded dimensions
            metadata = instruction.metadata
            for field in ("source_file", "source_line", "stack_frame_id"):
                metadata.ClearField(field)
            # A model that is made again in the same process has another name: it isn't another
            # program. What XLA makes of a program doesn't depend on the names.
            if metadata.op_name:
                metadata.op_name = f"tf_op_{names.setdefault(metadata.op_name, len(names))}"
    return list(names)


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
    find, seen = line_finder(graph), set()
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
            name = metadata.op_name  # in a tf.function that was called, the call stands before it
            source = find(name) or find(messages.forward_name(name))
            yield Bounded(_shape_text(bounded[0]), metadata.op_type, name, source)
