"""The parser of TensorFlow's error texts: real texts, and whose line a stack's frames are."""

import linecache
import pathlib
import sysconfig
import tomllib

import pytest
from programs import ROOT

from tpu_preflight.program import messages
from tpu_preflight.program.messages import Source

TOOL, PACKAGES = ROOT / "src/tpu_preflight", sysconfig.get_path("purelib")
KERAS = f"{PACKAGES}/tf_keras/src/engine/training.py", 2, "train_step"
HUGGING_FACE = f"{PACKAGES}/transformers/tf_utils.py", 3, "call"
MACHINERY = [path for path in TOOL.rglob("*.py") if path.name != "__init__.py"]
TEXTS = tomllib.loads(pathlib.Path(__file__).with_name("messages.toml").read_text("utf-8"))


@pytest.mark.parametrize("told", TEXTS["line"], ids=lambda told: told["line"])
def test_the_line_that_says_what_is_wrong(told):
    assert messages.line_of(ValueError(told["text"])) == told["line"]


@pytest.mark.parametrize("path", sorted(MACHINERY), ids=lambda p: f"{p.parent.name}/{p.name}")
def test_no_line_of_the_machinery_is_the_learners(path):
    frames = [(__file__, 1, "caller"), (str(path), 1, "f"), KERAS]
    assert messages.nearest_line(frames) is messages.learners_line(frames) is None


@pytest.mark.parametrize("shared", [pathlib.Path("/"), ROOT.parent, ROOT])
def test_folders_that_tensorflow_leaves_out_are_given_back(shared):
    files = [ROOT / "run.py", TOOL / "program" / "tracing.py"]
    frames = [(str(file.relative_to(shared)), 1, "f") for file in files]
    assert messages.nearest_line(frames) is None
    assert messages.nearest_line(frames[::-1]).file == str(files[0])


MINE = [__file__, "/tmp/ipykernel_7/123.py", "/home/me/tpu_preflight/model.py", "<stdin>"]


@pytest.mark.parametrize("file", MINE)
def test_these_lines_are_the_learners(file):
    tracing = (str(TOOL / "program" / "tracing.py"), 1, "trace")
    frames = [("/home/me/run.py", 1, "main"), tracing, (file, 1, "call  **"), HUGGING_FACE, KERAS]
    assert messages.learners_line(frames) == messages.nearest_line(frames)
    assert messages.nearest_line(frames) == Source(file, 1, "call", linecache.getline(file, 1)[:-1])


THEIRS = KERAS[0], "<frozen importlib._bootstrap>", "/tmp/__autograph_generated_fileabc.py"
THEIRS += (f"{sysconfig.get_path('stdlib')}/contextlib.py",)
INSTALLED = "keras/src/layers/layer.py", "tensorflow/python/ops/math_ops.py"


@pytest.mark.parametrize("file", [*THEIRS, *(f"{PACKAGES}/{name}" for name in INSTALLED)])
def test_lines_of_tensorflow_keras_and_python_say_nothing(file):
    frames = [HUGGING_FACE, (file, 1, "f")]
    assert messages.nearest_line(frames[1:]) is messages.learners_line(frames) is None
    assert messages.nearest_line(frames).file == HUGGING_FACE[0]
