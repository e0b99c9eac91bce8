"""Make ops.tsv, layers.tsv and models.tsv again: what XLA here, and Google's compiler, say of each.

    python notebooks/data/make_tables.py ops        # some minutes
    python notebooks/data/make_tables.py layers     # the same; Google's compiler isn't asked
    python notebooks/data/make_tables.py models     # half an hour; stopped, it goes on

Everything is compiled from shapes and types alone; nothing is run.

**An operation** is a row of ops.tsv: write its first four columns (subject, a name, the arguments
``x: float32[8], n: int32[]``, the code), and the verdicts are filled in. A row is one idea, so that
its verdict has one cause; what it returns is what must come out, so nothing is optimised away. The
code is an expression of the arguments; or, where they have no names, what takes them: a ``def``, a
Keras layer, several layers or a metric. A ``def`` without parameters makes the function, and its
variables. ``gradient of:`` asks for the gradient of the result's sum with respect to the first
argument. The code can name tf, np, tf_keras, its layers, and the kernels KERNEL_1D and KERNEL_2D.

**A layer** is a row of layers.tsv, written in the same way, of Keras 3 (all layers) or of tf-keras
(those for images and look-ups); ``instead`` is what to write where it is refused, by hand.

**A model** is each TensorFlow class of transformers, built with random weights from the tiny
configuration in tiny_models.toml.

Columns: ``cpu`` and ``tpu`` are ``compiles``, ``refused``, or ``not reached`` where TensorFlow made
no program that could be handed to the TPU's compiler; a model can also be ``not built``,
``no package`` (transformers needs one that the lock lacks), ``crashed`` or ``timed out``.
``bridge`` is the word of TensorFlow's TPU bridge, before any compiler. ``bounded`` tells that
sizes depend on values, so that the largest possible ones are used. ``verdict`` sums up.
``message`` is the first refusal's first line, ``where`` a model's line that is refused or makes
the first such size.
"""

import concurrent.futures
import functools
import gc
import importlib.metadata
import inspect
import multiprocessing
import os
import pathlib
import re
import runpy
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

from helpers.base import files
from helpers.base.settings import ENVIRONMENT
from helpers.xla.bridge import bridge
from tpu_preflight import compiler
from tpu_preflight.compiler import NotCompilable
from tpu_preflight.program import graph_operations, messages, program, trace

os.environ.update(ENVIRONMENT, KERAS_BACKEND="tensorflow")
import keras
import numpy as np
import tensorflow as tf
import tf_keras

tf.get_logger().setLevel("ERROR")
messages.MACHINERY.append(__file__)  # its own frames are no part of a model

DATA = pathlib.Path(__file__).resolve().parent
ROOT = DATA.parents[1]
TARGET = "v5e-8"
COLUMNS = {
    "ops": "subject name arguments code cpu tpu bridge bounded verdict message",
    "layers": "subject name arguments code instead cpu bridge bounded verdict message",
    "models": "kind name cpu tpu training bridge bounded verdict where message",
}
ABOUT = f"from shapes and types alone; TPU {TARGET}, nothing was run"
PACKAGES = ("tensorflow", "transformers", "jax", "libtpu")
LIMIT = 240  # seconds for a model
ENOUGH = 40  # models after which their process, which grows, ends
PARTIAL = ROOT / "build" / "models.tsv"

Row = dict[str, str]


def versions(packages: tuple[str, ...] = PACKAGES) -> str:
    """Name what the verdicts depend on."""
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)


def read(path: pathlib.Path) -> list[Row]:
    """Read a table: a line of versions, the columns' names, a line for each row."""
    _, header, *lines = path.read_text("utf-8").splitlines()
    names = header.split("\t")
    rows = []
    for line in lines:
        cells = map(_unescape, line.split("\t"))
        rows.append(dict(zip(names, cells, strict=True)))
    return rows


def _unescape(cell: str) -> str:
    characters = {r"\\": "\\", r"\n": "\n", r"\t": "\t"}
    return re.sub(r"\\[\\nt]", lambda match: characters[match[0]], cell)


def _escape(cell: str) -> str:
    return cell.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")


def write(path: pathlib.Path, columns: str, rows: list[Row], about: str = "") -> None:
    """Write a table; line feeds, tabs and backslashes in a text are escaped."""
    lines = [f"# {about or f'{versions()}; {ABOUT}'}", columns.replace(" ", "\t")]
    for row in rows:
        cells = [_escape(row[name]) for name in columns.split()]
        lines.append("\t".join(cells))
    files.write(path, "\n".join(lines) + "\n")


def short(text: str) -> str:
    """Give a message's first line, without the lines of this file that it names, cut if long."""
    line = re.sub(r" \(defined @ [^)]*\)", "", text.partition("\n")[0])
    return line if len(line) <= 240 else f"{line[:239]}…"


def on_cpu(function: Any, specs: tuple) -> str:
    """Let XLA compile a ``tf.function`` for this CPU; give its refusal, empty if there is none."""
    try:
        function.experimental_get_compiler_ir(*specs)(stage="optimized_hlo")
    except Exception as error:
        return messages.line_of(error)
    return ""


def on_tpu(exported: compiler.Program) -> tuple[str, str]:
    """Let Google's compiler compile a program: its verdict and its message."""
    compiled = compiler.compile(exported, TARGET, timeout=LIMIT)
    if compiled.verdict == "not available":
        raise SystemExit(f"The table can't be made here. {compiled.message}")
    return compiled.verdict, compiled.message


def on_bridge(fn: Callable, *specs: tf.TensorSpec) -> str:
    """Ask the bridge; where it refuses, ask again with soft device placement.

    Gives ``accepted``; ``host:`` and the operations that would run there with soft device
    placement, refused without; ``refused`` with it, too; ``not traced`` where tracing raised an
    error.
    """
    try:
        if not bridge(fn, *specs).message:
            return "accepted"
        soft = bridge(fn, *specs, soft_device_placement=True)
    except Exception:  # whatever tracing raises, the compilers' verdicts show it
        return "not traced"
    if soft.on_host:
        return f"host: {', '.join(soft.on_host)}"
    return "refused"


# --- operations -----------------------------------------------------------------------------------

GRADIENT = "gradient of: "
NAMES = {
    **{"tf": tf, "np": np, "keras": keras, "tf_keras": tf_keras, "layers": tf_keras.layers},
    "KERNEL_1D": np.ones([3, 3, 2], "float32"),
    "KERNEL_2D": np.ones([3, 3, 3, 2], "float32"),
}


def arguments(text: str) -> tuple[list[str], tuple[tf.TensorSpec, ...]]:
    """Read names, where there are any, and specs of arguments such as ``x: float32[8]``."""
    names = []
    specs = []
    for name, dtype, shape in re.findall(r"(?:(\w+): )?(\w+)\[([\d, ]*)\]", text):
        if name:
            names.append(name)
        sizes = list(map(int, re.findall(r"\d+", shape)))
        specs.append(tf.TensorSpec(sizes, dtype))
    return names, tuple(specs)


def function_of(row: Row, folder: str) -> Callable:
    """Make a row's code a function of tensors, with fresh variables where it has any."""
    names, specs = arguments(row["arguments"])
    code = row["code"].removeprefix(GRADIENT)
    if code.startswith(("def ", "@")):
        path = pathlib.Path(folder, f"{row['name']}.py")  # AutoGraph reads a function's source
        path.write_text(code, "utf-8")
        fn = runpy.run_path(str(path), NAMES)[re.search(r"def (\w+)", code)[1]]
        if not inspect.signature(fn).parameters:
            fn = fn()
    else:
        if names:
            code = f"lambda {', '.join(names)}: {code}"
        # Our own table is code, like this file.
        fn = eval(code, NAMES)  # noqa: S307
    if isinstance(fn, tf_keras.metrics.Metric):
        fn = functools.partial(updated, fn)
    elif (
        isinstance(fn, keras.layers.Layer | tf_keras.layers.Layer)
        and not specs[0].dtype.is_floating
    ):
        fn = functools.partial(looked_up, fn)
    elif isinstance(fn, keras.layers.Layer):
        fn = loss_and_gradients(keras.Sequential([fn]), specs[0].shape)
    elif isinstance(fn, tf_keras.layers.Layer | tuple):
        fn = loss_and_gradients(tf_keras.Sequential(fn), specs[0].shape)
    if row["code"].startswith(GRADIENT):
        fn = functools.partial(gradient, fn)
    # AutoGraph has nothing to rewrite in an expression, and would look for its source.
    if getattr(fn, "__name__", "") == "<lambda>":
        return tf.autograph.experimental.do_not_convert(fn)
    return fn


def updated(metric: tf_keras.metrics.Metric, labels: tf.Tensor, guesses: tf.Tensor) -> tf.Tensor:
    """Update a metric and read it."""
    metric.update_state(labels, guesses)
    return metric.result()


def looked_up(layer: Callable, x: tf.Tensor) -> tf.Tensor:
    """Call a layer whose input has no gradient."""
    return layer(x)


def gradient(fn: Callable, x: tf.Tensor, *rest: tf.Tensor) -> tf.Tensor:
    """Differentiate the sum of a function's result with respect to its first argument."""
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = tf.reduce_sum(fn(x, *rest))
    return tf.convert_to_tensor(tape.gradient(loss, x))


def loss_and_gradients(model: tf_keras.Model, shape: tf.TensorShape) -> Callable:
    """Make a training step's first half of layers."""
    model.build(tuple(shape))

    def loss_and_gradients(x: tf.Tensor) -> list[tf.Tensor]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(x, training=True) ** 2)
        return [loss, *tape.gradient(loss, model.trainable_variables)]

    return loss_and_gradients


def operation(row: Row, folder: str, google: bool = True) -> Row:
    """Ask both compilers and the bridge about a row; functions are made anew for each of them.

    Where Google's isn't asked, its verdict is taken to be that of XLA for this CPU.
    """
    _, specs = arguments(row["arguments"])
    answers = {"bridge": on_bridge(function_of(row, folder), *specs), "bounded": ""}
    try:
        exported = compiler.export(function_of(row, folder), *specs)
    except NotCompilable as error:
        answers |= {"cpu": "refused", "tpu": "not reached", "message": short(error.why)}
        return row | answers | {"verdict": "refused"}
    fn = function_of(row, folder)
    refusal = on_cpu(tf.function(lambda *tensors: fn(*tensors), jit_compile=True), specs)
    cpu = "refused" if refusal else "compiles"
    tpu = cpu
    message = refusal
    if google:
        tpu, tpu_message = on_tpu(exported)
        message = refusal or tpu_message
    bounded = "yes" if exported.bounded else ""
    answers |= {"cpu": cpu, "tpu": tpu, "bounded": bounded, "message": short(message)}
    if cpu != tpu:
        verdict = "differs"
    elif tpu != "compiles":
        verdict = "refused"
    else:
        verdict = "bounded" if bounded else "compiles"
    return row | answers | {"verdict": verdict}


def ops() -> None:
    """Fill in the verdicts of all operations."""
    with tempfile.TemporaryDirectory() as folder, compiler.started():
        rows = [operation(row, folder) for row in read(DATA / "ops.tsv")]
    write(DATA / "ops.tsv", COLUMNS["ops"], rows)


def layers() -> None:
    """Fill in the verdicts of all layers; some take Google's compiler minutes."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [operation(row, folder, google=False) for row in read(DATA / "layers.tsv")]
    packages = versions(("tensorflow", "keras", "tf_keras", "jax"))
    about = f"{packages}; from shapes and types alone; XLA for this CPU and TensorFlow's TPU bridge"
    write(DATA / "layers.tsv", COLUMNS["layers"], rows, about)


# --- models ---------------------------------------------------------------------------------------


@functools.cache
def tiny() -> dict[str, Any]:
    """Read the tiny configurations."""
    return tomllib.loads((DATA / "tiny_models.toml").read_text("utf-8"))


def kind_of(model: type) -> str:
    """Name the folder of ``transformers/models`` that a class stands in: ``bert``."""
    return re.match(r"transformers\.models\.(?:deprecated\.)?(\w+)\.", model.__module__)[1]


def classes() -> list[tuple[str, str]]:
    """List the TensorFlow model classes that transformers exports: kind and name, sorted."""
    import transformers

    base = transformers.TFPreTrainedModel
    models = []
    for name in dir(transformers):
        model = getattr(transformers, name) if name.startswith("TF") else None
        # Without a ``call`` of its own it is no model, but what models have in common.
        if isinstance(model, type) and issubclass(model, base) and model.call is not base.call:
            models.append((kind_of(model), name))
    return sorted(models)


def configured(kind: type, settings: dict[str, Any]) -> Any:
    """Make a configuration, tiny to its last part."""
    from transformers import CONFIG_MAPPING

    options = {}
    if not kind.has_no_defaults_at_init:
        defaults = kind().to_dict()
        for name, value in tiny()["every"].items():
            if name in defaults:
                options[name] = value
    for name, value in settings.items():
        if name not in ("inputs", "parts"):
            options[name] = value
    if not kind.has_no_defaults_at_init:
        for name, part in kind.sub_configs.items():
            options[name] = configured(part, settings.get(name, {})).to_dict()
    for name, part in settings.get("parts", {}).items():
        part_kind = CONFIG_MAPPING[part.removesuffix("_decoder")]
        options[name] = configured(part_kind, tiny()["types"].get(part, {})).to_dict()
    return kind(**options)


def spec(name: str, text: Any) -> Any:
    """Read ``int32[2, 16]``; a list of such texts is a list of them, a truth value itself."""
    if isinstance(text, list):
        return [spec(name, part) for part in text]
    if isinstance(text, bool):
        return text
    dtype, sizes = re.fullmatch(r"(\w+)\[([\d, ]*)\]", text).groups()
    return tf.TensorSpec(list(map(int, sizes.split(","))), dtype, name)


def inputs_of(model: Any, texts: dict[str, Any]) -> dict[str, Any]:
    """Give sizes to the model's own signature; ``texts`` adds to it, and False leaves one out."""
    sizes = tiny()["sizes"]
    specs = {}
    try:
        signature = model.input_signature
    except NotImplementedError:  # images without a size in the configuration, and sounds
        signature = {}
    for name, own_spec in signature.items():
        shape = own_spec.shape.as_list()
        unknown = [i for i, size in enumerate(shape) if size is None]
        for i in unknown:
            shape[i] = sizes["between"]
        shape[unknown[-1]] = sizes["length"]
        shape[unknown[0]] = sizes["batch"]
        specs[name] = tf.TensorSpec(shape, own_spec.dtype, name)
    for name, text in texts.items():
        specs[name] = spec(name, text)
        if specs[name] is False:
            del specs[name]
    return specs


def build(name: str) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Build a model, such as ``TFBertModel``; give it, and the specs of inputs and of labels."""
    import transformers

    tf.keras.utils.set_random_seed(0)
    kind = getattr(transformers, name)
    settings = tiny()["types"].get(kind_of(kind), {})
    part = kind.config_class.base_config_key  # of a model that is a part: "vision_config"
    model = kind(configured(kind.config_class, settings.get(part, settings)))
    model.build_in_name_scope()
    inputs = inputs_of(model, settings.get("inputs", {}) | tiny()["classes"].get(name, {}))
    parameters = inspect.signature(model.call).parameters
    labels = {}
    for label, text in tiny()["labels"].items():
        if label in parameters and label not in inputs:
            labels[label] = spec(label, text)
    if "labels" in labels:
        for ending, text in tiny()["labels_of"].items():
            if name.endswith(ending):
                labels["labels"] = spec("labels", text)
                break
    return model, inputs, labels


def tensors_of(result: Any) -> Iterator[tf.Tensor]:
    """List the tensors of a result, however deep; what isn't there is left out."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        for part in result:
            yield from tensors_of(part)
    elif result is not None:
        yield tf.convert_to_tensor(result)


def trained(model: Any, fixed: dict[str, bool], examples: dict[str, Any]) -> list[tf.Tensor]:
    """Compute the loss and the gradient of each weight.

    Where the model computes no loss itself, the mean square of its first result stands for one.
    """
    with tf.GradientTape() as tape:
        result = model(**examples, **fixed, training=True)
        loss = getattr(result, "loss", None)
        if loss is None:
            loss = next(x for x in tensors_of(result) if x.dtype.is_floating) ** 2
        loss = tf.reduce_mean(loss)
    gradients = tape.gradient(loss, model.trainable_variables)
    tensors = [loss]
    for gradient in gradients:
        if gradient is not None:
            tensors.append(tf.convert_to_tensor(gradient))
    return tensors


def line(source: messages.Source | None) -> str:
    """Write a line of transformers as ``models/bert/modeling_tf_bert.py:12 call``."""
    if source is None:
        return ""
    _, folder, file = source.file.rpartition("/transformers/")
    if not folder:
        file = pathlib.Path(file).name
    return f"{file}:{source.line} {source.function}".rstrip()


def made_at(name: str, graph: Any) -> str:
    """Find the line that made an operation; of a gradient's, the line of what it belongs to.

    ``gradient_tape/x/transpose/InvertPermutation``, or in a branch
    ``gradient_tape/x/cond/gradients/x/cond/transpose_grad/InvertPermutation``, belongs to
    ``x/cond/transpose``.
    """
    forward = name.rpartition("/gradients/")[2].removeprefix("gradient_tape/")
    if forward != name:
        name = forward.rpartition("/")[0].removesuffix("_grad")
    operation = graph_operations(graph).get(name)
    if operation is None:
        return ""
    frames = [(frame.filename, frame.lineno, frame.name) for frame in operation.traceback]
    return line(messages.nearest_line(frames))


def export(step: Callable, specs: dict[str, Any]) -> tuple[compiler.Program | None, Row, Any]:
    """Let TensorFlow make XLA's program of a step: the program, what was said, the graph."""
    traced = None
    try:
        traced = trace(step, specs, timeout=None)
        exported = program(traced)
    except NotCompilable as error:
        message = error.why
        where = line(error.source)
        node = re.search(r"\{\{node ([^}]*)\}\}", error.message)
        if traced is not None and node and not where:
            where = made_at(node[1], traced.graph)
        if re.fullmatch(r"\w+", error.operation) and error.operation not in message:
            message = f"{error.operation}: {message}"
        tpu = "not reached"
        # transformers imports tensorflow_probability only where it is installed.
        if "name 'tfp' is not defined" in message:
            message = f"it needs tensorflow_probability: {message}"
            tpu = "no package"
        return None, {"tpu": tpu, "message": message, "where": where}, traced
    where = ""
    if exported.bounded:
        where = made_at(exported.bounded[0].name, traced.graph)
    return exported, {"tpu": "", "message": "", "where": where}, traced


def examine(name: str) -> tuple[Row, list[tuple[compiler.Program | None, Row]]]:
    """Build a model and ask TensorFlow, its bridge and XLA for the CPU; runs in a process apart."""
    unknown = {"tpu": "not reached", "training": "not reached", "bridge": "not traced"}
    try:
        model, inputs, labels = build(name)
    except Exception as error:
        message = short(f"{type(error).__name__}: {messages.line_of(error)}")
        return unknown | {"cpu": "not built", "message": message}, []
    # A truth value is no tensor: it is part of the program.
    options = {}
    examples = dict(inputs)
    for label, label_spec in labels.items():
        if isinstance(label_spec, bool):
            options[label] = label_spec
        else:
            examples[label] = label_spec

    def forward(tensors: dict[str, Any]) -> list[tf.Tensor]:
        return list(tensors_of(model(**tensors, training=False)))

    def training(tensors: dict[str, Any]) -> list[tf.Tensor]:
        return trained(model, options, tensors)

    def training_of_flat(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return training(tf.nest.pack_sequence_as(examples, tensors))

    exported, answers, traced = export(forward, inputs)
    refusal = answers["message"]
    if exported:
        refusal = on_cpu(traced.function, traced.specs)
    exported_training, training_answers, _ = export(training, examples)
    steps = [(exported, answers), (exported_training, training_answers)]
    bridge_answer = on_bridge(training_of_flat, *tf.nest.flatten(examples))
    tf.keras.backend.clear_session()
    gc.collect()
    cpu = "refused" if refusal else "compiles"
    return {"cpu": cpu, "message": refusal, "bridge": bridge_answer}, steps


def _ask_google(exported: compiler.Program | None, answers: Row) -> tuple[str, str]:
    """Give the verdict on a step and its message; TensorFlow's own where it made no program."""
    if exported is None:
        return answers["tpu"], answers["message"]
    return on_tpu(exported)


def model_row(kind: str, name: str, answers: Row, steps: list) -> Row:
    """Ask Google's compiler about what TensorFlow made of a model, and sum up."""
    row = {"kind": kind, "name": name, "bounded": "0", "where": ""} | answers
    if steps:
        (exported, forward), (exported_training, training) = steps
        row["tpu"], refusal = _ask_google(exported, forward)
        row["training"], training_refusal = _ask_google(exported_training, training)
        if row["tpu"] == "no package":
            row["cpu"] = row["tpu"]
        row["message"] = short(refusal or row["message"] or training_refusal)
        row["where"] = forward["where"] or training["where"]
        if exported:
            row["bounded"] = str(len(exported.bounded))
    if row["cpu"] not in ("compiles", "refused"):
        verdict = row["cpu"]
    elif row["cpu"] == "refused" and row["tpu"] in ("refused", "not reached"):
        verdict = "refused"
    elif row["cpu"] != row["tpu"]:
        verdict = "differs"
    elif row["training"] != "compiles":
        verdict = "forward only"
    else:
        verdict = "bounded" if int(row["bounded"]) else "compiles"
    return row | {"verdict": verdict}


def model_rows(names: list[tuple[str, str]]) -> Iterator[Row]:
    """Examine models (kind and name), each in a process that may die or never come back."""
    spawn = multiprocessing.get_context("spawn")  # a fork of TensorFlow may hang
    unknown = {"tpu": "not reached", "training": "not reached", "bridge": "not traced"}
    pool = None
    with compiler.started():
        for kind, name in names:
            pool = pool or concurrent.futures.ProcessPoolExecutor(
                1, mp_context=spawn, max_tasks_per_child=ENOUGH
            )
            try:
                answers, steps = pool.submit(examine, name).result(LIMIT)
            except (concurrent.futures.BrokenExecutor, TimeoutError) as error:
                cpu = "timed out" if isinstance(error, TimeoutError) else "crashed"
                answers = unknown | {"cpu": cpu, "message": str(error)}
                steps = []
                for process in list((pool._processes or {}).values()):
                    process.kill()
                pool = pool.shutdown(cancel_futures=True)
            yield model_row(kind, name, answers, steps)
    if pool:
        pool.shutdown()


def models() -> None:
    """Examine every model; go on with what a run that was stopped had found."""
    rows: dict[str, Row] = {}
    if PARTIAL.exists() and versions() in PARTIAL.read_text("utf-8").partition("\n")[0]:
        for row in read(PARTIAL):
            rows[row["name"]] = row
    names = classes()
    for row in model_rows([(kind, name) for kind, name in names if name not in rows]):
        rows[row["name"]] = row
        write(PARTIAL, COLUMNS["models"], list(rows.values()))
        print(f"{len(rows)} of {len(names)}", row["name"], row["verdict"])
    write(DATA / "models.tsv", COLUMNS["models"], [rows[name] for _, name in names])
    PARTIAL.unlink()


if __name__ == "__main__":
    {"ops": ops, "layers": layers, "models": models}[sys.argv[1]]()
