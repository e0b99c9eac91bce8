"""Each symptom on what people pasted, in any form; none on an error that has another cause."""

import io
import re
import sys
import time
import tomllib

import pytest
from conventions import ROOT
from hypothesis import given
from hypothesis import strategies as st
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from typer.testing import CliRunner

from course.commands.app import app
from helpers.base.errors import CourseError
from helpers.display import explain as module
from helpers.display.explain import SYMPTOMS, explain

THREADS = tomllib.loads((ROOT / "tests/display/threads.toml").read_text("utf-8"))
UNRELATED = THREADS.pop("unrelated")
INNOCENT = THREADS.pop("innocent")
WELL_ENDED = tomllib.loads((ROOT / "tests/display/innocent_logs.toml").read_text("utf-8"))
SAID, NAME = "Please provide a TPU Name to connect to.", "The resolver doesn't know which TPU"


def names(error):
    """Name the symptoms of the table that are in an error, without the family of its class."""
    matches = explain(error).matches
    return [match.symptom.name for match in matches if match.sure != module.BY_CLASS]


@pytest.mark.parametrize("row", THREADS.values(), ids=THREADS)
def test_what_people_pasted_is_explained_first_by_a_right_symptom_or_not_at_all(row):
    explained = names(row["text"])
    best = explained[0] if explained else ""
    assert best in (row["expected"] or [""]), row.get("is")


def test_every_symptom_is_met_and_its_lesson_exists():
    symptoms = [symptom.name for symptom in SYMPTOMS]
    assert len(set(symptoms)) == len(symptoms)
    expected = set()
    for row in THREADS.values():
        expected.update(row["expected"])
    assert expected - {""} == set(symptoms)
    lessons = {path.name[:2] for path in (ROOT / "notebooks").glob("[0-9]*.ipynb")}
    assert {symptom.lesson for symptom in SYMPTOMS} <= lessons


@pytest.mark.parametrize("message", UNRELATED)
def test_an_error_of_another_cause_is_no_symptom(message):
    assert not names(message)


@pytest.mark.parametrize("log", INNOCENT)
def test_a_log_in_which_nothing_is_wrong_is_not_explained(log):
    assert not explain(log)


@pytest.mark.parametrize("log", WELL_ENDED.values(), ids=WELL_ENDED)
def test_of_a_program_that_ended_well_nothing_but_notes_is_told(log):
    for match in explain(log).matches:
        assert match.sure == "note"


NO_CHIP = (
    "Unable to initialize backend 'tpu': NOT_FOUND: TPU initialization failed: "
    "No jellyfish device found."
)
LOCKED = (
    "Unable to initialize backend 'tpu': ABORTED: Internal error when accessing libtpu "
    'multi-process lockfile. Run "$ sudo rm /tmp/libtpu_lockfile".'
)


@pytest.mark.parametrize(
    "logged",
    [
        "INFO:jax._src.xla_bridge:",
        "INFO:2026-11-28 11:21:37,779:jax._src.xla_bridge:834: ",
        "I1128 11:21:37.779199 140521081559936 xla_bridge.py:834] ",
    ],
)
@pytest.mark.parametrize(
    ("message", "cause"),
    [(NO_CHIP, "No TPU chip on this machine"), (LOCKED, "Another program holds the TPU")],
)
def test_what_jax_logs_as_information_is_a_note_and_an_error_of_the_same_words_is_not(
    logged, message, cause
):
    log = f"{logged}{message}\nstep 0 loss 0.889 | errors so far: 0\n"
    assert names(log) == ["JAX looks for a TPU (a note)"]
    error = f"Traceback (most recent call last):\nRuntimeError: {message}"
    assert cause in names(log + error)
    assert cause in names(error)
    assert cause in names(f"WARNING:jax._src.xla_bridge:{message}")
    assert cause in names(message.partition("'tpu': ")[2])


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (
            "F x.inc:73] TpuNodeContext_StopChipHeartbeats not available in this library.",
            "jax[tpu]",
        ),
        (
            "ImportError: cannot import name 'Pipeline' from 'odd.pipeline'",
            "check the spelling first",
        ),
        ("job.sh: line 26: 118054 Segmentation fault (core dumped)", "First find where"),
        ("WARNING: No GPU/TPU found, falling back to CPU.", "choose a machine that has one"),
        ("AttributeError: 'Model' object has no attribute 'fit_generator'", "the same generator"),
    ],
)
def test_the_first_thing_to_do_is_advised(text, advice):
    assert advice in explain(text).matches[0].symptom.fix


def test_of_a_size_that_is_traced_the_message_is_quoted():
    sizes = "128, " * 40
    message = f"TypeError: Shapes must be 1D sequences of concrete values, got ({sizes}JitTracer)."
    (match,) = explain(message).matches
    assert match.symptom.name == "A value that JAX lacks while it traces"
    assert match.evidence.startswith("TypeError: Shapes must be 1D sequences")


def test_a_method_that_other_libraries_models_lack_is_not_one_that_keras_took_away():
    assert not names("AttributeError: 'LinearSVC' object has no attribute 'predict_proba'")


@pytest.mark.parametrize("log", ["TPU node-1 state: PREEMPTED", "TPU worker preempted=True"])
def test_a_tpu_that_was_preempted_went_away(log):
    assert names(log) == ["The TPU went away"]


@pytest.mark.parametrize(
    "text",
    [
        "\x1b[0;31mValueError\x1b[0m: Please \x1b[1mprovide\x1b[22m a TPU Name to connect to.",
        "[0;31mValueError[0m: Please provide[0;34m a[0m TPU Name to connect to.",
        "Please provide \x1b]8;;https://a.org\x1b\\a TPU\x1b]8;;\x1b\\ Name to connect to.",
        "ValueError: Please provide a TPU Na\nme to connect to.",
        "50%\rETA: 3s\b\b\b\bPlease provide a TPU Name to connect to.",
        "> ValueError: Please provide a TPU\n> Name to connect to.",
        "(task, pid=22934) Please provide a TPU\n(task, pid=22934) Name to connect to.",
        "23:36:18.184105: Please provide a TPU\n[rank0]: Name to connect to.",
        '{"text": "Please provide a TPU\\n Name to connect to."}',
        "&quot;Please provide a TPU Name to connect to.&quot;",
    ],
)
def test_colours_prompts_times_and_broken_lines_are_read(text):
    assert names(text) == [NAME]


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + SAID.encode(),
        b"\xff\xfe" + SAID.encode("utf-16-le") + b"\n",  # half a character at the end
        "텐서플로: ".encode("cp949") + SAID.encode() + b"\x80\x00",
        b"first\n" + ("\n" + SAID).encode("utf-16-le"),  # PowerShell's >> on a file of UTF-8
    ],
)
def test_bytes_of_any_encoding_become_text(data):
    assert names(module.decode(data)) == [NAME]


def test_of_a_long_log_the_beginning_and_the_end_are_read(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 4)
    assert module.read(io.BytesIO(b"")) == (b"", 0)
    assert module.read(io.BytesIO(b"abcdefgh")) == (b"abcdefgh", 0)
    assert module.read(io.BytesIO(b"abcdefghijk")) == (b"abcdhijk", 3)


@given(st.text())
def test_any_text_is_read(text):
    assert repr(explain(text))


def test_what_must_stand_near_is_bounded_and_the_evidence_is_the_line():
    text = "TPU" + " x" * 1000 + "\nDevice or resource busy /dev/accel0"
    (match,) = explain(text).matches
    assert match.symptom.name == "Another program holds the TPU"
    assert match.evidence == "Device or resource busy /dev/accel0"
    assert not explain("Device or resource busy" + " x" * 1000 + " /dev/accel0")
    evidence = explain("x " * 300 + SAID + " y" * 300).matches[0].evidence
    assert len(evidence) <= 160
    assert SAID in evidence


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("all is well", ""),
        ("Traceback:\n  File x\nKeyError: 'loss'\n\nnote", "KeyError: 'loss'"),
        ("KeyError: 1\nDuring handling …:\nValueError: 2", "ValueError: 2"),
        # TensorFlow's heading says nothing: what stands below it does.
        (
            "InvalidArgumentError: Graph execution error:\n  (0) INVALID_ARGUMENT: odd\n[[node]]",
            "(0) INVALID_ARGUMENT: odd",
        ),
        (
            "InvalidArgumentError: Graph execution error:",
            "InvalidArgumentError: Graph execution error:",
        ),
        (
            "step 1\nE0101 x.cc:1] NOT_FOUND: no such thing\nstep 2",
            "E0101 x.cc:1] NOT_FOUND: no such thing",
        ),
        ("ERROR: (gcloud.x) what happened\n- '@type': y", "ERROR: (gcloud.x) what happened"),
        ("terminate called\n  what():  bad thing\nAborted", "what(): bad thing"),
        ("FAILED tests/x.py::test_y - OddFailure: z", "FAILED tests/x.py::test_y - OddFailure: z"),
        # As pytest, vLLM and people who quote write it.
        (">   f()\nE   TypeError: odd\nx.py:1: TypeError", "TypeError: odd"),
        ("ERROR 05-29 08:34:18 [core.py:500] RuntimeError: odd\nexit", "RuntimeError: odd"),
        ("It says:\n`ValueError: odd`", "ValueError: odd`"),
        ("WARNING: nothing is wrong", ""),
    ],
)
def test_what_is_unknown_gives_the_line_of_the_error(text, line):
    explanation = explain(text)
    assert not names(text)
    lines = [match.evidence for match in explanation.matches]
    assert line in [*lines, explanation.unknown]


OTHER_SAID, OTHER_NAME = "Unsupported data type for TPU: string", "Strings on the TPU"


def test_the_error_that_came_last_comes_first_and_an_earlier_one_is_less_sure():
    text = "Traceback (most recent call last):\nValueError: {}\nRuntimeError: {}"
    for earlier, final in ((SAID, OTHER_SAID), (OTHER_SAID, SAID)):
        matches = explain(text.format(earlier, final)).matches
        assert [match.sure for match in matches] == ["certain", "likely"]
        assert final in matches[0].evidence
        assert earlier in matches[1].evidence


def test_what_stands_before_every_error_is_no_cause():
    log = f"worker: {SAID}\n"
    assert names(log) == [NAME]
    failed = explain(log + "Traceback (most recent call last):\nTypeError: odd")
    assert not failed
    assert failed.unknown == "TypeError: odd"
    assert names(log + f"Traceback (most recent call last):\nTypeError: {OTHER_SAID}") == [
        OTHER_NAME
    ]


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ("/env/lib/python3.11/site-packages/keras/src/utils/progbar.py", "A Keras whose own files"),
        ("/home/me/train.py", "Names of Keras 2"),
    ],
)
def test_a_name_that_keras_itself_lacks_comes_from_mixed_files(frame, name):
    text = (
        "Traceback (most recent call last):\n"
        '  File "/env/lib/python3.11/site-packages/keras/src/callbacks/a.py", line 3, in call\n'
        "    self.odd()\n"
        f'  File "{frame}", line 7, in update\n'
        "    backend.convert()\n"
        "AttributeError: module 'keras.src.backend' has no attribute 'convert'"
    )
    (match,) = explain(text).matches
    assert match.symptom.name.startswith(name)


WORK = "step 1 loss 0.9\nstep 2 loss 0.8\nTraining finished\n"


@pytest.mark.parametrize(
    "heading",
    [
        "worker: ",
        "[WARNING] ",
        "2026-11-28 15:00:40,674 3120 INFO ",
        "/env/a.py:3: UserWarning: ",
        "falling back to the default: ",
    ],
)
def test_what_the_program_overcame_is_a_note_and_in_an_excerpt_a_diagnosis(heading):
    line = f"{heading}{SAID}\n"
    (match,) = explain(line + WORK).matches
    assert (match.symptom.name, match.sure) == (NAME, "note")
    for text in (line, f"{line}x = 1"):
        (match,) = explain(text).matches
        assert (match.symptom.name, match.sure) == (NAME, "certain")
    ended = explain(f"{line}{WORK}Traceback (most recent call last):\nValueError: {SAID}")
    assert [match.sure for match in ended.matches] == ["certain"]
    assert not explain(f"{line}{WORK}Traceback (most recent call last):\nTypeError: odd")


@pytest.mark.parametrize(
    "end", ["Training finished with failures", "could not be saved", "Killed", "F0101 x.cc:1] odd"]
)
def test_a_line_is_not_overcome_where_the_program_failed_after_it(end):
    steps = "step 1 loss 0.9\nstep 2 loss 0.8\n"
    (match,) = explain(f"worker: {SAID}\n{steps}{end}").matches
    assert (match.symptom.name, match.sure) == (NAME, "certain")


def test_a_course_error_and_an_exception_explain_themselves():
    assert repr(explain(CourseError("What.", "Why.", "Fix."))) == "What.\n  Why: Why.\n  Fix: Fix."
    error = RuntimeError("another")
    error.__cause__ = ValueError(SAID)
    assert names(error) == [NAME]


@pytest.mark.long
@pytest.mark.parametrize(
    "unit",
    ["\n", "\x1b[", "(a, a, pid=1 ", "XError", "Unavailable: ", "PREEMPTED ", "Error: \n", "mesh "],
)
def test_a_long_log_takes_time_in_proportion_to_its_length(unit):
    """Twice the length, at most three times as long: a quadratic pattern takes four times."""

    def seconds(length):
        began = time.process_time()
        explain(unit * (length // len(unit)))
        return time.process_time() - began

    assert seconds(400_000) < min(3 * seconds(200_000) + 0.5, 5)


def test_the_command_reads_a_file_or_a_pipe_and_prints_the_page(tmp_path):
    path = tmp_path / "train.log"
    path.write_bytes(b"\xff\xfe" + SAID.encode("utf-16-le"))
    for words, given_in in (([str(path)], None), ([], SAID)):
        result = CliRunner().invoke(app, ["explain", *words], input=given_in)
        assert result.exit_code == 0
        assert result.stdout.splitlines()[0] == NAME
    assert CliRunner().invoke(app, ["explain"], input="nothing").exit_code == 1
    page = (ROOT / "notebooks/TROUBLESHOOTING.md").read_text("utf-8")
    output = CliRunner().invoke(app, ["explain", "--page"]).stdout
    assert page == output, "tpu-course explain --page > notebooks/TROUBLESHOOTING.md"


@pytest.mark.slow
def test_a_kernel_explains_before_any_cell_ran(tmp_path, monkeypatch):
    """What course/install.sh gives to the kernels of .venv."""
    installer = (ROOT / "course/install.sh").read_text("utf-8")
    profile = tmp_path / "profile_default"
    profile.mkdir()
    config = re.search(r"<<'END'\n(.*?)^END$", installer, re.DOTALL | re.MULTILINE)[1]
    (profile / "ipython_kernel_config.py").write_text(config)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", ":".join(filter(None, sys.path)))
    cells = [new_code_cell(source) for source in ("%explain", "tf.constant(1)", "%explain")]
    NotebookClient(new_notebook(cells=cells), allow_errors=True).execute()
    assert "No cell has failed" in cells[0].outputs[0]["text"]
    assert cells[2].outputs[0]["data"]["text/plain"].startswith("A cell above was not run")
