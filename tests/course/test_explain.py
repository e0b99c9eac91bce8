"""Each known symptom on real messages, and none of them on an error that has another cause."""

import json
import re
import tomllib

import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from typer.testing import CliRunner

from helpers.base.errors import CourseError
from helpers.base.settings import ROOT
from helpers.course.commands.app import app
from helpers.course.help import explain as module
from helpers.course.help.explain import SYMPTOMS, Explanation, explain


def kept(name):
    return tomllib.loads((ROOT / "tests/course" / name).read_text("utf-8"))


READ = kept("messages.toml")
MESSAGES = [(row["symptom"], row["text"]) for row in READ["message"]]
THREADS = [
    row for half in ("threads_seen.toml", "threads_held_back.toml") for row in kept(half)["thread"]
]


def ids(value):
    return re.sub(r"\W+", "_", value)[:40] if isinstance(value, str) else None


@pytest.mark.parametrize(("name", "message"), MESSAGES, ids=ids)
def test_a_real_message_is_explained_first_by_its_own_symptom(name, message):
    assert explain(message).matches[0].symptom.name == name


@pytest.mark.parametrize("row", THREADS, ids=lambda row: row["id"])
def test_what_people_pasted_is_explained_first_by_a_right_symptom_or_not_at_all(row):
    """``expected`` names the right answers; "" (or nothing in it) allows to say nothing."""
    names = [match.symptom.name for match in explain(row["text"]).matches]
    if names:
        assert names[0] in row["expected"], row["is"]
    else:
        assert row["expected"] == [] or "" in row["expected"], row["is"]


def test_every_symptom_is_there_once_and_has_a_real_message():
    names = [symptom.name for symptom in SYMPTOMS]
    assert len(names) == len(set(names)) >= 90
    expected = {name for row in THREADS for name in row["expected"]} - {""}
    assert set(names) == {name for name, _ in MESSAGES} | expected


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda symptom: symptom.name)
def test_each_of_its_words_finds_a_symptom_and_only_near_what_they_demand(symptom):
    for words in symptom.seen:
        if words.then:
            continue  # what follows is in the real messages
        said = words.text.replace("…", "of 8 x 4")
        found = explain(" ".join([said, *words.near[:1]])).matches
        assert symptom in [match.symptom for match in found], words
        if words.near and not any(word.lower() in said.lower() for word in words.near):
            alone = [match.symptom for match in explain(said).matches]
            enough = [other for other in symptom.seen if not other.near and not other.then]
            said_anyway = any(part.text.lower() in said.lower() for part in enough)
            assert said_anyway or symptom not in alone, words
        for word in words.unless[:1]:
            other = explain(f"{said} {' '.join(words.near[:1])} {word}").matches
            shown = [match for match in other if match.symptom == symptom]
            assert not shown or len(symptom.seen) > 1, words


@pytest.mark.parametrize("message", READ["unrelated"], ids=ids)
def test_an_unrelated_error_is_not_explained_but_its_line_is_shown(message):
    found = explain(message)
    assert not found and repr(found).startswith(module.NOTHING) and module.TRY in repr(found)
    for line in filter(None, [found.unknown]):
        assert line in " ".join(message.split()) and "https://github.com/search" in repr(found)


def test_every_symptom_names_its_thread_or_notebook_its_month_and_a_lesson():
    lessons = {path.name[:2] for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    for symptom in SYMPTOMS:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+#\d+|notebook \d\d", symptom.source), symptom.name
        assert symptom.lesson in lessons and symptom.sure in module.SURE, symptom.name
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", symptom.checked), symptom.name
        assert symptom.why.endswith(".") and symptom.fix.rstrip(")").endswith((".", "'"))


@pytest.mark.parametrize("missing", ["source", "checked"])
def test_a_row_without_source_or_month_is_refused(missing):
    row = {**vars(SYMPTOMS[0]), "seen": ["x"]}
    text = "\n".join(f"{key} = {json.dumps(row[key])}" for key in row if key != missing)
    with pytest.raises(TypeError, match=f"missing 1 required positional argument: '{missing}'"):
        module.read(f"[[symptom]]\n{text}")


def test_what_led_to_an_error_is_searched_too():
    cause = ValueError("Please provide a TPU Name to connect to.")
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("the training could not start") from cause
    assert explain(caught.value).matches[0].symptom.name == "The resolver doesn't know which TPU"
    with pytest.raises(KeyError) as caught:
        raise KeyError("nothing")  # Please provide a TPU Name to connect to.
    assert not explain(caught.value)  # a line of source is no message
    # An error that led to itself is searched once.
    error = ValueError("Unavailable: Socket closed")
    error.__context__ = other = RuntimeError("other")
    other.__context__ = error
    assert explain(error).matches[0].symptom.name == "The TPU went away"


def test_at_most_three_symptoms_are_shown_and_long_lines_are_cut():
    found = explain("\n".join(message for _, message in MESSAGES)).matches
    assert len(found) == 3 and all(len(match.evidence) <= 160 for match in found)
    (long,) = explain("x" * 500 + " Unavailable: Socket closed").matches
    assert long.evidence.endswith("…")


def test_it_reads_well():
    ours = explain(CourseError("It broke.", "It was old.", "Buy a new one."))
    assert isinstance(ours, Explanation) and ours
    assert repr(ours) == "It broke.\n  Why: It was old.\n  Fix: Buy a new one."
    assert repr(explain("ValueError: Please provide a TPU Name to connect to.")) == (
        "The resolver doesn't know which TPU\n"
        "  Seen: ValueError: Please provide a TPU Name to connect to.\n"
        "  Sure: certain: this message has this cause\n"
        "  Why: TPUClusterResolver() looks at KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, TPU_NAME and "
        "TPU_CONFIG, and found nothing. It doesn't look at COLAB_TPU_ADDR, and today's Colab and "
        "Kaggle set no name.\n"
        "  Fix: On a TPU VM (Colab and Kaggle today): TPUClusterResolver(tpu='local').\n"
        "  Lesson: notebook 04\n"
        "  Thread: https://github.com/tensorflow/tensorflow/issues/70827"
    )


def test_the_page_is_escaped():
    shown = explain("<b>Unavailable: Socket closed</b>")._repr_html_()
    assert "&lt;b&gt;Unavailable: Socket closed" in shown and "<b>" not in shown
    assert explain("?")._repr_html_().startswith("<p><strong>No known symptom")


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("Unavailable: Socket closed\n", 0, "The TPU went away"),
        ("all is well\n", 1, "No known symptom"),
        ("", 1, "No known symptom"),
        (
            b"\xff\xfe Unavailable: Socket closed \xff",
            0,
            "The TPU went away",
        ),  # bytes that are no text
    ],
)
def test_the_command_reads_a_log(text, status, said):
    result = CliRunner().invoke(app, ["explain"], input=text)
    assert (result.exit_code, said in result.stdout) == (status, True)


def test_the_page_of_all_symptoms_is_up_to_date():
    kept = (ROOT / "notebooks/TROUBLESHOOTING.md").read_text("utf-8")
    assert kept == module.page(), "tpu-course explain --page > notebooks/TROUBLESHOOTING.md"
    assert CliRunner().invoke(app, ["explain", "--page"]).stdout == kept


def test_the_page_has_a_line_for_each_symptom_that_markdown_reads_as_written():
    from markdown_it import MarkdownIt

    tokens = MarkdownIt().enable("table").parse(module.page())
    cells = [token.children for token in tokens if token.type == "inline"]
    shown = {"".join(part.content for part in children or ()) for children in cells}
    for symptom in SYMPTOMS:
        assert any(cell.startswith(symptom.name) for cell in shown)
        assert symptom.fix.replace("`", "") in shown, symptom.fix


def run_notebook(*cells):
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells])
    where = {"metadata": {"path": ROOT}}
    NotebookClient(notebook, kernel_name="python3", allow_errors=True, resources=where).execute()
    return [cell.outputs for cell in notebook.cells]


@pytest.mark.slow
def test_explain_after_a_failed_cell_in_a_notebook():
    first, _, last = run_notebook(
        "import sys; sys.path.insert(0, '.')\n%load_ext helpers.course.help.explain\n%explain",
        "raise ValueError('Please provide a TPU Name to connect to.')",
        "%explain",
    )
    assert "No cell has failed since this kernel started." in first[0]["text"]
    (shown,) = last
    assert shown["data"]["text/plain"].startswith("The resolver doesn't know which TPU")
    assert "<strong>" in shown["data"]["text/html"]


@pytest.mark.slow
def test_a_kernel_of_the_courses_environment_explains_a_cell_before_any_setup(
    monkeypatch, tmp_path
):
    """After a restart: what install.sh writes for kernels is read here from a profile."""
    script = (ROOT / "helpers/install.sh").read_text("utf-8")
    (config,) = re.findall(r"ipython_kernel_config\.py <<'END'\n(.*?)END\n", script, re.S)
    profile = tmp_path / "profile_default"
    profile.mkdir()
    (profile / "ipython_kernel_config.py").write_text(config)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    failed, explained, names = run_notebook(
        "tf.constant(1)",
        "%explain",
        "import sys; 'helpers' in sys.modules, 'tensorflow' in sys.modules",
    )
    assert failed[0]["evalue"] == "name 'tf' is not defined"
    said = explained[0]["data"]["text/plain"]
    assert said.startswith("A cell above was not run") and "Run All Above" in said
    assert names[0]["data"]["text/plain"] == "(True, False)"
    ((plain,),) = run_notebook("%explain")[:1]
    assert "No cell has failed" in plain["text"]
