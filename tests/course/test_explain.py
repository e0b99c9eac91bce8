"""Each known symptom on a real message, and none of them on an error that has another cause."""

import json
import re
import tomllib

import nbformat
import pytest
import tensorflow as tf
from nbclient import NotebookClient
from typer.testing import CliRunner

from helpers.__main__ import app
from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from helpers.course import explain as module
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
    del row[missing]
    text = "\n".join(f"{name} = {json.dumps(value)}" for name, value in row.items())
    with pytest.raises(TypeError, match=f"missing 1 required positional argument: '{missing}'"):
        module.read(f"[[symptom]]\n{text}")


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
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local")
    tf.tpu.experimental.initialize_tpu_system(resolver)


def strategy_here():
    tf.distribute.TPUStrategy(tf.distribute.cluster_resolver.TPUClusterResolver(tpu="local"))


def checkpoint_missing():
    tf.train.Checkpoint(v=tf.Variable(1.0)).read("nowhere/ckpt-1")


@pytest.mark.parametrize(
    ("name", "fail"),
    [
        (
            "The resolver doesn't know which TPU",
            lambda: tf.distribute.cluster_resolver.TPUClusterResolver(),
        ),
        ("TensorFlow has no TPU inside", tpu_here),
        ("TPUStrategy before the TPU was initialised", strategy_here),
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
    ],
    ids=ids,
)
def test_what_tensorflow_raises_today_is_explained(name, fail, monkeypatch):
    monkeypatch.delenv("TPU_NAME", raising=False)
    with pytest.raises(Exception) as caught:
        fail()
    assert explain(caught.value).matches[0].symptom.name == name


def test_a_name_that_cannot_be_looked_up_is_explained(monkeypatch):
    monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
    with pytest.raises(OSError) as caught:
        tf.distribute.cluster_resolver.TPUClusterResolver("my-tpu")
    assert explain(caught.value).matches[0].symptom.name == "The TPU's name can't be looked up"


def test_a_damaged_checkpoint_is_explained(tmp_path):
    prefix = tf.train.Checkpoint(v=tf.Variable(tf.zeros([1000]))).write(str(tmp_path / "ckpt"))
    data = tmp_path / "ckpt.data-00000-of-00001"
    damaged = bytearray(data.read_bytes())
    damaged[50] ^= 1
    data.write_bytes(damaged)
    with pytest.raises(tf.errors.DataLossError) as caught:
        tf.train.Checkpoint(v=tf.Variable(tf.zeros([1000]))).read(prefix)
    assert explain(caught.value).matches[0].symptom.name == "A damaged checkpoint"


def test_what_led_to_an_error_is_searched_too():
    try:
        try:
            raise ValueError("Please provide a TPU Name to connect to.")
        except ValueError as cause:
            raise RuntimeError("the training could not start") from cause
    except RuntimeError as error:
        assert explain(error).matches[0].symptom.name == "The resolver doesn't know which TPU"


def test_an_error_whose_source_line_quotes_a_message_is_not_mistaken():
    try:
        raise KeyError("nothing")  # Please provide a TPU Name to connect to.
    except KeyError as error:
        assert not explain(error)


def test_an_error_that_led_to_itself_is_searched_once():
    error = ValueError("Socket closed")
    error.__context__ = other = RuntimeError("other")
    other.__context__ = error
    assert explain(error).matches[0].symptom.name == "The TPU went away"


def test_at_most_three_symptoms_are_shown_and_long_lines_are_cut():
    log = "\n".join(message for _, message in MESSAGES)
    found = explain(log)
    assert len(found.matches) == 3
    assert all(len(match.evidence) <= 160 for match in found.matches)
    (long,) = explain("x" * 500 + " Socket closed").matches
    assert long.evidence.endswith("…")


def test_it_reads_well():
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


def test_an_error_of_the_course_explains_itself():
    found = explain(CourseError("It broke.", "It was old.", "Buy a new one."))
    assert isinstance(found, Explanation) and found
    assert repr(found) == "It broke.\n  Why: It was old.\n  Fix: Buy a new one."


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("Socket closed\n", 0, "The TPU went away"),
        ("all is well\n", 1, "No known symptom"),
        ("", 1, "No known symptom"),
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


def test_the_command_reads_bytes_that_are_no_text():
    result = CliRunner().invoke(app, ["explain"], input=b"\xff\xfe Socket closed \xff")
    assert result.exit_code == 0


def test_explain_after_a_failed_cell_in_a_notebook():
    cells = [
        "import sys; sys.path.insert(0, '.')\n%load_ext helpers.course.explain\n%explain",
        "raise ValueError('Please provide a TPU Name to connect to.')",
        "%explain",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    NotebookClient(
        notebook, kernel_name="python3", allow_errors=True, resources={"metadata": {"path": ROOT}}
    ).execute()
    assert "No cell has failed yet." in notebook.cells[0].outputs[0]["text"]
    (shown,) = notebook.cells[2].outputs
    assert shown["data"]["text/plain"].startswith("The resolver doesn't know which TPU")
    assert "<strong>" in shown["data"]["text/html"]
