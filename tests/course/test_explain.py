"""Each known symptom on a real message, and none of them on an error that has another cause."""

import json
import re
import tomllib

import pytest
import tensorflow as tf
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from typer.testing import CliRunner

from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from helpers.course import explain as module
from helpers.course.commands.app import app
from helpers.course.explain import SYMPTOMS, Explanation, explain

READ = tomllib.loads((ROOT / "tests/course/messages.toml").read_text("utf-8"))
MESSAGES = [(row["symptom"], row["text"]) for row in READ["message"]]


def ids(value):
    return re.sub(r"\W+", "_", value)[:40] if isinstance(value, str) else None


@pytest.mark.parametrize(("name", "message"), MESSAGES, ids=ids)
def test_a_real_message_is_explained_first_by_its_own_symptom(name, message):
    assert explain(message).matches[0].symptom.name == name


def test_every_symptom_is_there_once_and_has_a_real_message():
    names = [symptom.name for symptom in SYMPTOMS]
    assert len(names) == len(set(names)) >= 26
    assert set(names) == {name for name, _ in MESSAGES}


@pytest.mark.parametrize("message", READ["unrelated"], ids=ids)
def test_an_unrelated_error_is_not_explained(message):
    assert not explain(message)
    assert repr(explain(message)) == module.NOTHING


def test_every_symptom_names_its_thread_or_notebook_its_month_and_a_lesson():
    for symptom in SYMPTOMS:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+|notebook 0\d", symptom.source), symptom.name
        assert re.fullmatch(r"0[0-8]", symptom.lesson), symptom.name
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", symptom.checked), symptom.name
        assert symptom.why.endswith(".") and symptom.fix.rstrip(")").endswith((".", "'"))


@pytest.mark.parametrize("missing", ["source", "checked"])
def test_a_row_without_source_or_month_is_refused(missing):
    row = {**vars(SYMPTOMS[0]), "pattern": ["x"]}
    text = "\n".join(f"{key} = {json.dumps(row[key])}" for key in row if key != missing)
    with pytest.raises(TypeError, match=f"missing 1 required positional argument: '{missing}'"):
        module.read(f"[[symptom]]\n{text}")


Resolver = tf.distribute.cluster_resolver.TPUClusterResolver


@tf.function(jit_compile=True)
def string_under_xla(x):
    return tf.strings.length(tf.strings.as_string(x))


@tf.function(jit_compile=True)
def size_under_xla(x):
    return tf.range(tf.reduce_sum(x))


@tf.function(autograph=False)
def python_if(x):
    return x if tf.reduce_sum(x) > 0 else -x


def label_out_of_range():
    tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[-100], logits=[[1.0, 2.0]])


def tpu_here():
    tf.tpu.experimental.initialize_tpu_system(Resolver(tpu="local"))


def checkpoint_missing():
    tf.train.Checkpoint(v=tf.Variable(1.0)).read("nowhere/ckpt-1")


def damaged_checkpoint(folder):
    saved = tf.train.Checkpoint(v=tf.Variable(tf.zeros([1000])))
    prefix = saved.write(str(folder / "ckpt"))
    data = folder / "ckpt.data-00000-of-00001"
    damaged = bytearray(data.read_bytes())
    damaged[50] ^= 1
    data.write_bytes(damaged)
    saved.read(prefix)


@pytest.mark.parametrize(
    ("name", "fail"),
    [
        ("The resolver doesn't know which TPU", Resolver),
        ("The TPU's name can't be looked up", lambda: Resolver("my-tpu")),
        ("TensorFlow has no TPU inside", tpu_here),
        (
            "TPUStrategy before the TPU was initialised",
            lambda: tf.distribute.TPUStrategy(Resolver(tpu="local")),
        ),
        ("Code of TensorFlow 1", lambda: tf.contrib),
        ("Code of TensorFlow 1", lambda: tf.compat.v1.estimator),
        ("An operation that XLA doesn't have", lambda: string_under_xla(tf.constant([1]))),
        (
            "A size that is known too late",
            lambda: size_under_xla.experimental_get_compiler_ir(tf.TensorSpec([2], "int32"))("hlo"),
        ),
        ("A Python if on a tensor", lambda: python_if(tf.constant([1.0]))),
        ("A label out of range", label_out_of_range),
        ("No checkpoint there", checkpoint_missing),
        ("A damaged checkpoint", damaged_checkpoint),
    ],
    ids=ids,
)
def test_what_tensorflow_raises_today_is_explained(name, fail, monkeypatch, tmp_path):
    monkeypatch.delenv("TPU_NAME", raising=False)
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(Exception) as caught:
        fail(*([tmp_path] if fail is damaged_checkpoint else []))
    assert explain(caught.value).matches[0].symptom.name == name


def test_what_led_to_an_error_is_searched_too():
    cause = ValueError("Please provide a TPU Name to connect to.")
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("the training could not start") from cause
    assert explain(caught.value).matches[0].symptom.name == "The resolver doesn't know which TPU"
    with pytest.raises(KeyError) as caught:
        raise KeyError("nothing")  # Please provide a TPU Name to connect to.
    assert not explain(caught.value)  # a line of source is no message
    # An error that led to itself is searched once.
    error = ValueError("Socket closed")
    error.__context__ = other = RuntimeError("other")
    other.__context__ = error
    assert explain(error).matches[0].symptom.name == "The TPU went away"


def test_at_most_three_symptoms_are_shown_and_long_lines_are_cut():
    found = explain("\n".join(message for _, message in MESSAGES)).matches
    assert len(found) == 3 and all(len(match.evidence) <= 160 for match in found)
    (long,) = explain("x" * 500 + " Socket closed").matches
    assert long.evidence.endswith("…")


def test_it_reads_well():
    ours = explain(CourseError("It broke.", "It was old.", "Buy a new one."))
    assert isinstance(ours, Explanation) and ours
    assert repr(ours) == "It broke.\n  Why: It was old.\n  Fix: Buy a new one."
    assert repr(explain("ValueError: Please provide a TPU Name to connect to.")) == (
        "The resolver doesn't know which TPU\n"
        "  Seen: ValueError: Please provide a TPU Name to connect to.\n"
        "  Why: TPUClusterResolver() looks at TPU_NAME and found nothing. It never looks at "
        "COLAB_TPU_ADDR, and a TPU VM sets no name.\n"
        "  Fix: On a TPU VM (Colab and Kaggle today): TPUClusterResolver(tpu='local').\n"
        "  More: notebook 04; tensorflow/tensorflow#70827"
    )


def test_the_page_is_escaped():
    shown = explain("<b>Socket closed</b>")._repr_html_()
    assert "&lt;b&gt;Socket closed" in shown and "<b>" not in shown
    assert explain("?")._repr_html_().startswith("<p>No known symptom")


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("Socket closed\n", 0, "The TPU went away"),
        ("all is well\n", 1, "No known symptom"),
        ("", 1, "No known symptom"),
        (b"\xff\xfe Socket closed \xff", 0, "The TPU went away"),  # bytes that are no text
    ],
)
def test_the_command_reads_a_log(text, status, said):
    result = CliRunner().invoke(app, ["explain"], input=text)
    assert (result.exit_code, said in result.stdout) == (status, True)


def test_the_page_of_all_symptoms_is_up_to_date():
    kept = (ROOT / "notebooks/TROUBLESHOOTING.md").read_text("utf-8")
    assert kept == module.page(), "python -m helpers explain --page > notebooks/TROUBLESHOOTING.md"
    assert CliRunner().invoke(app, ["explain", "--page"]).stdout == kept


def test_the_page_has_a_line_for_each_symptom_that_markdown_reads_as_written():
    from markdown_it import MarkdownIt

    tokens = MarkdownIt().enable("table").parse(module.page())
    cells = [token.children for token in tokens if token.type == "inline"]
    shown = {"".join(part.content for part in children or ()) for children in cells}
    for symptom in SYMPTOMS:
        assert symptom.name in shown
        assert symptom.fix.replace("`", "") in shown, symptom.fix


def test_explain_after_a_failed_cell_in_a_notebook():
    cells = [
        "import sys; sys.path.insert(0, '.')\n%load_ext helpers.course.explain\n%explain",
        "raise ValueError('Please provide a TPU Name to connect to.')",
        "%explain",
    ]
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    where = {"metadata": {"path": ROOT}}
    NotebookClient(notebook, kernel_name="python3", allow_errors=True, resources=where).execute()
    assert "No cell has failed yet." in notebook.cells[0].outputs[0]["text"]
    (shown,) = notebook.cells[2].outputs
    assert shown["data"]["text/plain"].startswith("The resolver doesn't know which TPU")
    assert "<strong>" in shown["data"]["text/html"]
