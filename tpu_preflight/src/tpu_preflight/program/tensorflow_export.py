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
_VARIABLE_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd"}

PIPELINE_FIX = "Do this in the input pipeline, before the model, or write it with other operations."
INSIDE_FIX = (
    "Write it with other operations: it computes with the model's variables, so the input pipeline "
    "can't do it."
)
_FIXES = {
    "CTCLoss": _CTC,
    "CTCLossV2": _CTC,
    "summary writer": "Take tf.summary out of the step: return the value, and write it "
    "after the step or from a callback.",
}


@dataclasses.dataclass(frozen=True)
class Parameter:
    """One of the arrays that a program takes."""

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
    # of operations. The same function gives the same bytes, also in another process and under
    # another model's name.
    hlo: bytes = dataclasses.field(repr=False)
    # What it takes: first the arguments, then variables and other captures.
    parameters: tuple[Parameter, ...]
    # Types and shapes of what it returns; updated variables come last.
    results: tuple[str, ...]
    # Positions of the parameters whose memory a result takes over: the variables that the function
    # changes, or ``jax.jit``'s donated arguments.
    donated: tuple[int, ...]
    replicas: int = 1  # how many devices run it together, with their gradients added up
    bounded: tuple[Bounded, ...] = ()  # where sizes come to depend on values, in its order
    # Names of the operations, which begin with their layers; the module holds a name's position
    # instead (`restore_names`).
    names: tuple[str, ...] = dataclasses.field(default=(), repr=False)
    form: str = "hlo"  # of the module: ``hlo``, or ``stablehlo`` (JAX's, as text)
    # Axes and sizes of the devices over which JAX shards it; empty without shardings.
    mesh: tuple[tuple[str, int], ...] = ()
    # For each parameter, the axes of the mesh over which each dimension is sharded.
    shardings: tuple[tuple[tuple[str, ...], ...], ...] = ()
    # Positions of the parameters and of the results that stay in the host's memory.
    host_parameters: tuple[int, ...] = ()
    host_results: tuple[int, ...] = ()


def program(traced: Tracing) -> Program:
    """Let TensorFlow write a graph from `trace` in XLA's operations, or raise `NotCompilable`."""
    from tensorflow.compiler.xla.service import hlo_pb2

    for resource in traced.resources:
        if resource.kind != "variable":
            raise _not_for_xla(resource, traced)
    try:
        write = traced.function.experimental_get_compiler_ir(*traced.specs)
        hlo = write(stage="hlo_serialized")
    except Exception as error:
        raise _refused(error, traced.name, traced.graph) from error
    module = hlo_pb2.HloModuleProto.FromString(hlo)

    # Found by the operations' names, which are replaced by numbers below.
    bounded = tuple(_bounded(module, traced.graph))
    names = _replace_names(module)

    result = module.host_program_shape.result
    results = result.tuple_shapes or [result]
    donated = {alias.parameter_number for alias in module.input_output_alias.entries}
    return Program(
        name=traced.name,
        hlo=module.SerializeToString(deterministic=True),
        parameters=tuple(_parameters(traced, module)),
        results=tuple(map(_shape_text, results)),
        donated=tuple(sorted(donated)),
        replicas=traced.replicas,
        bounded=bounded,
        names=tuple(map(_without_function_number, names)),
    )


def _parameters(traced: Tracing, module: Any) -> Iterator[Parameter]:
    """Name and describe what a module takes: the arguments, then what the function captures."""
    origins = []
    for i, spec in enumerate(traced.specs):
        origins.append((spec.name or f"argument {i}", "argument"))
    variable_names = {id(variable.handle): variable.name for variable in traced.variables}
    for tensor in traced.concrete.captured_inputs:
        if id(tensor) in variable_names:
            origins.append((variable_names[id(tensor)], "variable"))
        else:
            origins.append(("a tensor from outside", "captured"))
    shapes = module.host_program_shape.parameters
    for (name, kind), shape in zip(origins, shapes, strict=True):
        yield Parameter(name, kind, _shape_text(shape))


def _without_function_number(name: str) -> str:
    """Leave out the number that TensorFlow gives to a function, which differs at each tracing."""
    return re.sub(r"(__(?:inference|forward|backward)_\w+?)_\d+", r"\1", name)


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
        if not operations:  # listed only when the first line is looked for
            operations.update(graph_operations(graph))
        operation = operations.get(name)
        if operation is None:
            return None
        return messages.learners_line(_frames(operation))

    return find


def _frames(operation: Any) -> list[Frame]:
    return [(frame.filename, frame.lineno, frame.name) for frame in operation.traceback]


def place_of(operation: Any) -> str:
    """Say where an operation is made: the learner's line, else its layer and a library's line."""
    source = messages.nearest_line(_frames(operation))
    return messages.place(source, messages.layer_of(operation.name))


def _not_for_xla(resource: Resource, traced: Tracing) -> NotCompilable:
    """Say that a table or an iterator is not for XLA, and where it is used."""
    refusal = _use_of_resource(traced.graph)
    return NotCompilable(
        f"{traced.name} uses the {resource.kind}{_at(refusal)}.",
        why=f"The {resource.kind} lives on the host; XLA can't hold it.",
        fix=_FIXES.get(
            resource.kind, "Do this in the input pipeline, and give the step the result."
        ),
        refusal=refusal,
        reason="no kernel",
    )


def _use_of_resource(graph: Any) -> Refusal:
    """Find the first operation that uses a table, an iterator or a summary writer."""
    for operation in graph_operations(graph).values():
        if operation.type.startswith(("LookupTable", "Iterator", "Write")):
            return Refusal(
                line="",
                operation=operation.type,
                source=messages.nearest_line(_frames(operation)),
                layer=messages.layer_of(operation.name),
            )
    return Refusal("")


def _at(refusal: Refusal) -> str:
    if not refusal.where:
        return ""
    return f" at {refusal.where}"


def _refused(error: Exception, name: str, graph: Any) -> NotCompilable:
    """Turn an error of XLA's writer into what happened, why, and what to do."""
    refusal = messages.refusal(error)
    if refusal.operation == "_Arg":
        refusal = dataclasses.replace(refusal, reason="argument", source=None, layer="")
        what = f"{name} has an argument of a type that XLA does not know."
        fix = "Keep strings and the like in the input pipeline; give the step numbers."
    elif refusal.reason == "no kernel":
        what = f"XLA has no {refusal.operation}{_at(refusal)}."
        fix = elsewhere(graph, refusal.operation)
    elif refusal.reason == "size":
        what = f"The size that {refusal.operation} makes depends on a value{_at(refusal)}."
        fix = (
            "Take the size from a Python number or a static shape; or compute at the largest size "
            "and mask."
        )
    else:
        operation = _type_of_node(refusal.node, graph)
        refusal = dataclasses.replace(refusal, reason="", operation=operation)
        what = f"XLA refuses {refusal.operation or name}{_at(refusal)}."
        fix = "Read the line above: it is XLA's own. Cut the function down until it compiles."
    fix = _FIXES.get(refusal.operation, fix)
    return NotCompilable(
        what, why=refusal.line[:500], fix=fix, refusal=refusal, reason=refusal.reason
    )


def elsewhere(graph: Any, operation_type: str) -> str:
    """Say where else to compute what the first operation of a type computes."""
    for operation in graph_operations(graph).values():
        if operation.type == operation_type and _reads_variables(operation):
            return INSIDE_FIX
    return PIPELINE_FIX


def _reads_variables(operation: Any) -> bool:
    """Say whether an operation's inputs are computed from variables, as in a hidden layer."""
    queue = [operation]
    visited = set()
    while queue:
        current = queue.pop()
        if current.name in visited:
            continue
        visited.add(current.name)
        if current.type in _VARIABLE_READS:
            return True
        queue += [tensor.op for tensor in current.inputs]
    return False


def _type_of_node(name: str, graph: Any) -> str:
    """Give the type of the operation of this name; the name where the graph has none."""
    operation = graph_operations(graph).get(name)
    if operation is None:
        return name
    return operation.type


def _shape_text(shape: Any) -> str:
    """Write a shape of XLA's protocol as XLA's text does."""
    from tensorflow.compiler.xla import xla_data_pb2

    kind = xla_data_pb2.PrimitiveType.Name(shape.element_type).lower()
    if kind not in BITS:
        kind = "token"
    # Where no dimension is bounded, the list of bounds may be empty.
    is_bounded = list(shape.is_dynamic_dimension) or [False] * len(shape.dimensions)
    sizes = []
    for size, bounded in zip(shape.dimensions, is_bounded, strict=True):
        sizes.append(f"<={size}" if bounded else str(size))
    return f"{kind}[{','.join(sizes)}]"


def restore_names(text: str, names: Sequence[str]) -> str:
    """Put `Program.names` back into a text that has their positions.

    >>> restore_names("fusion of tf_op_1", ["dense/MatMul", "dense/Relu"])
    'fusion of dense/Relu'
    """
    names_by_mark = {f"tf_op_{i}": name for i, name in enumerate(names)}

    def restore(match: re.Match[str]) -> str:
        return names_by_mark.get(match[0], match[0])

    return re.sub(r"\btf_op_\d+\b", restore, text)


def _replace_names(module: Any) -> list[str]:
    """Make a module's bytes independent of this run: numbers for names, which it gives."""
    # The numbers that TensorFlow gives to functions, and paths of this machine's libraries.
    module.name = "tensorflow"
    module.id = 0
    module.ClearField("stack_frame_index")
    numbers: dict[str, int] = {}  # by the operations' names, in their order
    for i, computation in enumerate(module.computations):
        computation.name = f"computation.{i}"
        if computation.id == module.entry_computation_id:
            module.entry_computation_name = computation.name
        shapes = {instruction.id: instruction.shape for instruction in computation.instructions}
        for instruction in computation.instructions:
            operand_shapes = [shapes[operand] for operand in instruction.operand_ids]
            if instruction.opcode == "reshape" and operand_shapes == [instruction.shape]:
                instruction.opcode = "copy"  # StableHLO can't reshape two bounded dimensions
            metadata = instruction.metadata
            for field in ("source_file", "source_line", "stack_frame_id"):
                metadata.ClearField(field)
            # A model that is made again in the same process has another name: it isn't another
            # program. What XLA makes of a program doesn't depend on the names.
            if metadata.op_name:
                number = numbers.setdefault(metadata.op_name, len(numbers))
                metadata.op_name = f"tf_op_{number}"
    return list(numbers)


def graph_operations(graph: Any) -> dict[str, Any]:
    """List the operations of a graph and of the functions that it calls, by name.

    Of several operations of a name it gives the outermost graph's.
    """
    operations: dict[str, Any] = {}
    graphs = [graph]
    graph_ids = {id(graph)}  # by identity: a graph's equality is TensorFlow's own
    for current in graphs:  # grows meanwhile
        for operation in current.get_operations():
            operations.setdefault(operation.name, operation)
        for function in getattr(current, "_functions", {}).values():
            inner = getattr(function, "graph", None)
            if inner is not None and id(inner) not in graph_ids:
                graph_ids.add(id(inner))
                graphs.append(inner)
    return operations


def _bounded(module: Any, graph: Any) -> Iterator[Bounded]:
    """Find the operations that make a size depend on values, not those that only inherit it."""
    find = line_finder(graph)
    reported_names = set()
    for computation in module.computations:
        dynamic_ids = set()
        for instruction in computation.instructions:
            shape = _bounded_shape(instruction.shape)
            if shape is None:
                continue
            is_inherited = bool(dynamic_ids.intersection(instruction.operand_ids))
            dynamic_ids.add(instruction.id)
            name = instruction.metadata.op_name
            if is_inherited or instruction.opcode == "parameter" or name in reported_names:
                continue
            reported_names.add(name)
            # In a tf.function that was called, the call's name comes before the operation's.
            source = find(name) or find(messages.forward_name(name))
            yield Bounded(_shape_text(shape), instruction.metadata.op_type, name, source)


def _bounded_shape(shape: Any) -> Any:
    """Give the first part of a shape with a size that has a bound; None without one."""
    for part in shape.tuple_shapes or [shape]:
        if any(part.is_dynamic_dimension):
            return part
    return None
