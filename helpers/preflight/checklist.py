"""Is this model ready for a TPU? The checklist of the source documents, carried out.

Seven checks (``helpers.preflight.report.CHECKS``): some look at the Python objects, some run a
few real batches on this CPU, and some ask Google's TPU compiler (``helpers.xla.tpu_compiler``).
Nothing runs on a TPU, and the learner's variables hold afterwards what they held before.
"""

import concurrent.futures
import contextlib
import dataclasses
import inspect
import linecache
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from helpers.base.errors import CourseError
from helpers.base.messages import steady
from helpers.preflight import pipeline
from helpers.preflight.report import FAIL, OPEN, PASS, WARN, Estimate, Item, Report, big
from helpers.tpu import hardware
from helpers.xla import tpu_compiler
from helpers.xla.compare import functions_run_eagerly
from helpers.xla.program import NotCompilable, Program, Source, export, program, trace

# Batches are compared on a CPU. With this many parameters, or values in one tensor of a batch (of
# images), a whole training step takes long there: then a few rows go through the test step.
MANY_PARAMETERS = 30_000_000
MANY_VALUES = 1_000_000
FEW_ROWS = 4
FEW_SHAPES = 8  # each is a compilation; more than these make a short run wait for XLA
RELATIVE, ABSOLUTE = 1e-3, 1e-5  # rounding that another order of additions brings

# Other numbers at each call; and those of a seed, which XLA may draw by another algorithm.
DRAWN = {
    "Multinomial",
    "ParameterizedTruncatedNormal",
    "RandomGammaV2",
    "RandomPoissonV2",
    "RandomShuffle",
    "RandomStandardNormal",
    "RandomUniform",
    "RandomUniformInt",
    "StatefulStandardNormalV2",
    "StatefulUniform",
    "TruncatedNormal",
}
SEEDED = {
    "StatelessRandomUniformV2",
    "StatelessRandomUniformIntV2",
    "StatelessRandomNormalV2",
    "StatelessTruncatedNormalV2",
}
DROPPED = {"Assert", "CheckNumerics", "CheckNumericsV2", "VerifyTensorAllFinite"}

BOOL_FIX = (
    "Write the decision with tf.where, tf.cond or an indicator variable (notebook 02, rule 1)."
)
SEARCH_SECONDS = 300.0  # for the largest batch, on each target
NEAR_LIMIT = 0.9  # of the memory: above it the compiler may compute parts twice to save some
MUCH_PADDING = 10_000_000  # bytes; less is not worth a change of the model


class NothingToCheck(CourseError):
    """What was given is neither a function nor a Keras model, or comes without any data."""


class UnderStrategy(CourseError):
    """A model was made under a strategy of this machine, so the bare step can't be had."""


class NoBatch(CourseError):
    """A dataset gave no batch, so there are no shapes to compile for."""


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is checked, as a function of flat tensors.

    Attributes:
        name: Of the function or model.
        kind: ``function``, ``train step`` or ``forward pass``.
        step: Takes the data's tensors, flat; this is what a TPU would run.
        model: The Keras model, or None.
        given: What the learner handed in.
    """

    name: str
    kind: str
    step: Callable[..., Any]
    model: Any = None
    given: Any = None


# --- Where in the learner's code ---------------------------------------------------------------

_OURS = (
    "helpers/preflight/checklist.py",
    "helpers/preflight/pipeline.py",
    "helpers/xla/program.py",
)
_LIBRARY = re.compile(r"(?:site|dist)-packages/|/lib/python3\.\d+/|^<|__autograph_generated_file")
_CORE = re.compile(r"packages/(?:tensorflow|keras|tf_keras)/|/lib/python3\.\d+/[^/]*\.py|^<")

Frames = Sequence[tuple[str, int, str]]


def where(frames: Frames) -> str:
    """Write the learner's innermost line; where there is none, that of the library they call.

    Args:
        frames: File, line and function, the outermost first.

    Returns:
        Such as ``model.py, line 12, in call: y = tf.unique(x)``; empty where only TensorFlow and
        Keras are in the stack.
    """
    # What called the preflight is no part of the step.
    ours = [i for i, frame in enumerate(frames) if frame[0].endswith(_OURS)]
    inner = frames[ours[-1] + 1 if ours else 0 :]
    own = [f for f in inner if not _LIBRARY.search(f[0])]
    near = [f for f in inner if not _CORE.search(f[0]) and "__autograph" not in f[0]]
    for filename, line, function in reversed(own or near):
        # TensorFlow's own messages leave the first slash out.
        path = filename if filename.startswith("/") else f"/{filename}"
        path = path if linecache.getline(path, line) else filename
        code = linecache.getline(path, line).strip()
        return repr(Source(path, line, function.strip().rstrip("*").strip(), code))
    return ""


def _called_from(source: Source | None) -> bool:
    """Whether a line is not of the step, but of the code that called the preflight."""
    frame = sys._getframe()
    while frame is not None and source is not None:
        if (frame.f_code.co_filename, frame.f_lineno) == (source.file, source.line):
            return True
        frame = frame.f_back
    return source is None


def _frames(operation: tf.Operation) -> Frames:
    return [(frame.filename, frame.lineno, frame.name) for frame in operation.traceback]


def _frames_of_error(error: BaseException) -> Frames:
    """Frames from the message (AutoGraph and XLA write them there), else from the traceback."""
    text = getattr(error, "message", "") if isinstance(error, NotCompilable) else str(error)
    # The first stack is that of the operation itself; those that follow are its callers'.
    text = text.split("tf2xla conversion failed")[0].split("[[{{node")[0]
    told = re.findall(r'File "(.+?)", line (\d+), in ([^\n]*)', text)
    if told:
        return [(filename, int(line), function) for filename, line, function in told]
    cause = error.__cause__ if isinstance(error, NotCompilable) and error.__cause__ else error
    frames, trace = [], cause.__traceback__
    while trace is not None:
        frames.append(
            (trace.tb_frame.f_code.co_filename, trace.tb_lineno, trace.tb_frame.f_code.co_name)
        )
        trace = trace.tb_next
    return frames


def _line(error: BaseException) -> str:
    """The one line of an error that says what is wrong."""
    text = str(error).removeprefix("Failed getting HLO text: '")
    text = re.split(r"(?:Call a|A)rguments received by ", text)[0]
    lines = [x for x in text.splitlines() if x.strip()] or [type(error).__name__]
    if text.startswith(("in user code:", "Graph execution error:", "Exception encountered")):
        told = [
            x
            for x in lines[1:]
            if not re.match(r"\s+(File |\[\[)|\s*Stack trace|.*\[\[\{\{", x)
            and re.match(r"\s*\w+(?:Error|Exception)?: ", x)
        ]
        lines = told[-1:] or lines[-1:]
    line = steady(lines[0])
    line = re.sub(r" when trying to compile graph \S+ on ", " on ", line)
    if len(line) > 120:
        cut = re.match(r".{20,200}?[.)](?= [A-Z])|.{119,199}", line)
        line = cut[0] if cut[0].endswith((".", ")")) else f"{cut[0]}…"
    return line


# --- What is checked ---------------------------------------------------------------------------


def _is_model(thing: object) -> bool:
    return any(
        base.__name__ == "Model" and base.__module__.split(".")[0] in ("keras", "tf_keras")
        for base in type(thing).__mro__
    )


def _structure(data: object) -> object:
    """The nest of ``TensorSpec`` that describes one element of the data."""
    if isinstance(data, tf.data.Dataset):
        return data.element_spec
    return tf.nest.map_structure(_spec, data)


def _spec(leaf: object) -> tf.TypeSpec:
    if isinstance(leaf, tf.TypeSpec):
        return leaf
    tensor = tf.convert_to_tensor(leaf)
    return tf.TensorSpec(tensor.shape, tensor.dtype)


def _calls(fn: Callable, structure: object, is_dataset: bool) -> Callable[[object], Any]:
    """Say how an element of the data becomes the function's arguments, as tf.data's map does."""
    if not isinstance(structure, tuple) or hasattr(structure, "_fields"):
        return fn
    try:
        parameters = inspect.signature(getattr(fn, "python_function", fn)).parameters.values()
    except (TypeError, ValueError):
        return lambda element: fn(*element)
    needed = [p for p in parameters if p.default is p.empty and p.kind in (0, 1)]
    several = len(needed) > 1 or any(p.kind == p.VAR_POSITIONAL for p in parameters)
    if is_dataset and len(structure) > 1 and not several:
        return fn
    return lambda element: fn(*element)


def _subject(given: object, data: object) -> Subject:
    structure = _structure(data)
    is_dataset = isinstance(data, tf.data.Dataset)

    def flat(call: Callable[[object], Any], name: str) -> Callable[..., Any]:
        def step(*tensors: tf.Tensor) -> object:
            return call(tf.nest.pack_sequence_as(structure, tensors, expand_composites=True))

        step.__name__ = name
        return step

    if _is_model(given):
        _refuse_strategy(given)
        if getattr(given, "optimizer", None) is None:
            return Subject(
                given.name, "forward pass", flat(_forward(given), given.name), given, given
            )
        return Subject(given.name, "train step", flat(given.train_step, given.name), given, given)
    if not callable(given):
        raise NothingToCheck(
            f"A value of type {type(given).__name__} can't be checked.",
            "It must be a function of tensors or a Keras model.",
            "Write preflight(model, dataset) or preflight(train_step, specs).",
        )
    call = _calls(given, structure, is_dataset)
    inner = getattr(given, "python_function", given)
    name = getattr(inner, "__name__", type(given).__name__)
    return Subject(name, "function", flat(call, name), None, given)


def _refuse_strategy(model: Any) -> None:
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is None or isinstance(strategy, type(tf.distribute.get_strategy())):
        return
    raise UnderStrategy(
        f"The model was made under a {type(strategy).__name__}.",
        "The TPU's compiler is asked about a step without this machine's strategy in it.",
        "Hand in the function that makes the model: it is called outside a scope, and once more "
        "inside, to see that everything is made there.",
    )


def _forward(model: Any) -> Callable[[object], Any]:
    def forward(element: object) -> object:
        inputs = element[0] if isinstance(element, tuple) else element
        return model(inputs, training=False)

    return forward


# --- Check 1 on the CPU -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Traced:
    """A function that can be run, compiled by XLA.

    Attributes:
        function: The ``tf.function``, compiled by XLA.
        graph: Its graph.
    """

    function: Any
    graph: tf.Graph


def _trace(step: Callable, specs: Sequence[tf.TensorSpec]) -> Traced:
    compiled = tf.function(step, jit_compile=True)
    return Traced(compiled, compiled.get_concrete_function(*specs).graph)


def _check_rules(subject: Subject, outcome: Program | NotCompilable) -> list[Item]:
    name = f"{subject.kind} under XLA on this CPU"
    if isinstance(outcome, NotCompilable):
        return [Item(1, name, FAIL, *_refusal(outcome))]
    items = [Item(1, name, PASS, "compiles, from shapes and types alone")]
    own = [bounded for bounded in outcome.bounded if not _called_from(bounded.source)]
    if not own:
        inside = "every shape is static"
        if outcome.bounded:
            inside = f"none in your code; {outcome.bounded[0].shape} inside a library"
        return [*items, Item(1, "data-dependent sizes", PASS, inside)]
    for bounded in own:
        items.append(
            Item(
                1,
                f"data-dependent size ({bounded.operation})",
                WARN,
                f"{bounded.shape}: the size depends on values, so every step computes all "
                f"{_room(bounded.shape)} places, and what follows may answer for them too",
                "Keep the full size and let a mask decide what counts (notebook 02, rule 2).",
                repr(bounded.source),
            )
        )
    return items


def _refusal(error: NotCompilable) -> tuple[str, str, str]:
    """What was refused, what to do, and where."""
    what = error.what.replace(f" at {error.source}", "")
    if error.operation != "_Arg" and not what.startswith(("XLA has no", "The size that")):
        what = f"{what} {error.why}"
    fix = BOOL_FIX if "as a Python `bool`" in error.message else error.fix
    return what, fix, where(_frames_of_error(error))


def _room(shape: str) -> str:
    sizes = [int(n.removeprefix("<=")) for n in shape.rstrip("]").partition("[")[2].split(",")]
    return f"{int(np.prod(sizes)):,}"


# --- Checks 2 and 3: the dataset -----------------------------------------------------------------


def _check_shapes(sample: pipeline.Sample, structure: object) -> list[Item]:
    count, seen = len(sample.shapes), sample.seen
    every = "all" if sample.ended else "the first"
    shapes = f"{count} {'set' if count == 1 else 'sets'} of shapes in {every} {seen} batches"
    unknown = [str(spec) for spec in tf.nest.flatten(structure) if not _static(spec)]
    items = []
    if count == 1:
        compilations = "1 compilation" if sample.ended else "1 compilation so far"
        items.append(Item(2, "compilations in an epoch", PASS, f"{shapes}: {compilations}"))
    else:
        many = count > FEW_SHAPES
        at_least = "" if sample.ended else "at least "
        items.append(
            Item(
                2,
                "compilations in an epoch",
                FAIL if many else WARN,
                f"{shapes}: {at_least}{count} compilations, each a wait for the whole TPU",
                "Pad to a few widths, or pack (notebook 03); batch(..., drop_remainder=True).",
            )
        )
    if unknown and count == 1:
        items.append(
            Item(
                2,
                "shapes that the dataset promises",
                WARN,
                f"{len(unknown)} of {len(tf.nest.flatten(structure))} tensors leave a size open, "
                "though all batches seen agree",
                "batch(..., drop_remainder=True); tf.ensure_shape after a py_function.",
            )
        )
    return items


def _static(spec: tf.TypeSpec) -> bool:
    shape = getattr(spec, "shape", None)
    return shape is not None and tf.TensorShape(shape).is_fully_defined()


def _batch_size(signature: pipeline.Signature) -> int | None:
    sizes = {shape[0] for shape in signature if shape}
    return sizes.pop() if len(sizes) == 1 else None


def _names(structure: object, path: str = "") -> list[str]:
    """Name each tensor of an element, in the order of ``tf.nest.flatten``: ``input_ids``, ``1``."""
    if isinstance(structure, dict):
        pairs = [(str(key), structure[key]) for key in sorted(structure)]
    elif isinstance(structure, tuple | list):
        pairs = [(str(i), part) for i, part in enumerate(structure)]
    else:
        return [path or "the element"]
    return [
        name
        for key, part in pairs
        for name in _names(part, key if path.isdigit() or not path else f"{path}/{key}")
    ]


def _check_types(structure: object) -> list[Item]:
    leaves = tf.nest.flatten(structure)
    names = _names(structure)
    items = []
    for name, spec in zip(names, leaves, strict=True):
        if not isinstance(spec, tf.TensorSpec):
            kind = type(spec).__name__.removesuffix("Spec")
            items.append(
                Item(
                    3,
                    f"tensor {name}",
                    FAIL,
                    f"it is a {kind}; a TPU takes dense tensors only",
                    "Pad it to a fixed width in the pipeline: to_tensor(shape=[None, width]).",
                )
            )
        elif spec.dtype == tf.string:
            items.append(
                Item(
                    3,
                    f"tensor {name}",
                    FAIL,
                    "it holds text; a TPU has no strings",
                    "Tokenise in the pipeline and drop the column before the model.",
                )
            )
        elif spec.dtype.name not in pipeline.TPU_TYPES:
            items.append(
                Item(
                    3,
                    f"tensor {name}",
                    FAIL,
                    f"it is {spec.dtype.name}, which no kernel for TPU takes",
                    "Cast it in the pipeline: int32, float32, bfloat16 or complex64.",
                )
            )
        elif spec.dtype == tf.float64:
            items.append(
                Item(
                    3,
                    f"tensor {name}",
                    WARN,
                    "it is float64, which a TPU imitates with several 32-bit operations",
                    "Cast it to float32 in the pipeline.",
                )
            )
    if not items:
        dtypes = sorted({spec.dtype.name for spec in leaves})
        items.append(Item(3, "types", PASS, f"all of {', '.join(dtypes)}"))
    return items


def _check_batch(
    sample: pipeline.Sample, structure: object, slices: Sequence[tuple[str, int]]
) -> list[Item]:
    items = []
    largest = max(sample.shapes, key=lambda s: sum(int(np.prod(shape)) for shape in s))
    rows = _batch_size(largest)
    for replicas in sorted({replicas for _, replicas in slices} - {1}):
        target = ", ".join(name for name, number in slices if number == replicas)
        if rows is None:
            items.append(
                Item(
                    3,
                    f"batch over {replicas} replicas",
                    WARN,
                    "the tensors of a batch have no common first size, so it can't be divided",
                    "Batch the dataset: every tensor's first dimension is the global batch.",
                )
            )
        elif rows % replicas:
            more = -(-rows // replicas) * replicas
            items.append(
                Item(
                    3,
                    f"batch over {replicas} replicas",
                    FAIL,
                    f"a global batch of {rows} can't be divided by {replicas} ({target})",
                    f"Take a multiple of {replicas}, such as {more}.",
                )
            )
        else:
            items.append(
                Item(
                    3,
                    f"batch over {replicas} replicas",
                    PASS,
                    f"{rows} rows are {rows // replicas} for each ({target})",
                )
            )
    if rows is not None:
        items.append(_remainder(sample, structure, rows))
    return items


def _remainder(sample: pipeline.Sample, structure: object, rows: int) -> Item:
    partial = [_batch_size(s) for s in sample.shapes if _batch_size(s) not in (rows, None)]
    fix = "batch(..., drop_remainder=True), and repeat() if no row may be lost."
    if partial:
        return Item(
            3,
            "remainder of an epoch",
            WARN,
            f"the last batch has {min(partial)} rows instead of {rows}: one more compilation, and "
            "a step that may not divide",
            fix,
        )
    open_ = any(
        isinstance(spec, tf.TensorSpec) and spec.shape.rank and spec.shape[0] is None
        for spec in tf.nest.flatten(structure)
    )
    if open_ and not sample.ended and sample.length != -1:
        return Item(
            3,
            "remainder of an epoch",
            WARN,
            "the dataset may end with a smaller batch; the sample did not reach its end",
            fix,
        )
    return Item(3, "remainder of an epoch", PASS, f"every batch has {rows} rows")


def _check_python(parts: pipeline.Parts, node: bool) -> list[Item]:
    if not parts.python:
        return [Item(3, "Python in the pipeline", PASS, "none: TensorFlow operations alone")]
    items = []
    for call in parts.python:
        what = "a generator" if call.kind == "generator" else "a Python function"
        items.append(
            Item(
                3,
                "Python in the pipeline",
                FAIL if node else WARN,
                f"{what} feeds the pipeline: "
                + (
                    "a TPU Node can't call back into this process"
                    if node
                    else "it runs on a TPU VM's own host, one thread at a time; on a TPU Node it "
                    "fails"
                ),
                "Write TFRecords once (notebook 06) and read those, or use TensorFlow operations.",
                where(call.traceback),
            )
        )
    return items


def _check_files(parts: pipeline.Parts, node: bool) -> list[Item]:
    if not parts.reads_files:
        return [Item(3, "files", PASS, "none are read: the data is in memory or comes from Python")]
    local, remote = parts.local, parts.remote
    if local:
        example = pathlib.Path(local[0]).name
        return [
            Item(
                3,
                "files",
                FAIL if node else PASS,
                f"{len(local)} on this machine's disk, such as {example}: "
                + (
                    "a TPU Node can't see that disk"
                    if node
                    else "copy them to each TPU VM's disk, or to gs://"
                ),
                "Copy them to gs:// in the TPU's region." if node else "",
            )
        ]
    if remote:
        return [Item(3, "files", PASS, f"{len(remote)} at gs://: every kind of TPU can read them")]
    return [
        Item(
            3,
            "files",
            OPEN,
            "the pipeline opens files whose names are not written in it",
            "See that they are at gs://, or on each TPU VM's own disk.",
        )
    ]


def _check_dataset(
    data: tf.data.Dataset,
    sample: pipeline.Sample,
    slices: Sequence[tuple[str, int]],
    node: bool,
) -> list[Item]:
    structure = data.element_spec
    items = []
    if sample.shapes:
        items += _check_shapes(sample, structure)
    if sample.error:
        items.append(
            Item(
                3,
                "reading it",
                FAIL,
                f"after {sample.seen} batches: {steady(sample.error)[:200]}",
                "Mend the pipeline first: for batch in dataset: pass",
            )
        )
    items += _check_types(structure)
    if sample.shapes:
        items += _check_batch(sample, structure, slices)
    parts = pipeline.parts(data)
    return [*items, *_check_python(parts, node), *_check_files(parts, node)]


# --- Check 4: eager against compiled --------------------------------------------------------------


@contextlib.contextmanager
def _kept(variables: Sequence[tf.Variable]) -> Iterator[Callable[[], None]]:
    """Give a function that puts the variables' values back; it is called at the end, too."""
    values = [np.array(v.numpy()) for v in variables]

    def restore() -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)

    try:
        yield restore
    finally:
        restore()


def _results(nest: object) -> dict[str, np.ndarray]:
    """Name the results of a step."""
    if isinstance(nest, dict):
        pairs = nest.items()
    else:
        flat = tf.nest.flatten(nest)
        pairs = ((f"result {i}" if len(flat) > 1 else "result", x) for i, x in enumerate(flat))
    return {
        str(name): np.asarray(x)
        for name, value in pairs
        for x in tf.nest.flatten(value)[:1]
        if x is not None
    }


def _differ(left: dict[str, np.ndarray], right: dict[str, np.ndarray]) -> list[str]:
    """Names of the results that differ by more than rounding."""
    return [name for name, a in left.items() if not _same(a, right.get(name))]


def _same(a: np.ndarray, b: np.ndarray | None) -> bool:
    if b is None or a.shape != b.shape:
        return False
    if not np.issubdtype(a.dtype, np.number):
        return np.array_equal(a, b)
    a, b = np.asarray(a, np.complex128), np.asarray(b, np.complex128)
    return np.allclose(a, b, RELATIVE, ABSOLUTE, equal_nan=True)


def _say(value: np.ndarray) -> str:
    if value.size == 1:
        return f"{value.reshape(())[()]:.3g}" if value.dtype != object else str(value)
    bad = np.count_nonzero(~np.isfinite(value)) if np.issubdtype(value.dtype, np.inexact) else 0
    return f"{list(value.shape)}" + (f" with {bad} nan or inf" if bad else "")


def _evaluation(subject: Subject, structure: object) -> Callable[..., Any]:
    """The model's step without dropout, as a function of flat tensors."""
    model = subject.model

    def evaluate(*tensors: tf.Tensor) -> object:
        return model.test_step(tf.nest.pack_sequence_as(structure, tensors, expand_composites=True))

    if hasattr(subject.step, "autograph_info__"):
        evaluate = tf.autograph.experimental.do_not_convert(evaluate)

    return evaluate


def _compare(
    what: str, step: Callable, traced: Traced, batches: Sequence[tuple[tf.Tensor, ...]]
) -> Item | None:
    """Compare on real batches; None where the step draws random numbers."""
    if pipeline.leading_to(traced.graph, DRAWN):
        return None
    draws = bool(pipeline.leading_to(traced.graph, SEEDED))
    with _kept(traced.graph.variables) as restore:
        for number, batch in enumerate(batches, 1):
            of = f"batch {number}"
            eager, refused = {}, None
            try:
                with functions_run_eagerly():
                    eager = _results(step(*batch))
                    restore()
                    again = _results(step(*batch)) if draws else eager
                    restore()
            except Exception as error:  # an error of the learner's batch is a finding
                refused = error
                restore()
            if refused is None and _differ(eager, again):
                return None
            try:
                compiled = _results(traced.function(*batch))
            except Exception as error:  # XLA refuses at run time what it took when it compiled
                fix = "Run it as tf.function(step, jit_compile=True) on this batch."
                place = where(_frames_of_error(error))
                return Item(4, f"{what} on {of}", FAIL, f"compiled: {_line(error)}", fix, place)
            restore()
            if refused is not None:
                gives = ", ".join(f"{k} {_say(v)}" for k, v in list(compiled.items())[:2])
                return Item(
                    4,
                    f"{what} on {of}",
                    FAIL,
                    f"TensorFlow raises: {_line(refused)} The compiled step says nothing and "
                    f"gives {gives}",
                    "Mend the data, or check it in the pipeline: a TPU will not complain.",
                    where(_frames_of_error(refused)),
                )
            if different := _differ(eager, compiled):
                if draws:
                    return None
                told = "; ".join(
                    f"{name}: eager {_say(eager[name])}, compiled "
                    f"{_say(compiled[name]) if name in compiled else 'missing'}"
                    for name in different[:2]
                )
                return Item(
                    4,
                    f"{what} on {of}",
                    FAIL,
                    told,
                    "Look for the cases in notebook 02's table of silent differences.",
                )
            bad = [
                name
                for name, value in compiled.items()
                if np.issubdtype(value.dtype, np.inexact) and not np.isfinite(value).all()
            ]
            if bad:
                return Item(
                    4,
                    f"{what} on {of}",
                    FAIL,
                    f"{', '.join(bad)} is not finite, eager and compiled",
                    "Find where it begins: tf.debugging.enable_check_numerics() on a CPU.",
                )
    number = len(batches)
    return Item(
        4,
        what,
        PASS,
        f"the same results on {number} real {'batch' if number == 1 else 'batches'}",
    )


def _check_answers(
    subject: Subject,
    job: "Job",
    specs: Sequence[tf.TensorSpec],
    sample: pipeline.Sample | None,
    structure: object,
) -> list[Item]:
    name, dropped = "results on real batches", job.dropped
    if sample is None:
        return [Item(4, name, OPEN, "needs real batches; only shapes were given"), *dropped]
    batches, model = sample.batches, subject.model
    large = model is not None and (
        model.count_params() > MANY_PARAMETERS
        or max(int(np.prod(spec.shape)) for spec in specs) > MANY_VALUES
    )
    if large:
        rows = _batch_size(tuple(tuple(x.shape) for x in batches[0])) or 0
        batches = [
            tuple(x[:FEW_ROWS] if len(x.shape) and x.shape[0] == rows else x for x in batches[0])
        ]
    specs = [tf.TensorSpec(x.shape, x.dtype) for x in batches[0]]
    steps = [(subject.kind, subject.step)]
    if subject.kind == "train step":
        why = "the train step draws random numbers"
        if large:
            steps, why = [], f"on {FEW_ROWS} rows (model or batch is large)"
        elif job.draws:
            steps = []
        what = f"test step {why}" if large else f"test step ({why})"
        steps.append((what, _evaluation(subject, structure)))
    for what, step in steps:
        try:
            traced = _trace(step, specs)
        except Exception as error:  # a test step of the learner's may do anything
            item = Item(4, what, OPEN, _line(error), "", where(_frames_of_error(error)))
            return [item, *dropped]
        if (item := _compare(what, step, traced, batches)) is not None:
            return [item, *dropped]
    item = Item(
        4,
        name,
        OPEN,
        "the step draws random numbers, so no two runs agree",
        'Hand in a function without them, or with tf.random.stateless_...(alg="philox").',
    )
    return [item, *dropped]


def _check_dropped(graph: tf.Graph) -> tuple[Item, ...]:
    found = pipeline.leading_to(graph, DROPPED)
    if not found:
        return ()
    places = list(dict.fromkeys(place for op in found if (place := where(_frames(op)))))
    more = f", and {len(places) - 1} more" if len(places) > 1 else ""
    return (
        Item(
            4,
            "checks inside the step",
            WARN,
            "XLA drops assertions without a word" + (more if places else "; here a library's"),
            "Check in the input pipeline, or return a flag and look at it.",
            places[0] if places else "",
        ),
    )


# --- Check 5: what must change ------------------------------------------------------------------


def _check_jit(subject: Subject) -> Item:
    given = subject.given
    name = "jit_compile"
    if subject.model is not None:
        on = getattr(given, "jit_compile", None)
        if on is None:
            on = getattr(given, "_jit_compile", None)
        if on is True:
            return Item(
                5,
                name,
                FAIL,
                "compile(jit_compile=True): right for the test on a CPU, but TPUStrategy compiles "
                "the whole step itself, and under a strategy this setting fails (keras#19005)",
                "Take jit_compile=True out again: model.compile(...) without it.",
            )
        return Item(5, name, PASS, "not set: TPUStrategy compiles the whole step itself")
    if getattr(given, "_jit_compile", None):
        return Item(
            5,
            name,
            WARN,
            "the function is marked jit_compile=True; TPUStrategy compiles what strategy.run "
            "is given",
            "Take it out again for the TPU.",
        )
    return Item(5, name, PASS, "not set: TPUStrategy compiles the whole step itself")


def _all_variables(model: Any) -> dict[str, tf.Variable]:
    """Variables of a model, its optimizer and its metrics, each under whose it is."""
    found: dict[str, tf.Variable] = {}
    owners = []
    # A model that is not built yet has no variables, and tf-keras may raise instead of saying so;
    # fit will make them inside the scope.
    with contextlib.suppress(ValueError):
        owners.append(("model", model.variables))
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None:
        variables = optimizer.variables
        owners.append(("optimizer", variables() if callable(variables) else variables))
    owners += [(f"metric {m.name}", m.variables) for m in getattr(model, "metrics", ())]
    for owner, variables in owners:
        for variable in variables:
            inner = variable if isinstance(variable, tf.Variable) else variable.value
            found.setdefault(f"{owner}: {variable.name}", inner)
    return found


NO_SCOPE = Item(
    5,
    "made inside strategy.scope()",
    WARN,
    "made without a strategy, so there is no scope to look at",
    "For the TPU make model, optimizer and metrics inside strategy.scope(). Hand in the function "
    "that makes them, and this is tried.",
)


def _outside(strategy: tf.distribute.Strategy, model: Any, name: str) -> Item:
    variables = _all_variables(model)
    outside = [
        label
        for label, v in variables.items()
        if not strategy.extended.variable_created_in_scope(v)
    ]
    if outside:
        return Item(
            5,
            name,
            FAIL,
            f"{len(outside)} of {len(variables)} variables were made outside, such as {outside[0]}",
            "Move what makes them (model, optimizer, metrics, compile) inside strategy.scope().",
        )
    return Item(5, name, PASS, f"every variable that exists before fit ({len(variables)})")


# --- Checks 1, 6 and 7 with the compiler of the TPU -----------------------------------------------


@dataclasses.dataclass(frozen=True)
class Job:
    """A program for one target.

    Attributes:
        target: Such as ``v5e-8``.
        replicas: TensorFlow devices of the target.
        rows: Rows of the batch on each; None where the batch has no common first size.
        specs: What one replica gets.
        program: For all replicas together where that can be exported, else for one.
        draws: Whether it draws other random numbers at each call.
        dropped: What is to be told of assertions in it.
    """

    target: str
    replicas: int
    rows: int | None
    specs: tuple[tf.TensorSpec, ...]
    program: Program
    draws: bool
    dropped: tuple[Item, ...]


def _of_one(specs: Sequence[tf.TensorSpec], rows: int, share: int) -> tuple[tf.TensorSpec, ...]:
    """Put another number of rows where the specs have ``rows`` first."""
    return tuple(
        tf.TensorSpec([share, *spec.shape[1:]], spec.dtype)
        if spec.shape.rank and spec.shape[0] == rows
        else spec
        for spec in specs
    )


def _jobs(
    subject: Subject,
    specs: Sequence[tf.TensorSpec],
    slices: Sequence[tuple[str, int]],
    divided: bool,
) -> list[Job]:
    """Export what each target would run; the same program once.

    Raises:
        NotCompilable: TensorFlow or XLA refuses.
    """
    rows = _batch_size(tuple(tuple(spec.shape) for spec in specs))
    made: dict[tuple[int, int | None], tuple[Program, bool, tuple]] = {}
    jobs = []
    for target, replicas in slices:
        share = -(-rows // replicas) if divided and rows is not None else rows
        own = _of_one(specs, rows, share) if rows is not None else tuple(specs)
        if (replicas, share) not in made:
            try:
                traced = trace(subject.step, *own, replicas=replicas)
                exported = program(traced)
            except NotCompilable:
                if replicas == 1:
                    raise
                traced = trace(subject.step, *own)
                exported = program(traced)
            exported = dataclasses.replace(exported, name=subject.name)
            draws = bool(pipeline.leading_to(traced.graph, DRAWN))
            made[replicas, share] = exported, draws, _check_dropped(traced.graph)
        jobs.append(Job(target, replicas, share, own, *made[replicas, share]))
    return jobs


def _quickest(
    subject: Subject,
    specs: Sequence[tf.TensorSpec],
    slices: Sequence[tuple[str, int]],
    divided: bool,
) -> tuple[Subject, list[Job]]:
    """Export without AutoGraph where that can be: tracing a library's model takes a third of it.

    What AutoGraph rewrites (an ``if`` or a loop on a tensor) raises without it, so a program that
    comes out is the same.
    """
    plain = tf.autograph.experimental.do_not_convert(subject.step)
    quick = dataclasses.replace(subject, step=plain)
    if subject.model is not None:
        with contextlib.suppress(NotCompilable):
            return quick, _jobs(quick, specs, slices, divided)
    return subject, _jobs(subject, specs, slices, divided)


def _compile(job: Job, say: Callable[[str], None]) -> tpu_compiler.Compiled:
    def tell(stage: str, seconds: float) -> None:
        say(f"{job.target}: {stage}")

    return tpu_compiler.compile(job.program, job.target, progress=tell)


def _check_target(job: Job, compiled: tpu_compiler.Compiled) -> tuple[list[Item], Estimate | None]:
    name = f"{job.program.name} for {job.target}"
    if compiled.verdict == "refused":
        fix = "Google's compiler refuses what XLA's own accepts: look for 64-bit types first."
        return [Item(1, name, FAIL, compiled.message, fix)], None
    if compiled.verdict == "out of memory":
        return [
            Item(1, name, PASS, "Google's compiler accepts every operation"),
            Item(
                6,
                f"memory of {job.target}",
                FAIL,
                compiled.message,
                "Make the batch smaller, compute in bfloat16, or take a target with more memory.",
            ),
        ], None
    if not compiled.ok:
        fix = "" if compiled.verdict == "not available" else "Try a smaller model, then halve it."
        items = [Item(1, name, OPEN, compiled.message, fix, decisive=True)]
        reason = "Google's compiler gave no answer"
        items += [Item(check, f"{what} for {job.target}", OPEN, reason) for check, what in LATER]
        return items, None
    roof = tpu_compiler.roofline(compiled)
    together = compiled.replicas > 1
    estimate = Estimate(
        job.target,
        job.replicas,
        job.rows,
        compiled.flops,
        compiled.bytes_accessed,
        compiled.peak_bytes,
        compiled.available_bytes,
        roof.compute_seconds * 1e3,
        roof.hbm_seconds * 1e3,
        compiled.all_reduce_bytes if together else None,
    )
    return [
        Item(1, name, PASS, "Google's compiler makes a program of it" + _note(compiled)),
        _memory(job, compiled),
        _cost(job, estimate),
        *_waste(job, compiled),
    ], estimate


LATER = ((6, "memory"), (7, "cost"))


def _note(compiled: tpu_compiler.Compiled) -> str:
    return f" ({compiled.note})" if compiled.note else ""


def _memory(job: Job, compiled: tpu_compiler.Compiled) -> Item:
    share = compiled.peak_bytes / compiled.available_bytes
    name = f"memory of {job.target}"
    parts = (
        f"{big(compiled.peak_bytes, 'B')} of {big(compiled.available_bytes, 'B')} on each replica "
        f"({big(compiled.argument_bytes, 'B')} of it variables and batch)"
    )
    if share > NEAR_LIMIT:
        fix = "Look at the flops per row against a smaller batch: largest_batch=True does."
        return Item(6, name, WARN, f"{parts}: parts may be computed twice to make it fit", fix)
    return Item(6, name, PASS, parts)


def _cost(job: Job, estimate: Estimate) -> Item:
    text = (
        f"{big(estimate.flops, 'FLOP')} and {big(estimate.bytes, 'B')} of memory traffic a step on "
        f"each replica: bound by {estimate.limited_by}"
    )
    if estimate.all_reduce_bytes:
        text += f"; {big(estimate.all_reduce_bytes, 'B')} of gradients added across replicas"
    return Item(7, f"cost on {job.target}", PASS, text)


def _waste(job: Job, compiled: tpu_compiler.Compiled) -> list[Item]:
    found = tpu_compiler.padding(compiled)
    name = f"padding on {job.target}"
    much = [p for p in found if p.bytes >= MUCH_PADDING and p.layout.expansion >= 2]
    if not much:
        return [Item(7, name, PASS, "no tensor wastes much memory")]
    worst = much[0]
    return [
        Item(
            7,
            name,
            WARN,
            f"{worst.name}: {worst.layout}, {worst.count} times",
            "Make the last dimension a multiple of 128 and the one before a multiple of 8.",
        )
    ]


def _search(
    subject: Subject, job: Job, seconds: float, say: Callable[[str], None]
) -> tuple[Item, int | None]:
    name = f"largest batch on {job.target}"
    if job.rows is None:
        return Item(6, name, OPEN, "the tensors of a batch have no common first size"), None

    def program_of(rows: int) -> Program:
        return export(subject.step, *_of_one(job.specs, job.rows, rows))

    found = tpu_compiler.largest_batch(
        program_of,
        job.target,
        seconds=seconds,
        progress=lambda stage, passed: say(f"{job.target}: {stage}"),
    )
    if not found.largest:
        if found.attempts[-1].compiled.verdict != "out of memory":
            return Item(6, name, OPEN, found.reason, "Give it more time: search_seconds."), None
        return Item(6, name, FAIL, found.reason, "Take a target with more memory."), None
    return Item(
        6, name, PASS, f"{found.largest} rows on each replica. {found.reason}"
    ), found.largest


# --- The whole ------------------------------------------------------------------------------------


def _made(factory: Callable[[], Any]) -> tuple[Any, Any, Item | None]:
    """Call a factory: model and data, and whether all was made inside a scope."""
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    item, name = None, "made inside strategy.scope()"
    made = factory()
    given, data = made if isinstance(made, tuple) and len(made) == 2 else (made, None)
    if _is_model(given):
        try:
            with strategy.scope():
                again = factory()
        except ValueError as error:
            fix = "Move what makes model, optimizer and metrics inside strategy.scope()."
            item = Item(5, name, FAIL, _line(error), fix, where(_frames_of_error(error)))
            return given, data, item
        again = again[0] if isinstance(again, tuple) else again
        if again is not given:
            return given, data, _outside(strategy, again, name)
        said = "the factory gives the same model twice, so there is no scope to look at"
        item = Item(5, name, WARN, said, "Make the model inside the factory.")
    return given, data, item


def _is_factory(subject: object) -> bool:
    if _is_model(subject) or not callable(subject) or hasattr(subject, "input_signature"):
        return False
    try:
        parameters = inspect.signature(subject).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(p.default is not p.empty or p.kind in (2, 4) for p in parameters)


def preflight(
    subject: Any,
    data: Any = None,
    target: str | Sequence[str] = "v5e-8",
    *,
    node: bool = False,
    largest_batch: bool = False,
    search_seconds: float = SEARCH_SECONDS,
    batches: int = 64,
    seconds: float = 20.0,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Go through the checklist.

    What Google's compiler said of a program is kept on disk. Everything else is done again by a
    second call, which takes about half as long: only that can tell whether the code, the model and
    the data are still the same.

    Args:
        subject: A function of tensors, a Keras model (tf-keras, Keras 3, any TF model of Hugging
            Face), or a factory: a function without arguments that returns a model, or a pair
            (model or function, data). A factory is called twice, the second time inside a
            strategy's scope, to see whether all is made there.
        data: A ``tf.data.Dataset`` of global batches, as ``fit`` takes it: its batch is divided by
            the target's replicas. Or ``tf.TensorSpec``s (tensors, arrays), as a tuple of the
            function's arguments: what one replica gets. None where the factory gives it.
        target: A TPU by Google's name, such as ``v5e-8``; or several, to compare.
        node: Whether the TPU is another machine (a TPU Node), which can't call back and can't see
            this disk.
        largest_batch: Whether to search for the largest batch that fits; takes some three compiles
            more, of large programs.
        search_seconds: For that search, on each target; what was found until then counts.
        batches: How many batches of the dataset are looked at.
        seconds: No further batch is asked for after so long.
        progress: Called with one line when a step begins.

    Returns:
        The report.

    Raises:
        NothingToCheck: The subject is neither function nor model, or there are no data.
        NoBatch: The dataset is empty.
        UnderStrategy: The model was made under a strategy; hand in the function that makes it.
        UnknownAccelerator: There is no such target.
    """
    told: set[str] = set()

    def say(line: str) -> None:
        if progress is not None and line not in told:
            told.add(line)
            progress(line)

    targets = (target,) if isinstance(target, str) else tuple(target)
    with tpu_compiler.started():
        search = search_seconds if largest_batch else None
        return _preflight(subject, data, targets, node, search, batches, seconds, say)


def _preflight(
    subject: Any,
    data: Any,
    targets: tuple[str, ...],
    node: bool,
    search: float | None,
    batches: int,
    seconds: float,
    say: Callable[[str], None],
) -> Report:
    slices = [(name, hardware.slice_of(name).replicas) for name in targets]
    scope = None
    if data is None and _is_factory(subject):
        say("making the model")
        subject, data, scope = _made(subject)
    if data is None:
        data = getattr(subject, "input_signature", None)
    if data is None:
        raise NothingToCheck(
            "There are no data, so there are no shapes to compile for.",
            "XLA compiles for one set of shapes at a time.",
            "Hand in a dataset or TensorSpecs: preflight(model, dataset).",
        )
    checked = _subject(subject, data)
    structure = _structure(data)
    items: list[Item] = []
    sample = None
    if isinstance(data, tf.data.Dataset):
        say("reading a sample of the dataset")
        sample = pipeline.sample(data, batches, seconds)
        items += _check_dataset(data, sample, slices, node)
        if not sample.shapes:
            if sample.error:
                return Report(checked.name, targets, tuple(items))
            raise NoBatch(
                "The dataset gave no batch.",
                "It is empty, or all its rows are fewer than one batch with drop_remainder=True.",
                "Look at it: next(iter(dataset)).",
            )
    else:
        items += [
            Item(check, name, OPEN, "only shapes were given, no dataset")
            for check, name in ((2, "compilations in an epoch"), (3, "the dataset"))
        ]
        items += _check_types(structure)
    specs = _main_specs(structure, sample)
    say("tracing, and asking XLA on this CPU")
    try:
        checked, jobs = _quickest(checked, specs, slices, divided=sample is not None)
    except NotCompilable as error:
        items += [*_check_rules(checked, error), *_not_compiled(targets)]
        estimates = []
    else:
        items += _check_rules(checked, jobs[0].program)
        found, estimates = _ask(checked, jobs, specs, sample, structure, search, say)
        items += found
    items.append(_check_jit(checked))
    if checked.model is not None:
        items.append(scope or NO_SCOPE)
    items.sort(key=lambda item: item.check)
    return Report(checked.name, targets, tuple(items), tuple(estimates))


def _not_compiled(targets: Sequence[str]) -> list[Item]:
    reason = "the step does not compile yet"
    names = [(4, "results on real batches")]
    names += [(check, f"{what} for {target}") for target in targets for check, what in LATER]
    return [Item(check, name, OPEN, reason) for check, name in names]


def _ask(
    subject: Subject,
    jobs: Sequence[Job],
    specs: Sequence[tf.TensorSpec],
    sample: pipeline.Sample | None,
    structure: object,
    search: float | None,
    say: Callable[[str], None],
) -> tuple[list[Item], list[Estimate]]:
    """Compile for the targets, and meanwhile run real batches on this CPU."""
    items: list[Item] = []
    estimates: list[Estimate] = []
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        waiting = [pool.submit(_compile, job, say) for job in jobs]
        say("comparing eager and compiled results")
        items += _check_answers(subject, jobs[0], specs, sample, structure)
        results = [future.result() for future in waiting]
    for job, compiled in zip(jobs, results, strict=True):
        found, estimate = _check_target(job, compiled)
        items += found
        largest = None
        if search is not None and compiled.verdict in ("compiles", "out of memory"):
            item, largest = _search(subject, job, search, say)
            items.append(item)
        if estimate is not None:
            estimates.append(dataclasses.replace(estimate, largest_rows=largest))
    return items, estimates


def _main_specs(structure: object, sample: pipeline.Sample | None) -> tuple[tf.TypeSpec, ...]:
    """The shapes to compile for: the largest that came, or what was given."""
    specs = tf.nest.flatten(structure, expand_composites=True)
    if sample is None:
        return tuple(specs)
    largest = max(sample.shapes, key=lambda s: sum(int(np.prod(shape)) for shape in s))
    return tuple(
        tf.TensorSpec(shape, spec.dtype) for shape, spec in zip(largest, specs, strict=True)
    )
