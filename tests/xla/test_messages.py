"""The parser of TensorFlow's error texts: real texts, and whose line a stack's frames are."""

import pathlib
import sysconfig

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from conventions import ROOT

from helpers.xla import messages
from helpers.xla.messages import Source
from helpers.xla.ops import functions

HERE = (__file__, 1, "here")
PACKAGES = sysconfig.get_path("purelib")
KERAS = f"{PACKAGES}/tf_keras/src/engine/training.py", 2, "train_step"
HUGGING_FACE = f"{PACKAGES}/transformers/tf_utils.py", 3, "call"
MACHINERY = [
    path
    for room in ("xla", "preflight")
    for path in (ROOT / "helpers" / room).rglob("*.py")
    if path != pathlib.Path(functions.__file__)
]


@tf.autograph.experimental.do_not_convert
def python_bool(x):
    return x if tf.reduce_sum(x) > 0 else -x


def in_a_layer(x):
    return tf_keras.layers.Lambda(python_bool)(x)


def gradient_of_unique(x):
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.unique(x)[0]
    return tape.gradient(y, x)


@pytest.mark.parametrize(
    ("fn", "line", "reason", "operation", "code"),
    [
        (
            lambda x: tf.linalg.lu(x)[0],
            "Detected unsupported operations on XLA_CPU_JIT: Lu (No registered 'Lu' OpKernel for",
            "no kernel",
            "Lu",
            "lambda x: tf.linalg.lu(x)[0],",
        ),
        (
            in_a_layer,
            "Using a symbolic `tf.Tensor` as a Python `bool` is not allowed. You can",
            "",
            "",
            "return x if tf.reduce_sum(x) > 0 else -x",
        ),
        (
            gradient_of_unique,
            "LookupError: gradient registry has no entry for: Unique",
            "no gradient",
            "Unique",
            "return tape.gradient(y, x)",
        ),
    ],
)
def test_what_compiling_raises(fn, line, reason, operation, code):
    spec = tf.TensorSpec([8, 8] if reason == "no kernel" else [8])
    with pytest.raises(Exception) as raised:
        tf.function(fn, jit_compile=True).experimental_get_compiler_ir(spec)(stage="hlo")
    told = messages.refusal(raised.value)
    assert told.line.startswith(line)
    assert (told.reason, told.operation) == (reason, operation)
    assert (told.source.file, told.source.code) == (__file__, code)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "ValueError"),
        ("'quoted'", "'quoted'"),
        ("\n  first\nsecond", "first"),
        (
            "Graph execution error:\n\nDetected at node gather defined at (most recent call "
            "last):\n<stack traces unavailable>\nindices[0] = 9 is not in [0, 5)\n\t "
            "[[{{node gather}}]] [Op:__inference_f_12]",
            "indices[0] = 9 is not in [0, 5)",
        ),
        (
            "Graph execution error:\n\n2 root error(s) found.\n  (0) INVALID_ARGUMENT: "
            "Incompatible shapes: [2] vs. [3]\n\t [[{{node add}}]]\n0 derived errors ignored.",
            "(0) INVALID_ARGUMENT: Incompatible shapes: [2] vs. [3]",
        ),
        (
            'in user code:\n\n    File "/home/me/model.py", line 3, in f  *\n        x = y: z\n\n'
            "    ValueError: two lines:\n    of one error\n",
            "ValueError: two lines:",
        ),
        (
            "Exception encountered when calling layer 'a' (type A).\n\nno /tmp/x/file.txt here"
            "\n\nCall arguments received by layer 'a' (type A):\n  • x=1",
            "no file.txt here",
        ),
        (
            "Failed getting HLO text: 'refused when trying to compile graph f_12[] on XLA_CPU_JIT'",
            "refused on XLA_CPU_JIT",
        ),
    ],
)
def test_the_line_that_says_what_is_wrong(text, line):
    assert messages.line_of(ValueError(text)) == line


def test_a_run_that_fails_gives_its_line():
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        tf.gather([1, 2], np.array([9]), batch_dims=0)
    assert messages.line_of(raised.value).startswith("indices[0] = 9 is not in [0, 2)")
    assert messages.source_of(raised.value).code.startswith("tf.gather([1, 2]")


@pytest.mark.parametrize(
    ("line", "most", "sentence", "expected"),
    [
        ("short", 150, 150, "short"),
        ("x" * 150, 150, 150, "x" * 150),
        ("x" * 151, 150, 150, "x" * 149 + "…"),
        (
            "A sentence that ends early. " + "And goes on " * 20,
            150,
            150,
            "A sentence that ends early.",
        ),
        ("x" * 130, 120, 200, "x" * 130),
        ("x" * 160 + ". Then more.", 120, 200, "x" * 160 + "."),
    ],
)
def test_long_lines_are_cut_after_a_sentence(line, most, sentence, expected):
    assert messages.shortened(line, most, sentence) == expected


@pytest.mark.parametrize("path", MACHINERY, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_no_line_of_the_courses_machinery_is_the_learners(path):
    frames = [HERE, (str(path), 1, "f"), KERAS]
    assert messages.nearest_line(frames) is messages.learners_line(frames) is None


@pytest.mark.parametrize("shared", [pathlib.Path("/"), ROOT.parent, ROOT])
def test_folders_that_tensorflow_leaves_out_are_given_back(shared):
    files = [ROOT / "run.py", ROOT / "helpers" / "xla" / "program.py"]
    frames = [(str(file.relative_to(shared)), 1, "f") for file in files]
    assert messages.nearest_line(frames) is None
    assert messages.nearest_line([frames[1], frames[0]]).file == str(files[0])


@pytest.mark.parametrize(
    "file",
    [
        __file__,
        functions.__file__,
        str(ROOT / "helpers" / "exercises" / "notebook_02.py"),
        str(ROOT / "helpers" / "bert" / "model.py"),
        "/tmp/ipykernel_7/123.py",
        "/home/me/helpers/xla/model.py",
        "<stdin>",
    ],
)
def test_these_lines_are_the_learners(file):
    caller = (str(ROOT / "helpers" / "xla" / "program.py"), 1, "trace")
    frames = [
        ("/home/me/run.py", 1, "<module>"),
        caller,
        (file, 1, "call  **"),
        HUGGING_FACE,
        KERAS,
    ]
    assert messages.learners_line(frames) == messages.nearest_line(frames)
    assert messages.learners_line(frames).file == file
    assert messages.learners_line(frames).function == "call"


@pytest.mark.parametrize(
    "frame",
    [
        KERAS,
        (f"{PACKAGES}/keras/src/layers/layer.py", 1, "f"),
        (f"{PACKAGES}/tensorflow/python/ops/math_ops.py", 1, "f"),
        (f"{sysconfig.get_path('stdlib')}/contextlib.py", 1, "f"),
        ("<frozen importlib._bootstrap>", 1, "f"),
        ("/tmp/__autograph_generated_fileabc.py", 1, "tf__f"),
    ],
)
def test_lines_of_tensorflow_keras_and_python_say_nothing(frame):
    assert messages.nearest_line([frame]) is None
    assert messages.nearest_line([HUGGING_FACE, frame]).file == HUGGING_FACE[0]
    assert messages.learners_line([HUGGING_FACE, frame]) is None


def test_a_source_is_written_for_people():
    assert (
        repr(Source("/a/model.py", 3, "call", "return x")) == "model.py, line 3, in call: return x"
    )
    assert repr(Source("/tmp/ipykernel_7/1.py", 3, "<lambda>")) == "the notebook's cell, line 3"
