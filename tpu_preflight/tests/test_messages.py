"""The parser of TensorFlow's error texts: real texts, and whose line a stack's frames are."""

import linecache
import pathlib
import sysconfig
import tomllib

import pytest
from programs import ROOT

from tpu_preflight.program import messages
from tpu_preflight.program.messages import Source

TOOL = ROOT / "src/tpu_preflight"
PACKAGES = sysconfig.get_path("purelib")
TRACING = str(TOOL / "program" / "tracing.py")

KERAS = (f"{PACKAGES}/tf_keras/src/engine/training.py", 2, "train_step")
HUGGING_FACE = (f"{PACKAGES}/transformers/tf_utils.py", 3, "call")

TEXTS = tomllib.loads(pathlib.Path(__file__).with_name("messages.toml").read_text("utf-8"))


@pytest.mark.parametrize("case", TEXTS["line"], ids=lambda case: case["line"])
def test_the_line_that_says_what_is_wrong(case):
    assert messages.line_of(ValueError(case["text"])) == case["line"]


MACHINERY = sorted(path for path in TOOL.rglob("*.py") if path.name != "__init__.py")


@pytest.mark.parametrize("path", MACHINERY, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_line_of_the_machinery_is_the_learners(path):
    frames = [(__file__, 1, "caller"), (str(path), 1, "f"), KERAS]
    assert messages.nearest_line(frames) is None
    assert messages.learners_line(frames) is None


@pytest.mark.parametrize("shared", [pathlib.Path("/"), ROOT.parent, ROOT])
def test_folders_that_tensorflow_leaves_out_are_given_back(shared):
    files = [ROOT / "run.py", pathlib.Path(TRACING)]
    frames = [(str(file.relative_to(shared)), 1, "f") for file in files]
    assert messages.nearest_line(frames) is None
    frames.reverse()
    assert messages.nearest_line(frames).file == str(files[0])


@pytest.mark.parametrize(
    "file",
    [__file__, "/tmp/ipykernel_7/123.py", "/home/me/tpu_preflight/model.py", "<stdin>"],
)
def test_these_lines_are_the_learners(file):
    frames = [
        ("/home/me/run.py", 1, "main"),
        (TRACING, 1, "trace"),
        (file, 1, "call  **"),
        HUGGING_FACE,
        KERAS,
    ]
    source = Source(file, 1, "call", linecache.getline(file, 1).rstrip("\n"))
    assert messages.learners_line(frames) == source
    assert messages.nearest_line(frames) == source


@pytest.mark.parametrize(
    "file",
    [
        KERAS[0],
        "<frozen importlib._bootstrap>",
        "/tmp/__autograph_generated_fileabc.py",
        f"{sysconfig.get_path('stdlib')}/contextlib.py",
        f"{PACKAGES}/keras/src/layers/layer.py",
        f"{PACKAGES}/tensorflow/python/ops/math_ops.py",
    ],
)
def test_lines_of_tensorflow_keras_and_python_say_nothing(file):
    frame = (file, 1, "f")
    assert messages.nearest_line([frame]) is None
    assert messages.learners_line([HUGGING_FACE, frame]) is None
    assert messages.nearest_line([HUGGING_FACE, frame]).file == HUGGING_FACE[0]
