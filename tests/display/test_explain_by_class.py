"""Where no symptom is in an error, its class and structure say what its family does."""

import json
import pickle
import re
import time
import traceback

import numpy as np
import pytest

from helpers.display.explain import FAMILIES, explain

# A text for each family, written for this test; each has nothing that a symptom looks for.
TEXTS = {
    "A script that starts itself again in each process": (
        "RuntimeError:\nAn attempt was made to start a new process before the bootstrapping ended"
    ),
    "A package that asks for what another one's objects don't have": (
        '  File "/env/lib/python3.11/site-packages/oddlib/core.py", line 3, in fit\n'
        "AttributeError: 'OddArray' object has no attribute 'odd'"
    ),
    "A file of yours that hides a package": (
        "ModuleNotFoundError: No module named 'odd.core'; 'odd' is not a package"
    ),
    "A number that isn't allowed here": "ValueError: odd_rows must be greater than 0",
    "Something that was not set": "ValueError: odd.template is not set, and none was handed over",
    "An operator between values of different kinds": "TypeError: can't concat str to bytes",
    "Values that have no order": (
        "TypeError: '<' not supported between instances of 'Odd' and 'Odd'"
    ),
    "A call of something that is no function": "TypeError: 'Odd' object is not callable",
    "Brackets behind something without elements": "TypeError: 'Odd' object is not subscriptable",
    "Another number of values than names": "ValueError: too many values to unpack (expected 2)",
    "One value where a collection is expected": "TypeError: 'Odd' object is not iterable",
    "A text that is no number": "ValueError: could not convert string to float: 'odd'",
    "An object that JSON can't hold": "TypeError: Object of type Odd is not JSON serializable",
    "A class with a method that is still to be written": (
        "TypeError: Can't instantiate abstract class Odd with abstract method go"
    ),
    "A relative import in a file that is run by itself": (
        "ImportError: attempted relative import with no known parent package"
    ),
    "Something is there already": "FileExistsError: [Errno 17] File exists: '/odd'",
    "Bytes or letters that this encoding doesn't have": (
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80 in position 0: invalid"
    ),
    "A function that calls itself without end": (
        "RecursionError: maximum recursion depth exceeded"
    ),
    "A division by zero": "ZeroDivisionError: division by zero",
    "A number too large for its type": "OverflowError: int too large to convert to float",
    "The program was interrupted": "KeyboardInterrupt",
    "The program ended itself": "SystemExit: 2",
    "Python can't read this source": "SyntaxError: invalid syntax",
    "A question that nobody can answer here": "EOFError: EOF when reading a line",
    "A collection that changes while a loop goes over it": (
        "RuntimeError: dictionary changed size during iteration"
    ),
    "An event loop inside another one": (
        "RuntimeError: asyncio.run() cannot be called from a running event loop"
    ),
    "An attribute that may not be set": "AttributeError: can't set attribute 'odd'",
    "A collection with nothing in it": "ValueError: max() arg is an empty sequence",
    "Collections of different lengths": "ValueError: zip() argument 2 is longer than argument 1",
    "A file or connection that is closed already": "ValueError: I/O operation on closed file.",
    "A port or address that is taken": "OSError: [Errno 98] Address already in use",
    "Too many open files": "OSError: [Errno 24] Too many open files",
    "An iterator that has no more elements": "StopIteration",
    "A worker process that died": (
        "RuntimeError: One of the processes has died abruptly while it mapped the rows"
    ),
    "A matrix that can't be solved or inverted": "LinAlgError: Singular matrix",
    "A variable that is used before it is set": (
        "UnboundLocalError: local variable 'odd' referenced before assignment"
    ),
    "No answer in time": "TimeoutError: the queue was silent",
    "A file operation that the system refused": "OSError: [Errno 5] Input/output error: '/odd'",
    "A check in the program that didn't hold": "AssertionError: odd",
    "What the message itself advises": "OddError: no. Please set `even` first, then go on.",
    "The report of another error": "RayActorError: the actor died, see its own log",
    "A package that pip can't install": "ERROR: No matching distribution found for kernelmaker",
    "A TPU that could not be started": "RuntimeError: TPU platform is not available",
    "A compiled library that can't be loaded": (
        "OSError: libodd.so.3: cannot open shared object file: No such file or directory"
    ),
    "Versions that a package refuses": "ImportError: kernelmaker requires odd version 3 or newer",
    "A module that is imported while it is still loading": (
        "AttributeError: partially initialized module 'grain' has no attribute 'python'"
    ),
    "A part that this version of the package doesn't have": (
        "ImportError: cannot import name 'odd' from 'kernelmaker' (/x/__init__.py)"
    ),
    "A package that is not installed here": "ModuleNotFoundError: No module named 'kernelmaker'",
    "An argument that this function doesn't take": (
        "TypeError: Trainer.__init__() got an unexpected keyword argument 'odd'"
    ),
    "An attribute that this object doesn't have": (
        "AttributeError: 'Settings' object has no attribute 'odd'"
    ),
    "A None where something else is needed": "TypeError: 'NoneType' object is not subscriptable",
    "Too little memory in the machine": "WorkerError: it ended with exit code -9",
    "Too little memory on the accelerator": "OutOfMemoryError: the card ran out of memory",
    "A disk that is full, or can't be written": "OSError: [Errno 30] Read-only file system: '/x'",
    "A name that the server doesn't have": "HTTPError: 404 Client Error: Not Found for url: x",
    "A right that the caller doesn't have": "HTTPError: 401 Client Error: Unauthorized for url: x",
    "A limit on requests or machines": "QuotaError: Quota 'ODD' exceeded",
    "A file or device that may not be opened": (
        "PermissionError: [Errno 13] Permission denied: '/srv/odd.bin'"
    ),
    "A file that is not there": "FileNotFoundError: [Errno 2] No such file or directory: 'odd.txt'",
    "Processes that don't find each other": "RuntimeError: Barrier 'odd' was left by a process",
    "No connection": "ConnectionResetError: [Errno 104] the peer is gone",
    "A Pallas kernel that is refused": "ValueError: The Pallas TPU lowering wants other blocks",
    "A value that isn't known while JAX traces": (
        "TypeError: float() of a tracer: JitTracer<float32[]>"
    ),
    "A symbolic tensor where a value is needed": "ValueError: got a KerasTensor, name=odd",
    "A value that can't become an array": (
        "ValueError: setting an array element with a sequence. It has another length."
    ),
    "What this version or device doesn't do": "NotImplementedError: odd on this backend",
    "An array's layout over devices that doesn't fit": (
        "ValueError: PartitionSpec('odd') is for another array"
    ),
    "Something stored that doesn't fit what it is loaded into": (
        "RuntimeError: Error(s) in loading state_dict for Odd: size mismatch for odd.weight"
    ),
    "Trees that differ in structure": "ValueError: the pytree and its axes do not match",
    "Shapes that don't fit each other": "ValueError: shapes (7, 3) and (7, 5) are odd",
    "Number types that don't fit each other": "TypeError: dtype float16 was wanted, not int8",
    "A step that comes too early, too late or twice": (
        "RuntimeError: prepare() must be called before the first step"
    ),
    "A size that isn't a multiple of another": "ValueError: 7 heads are not divisible by 2",
    "NVIDIA's libraries, which fail": "RuntimeError: CUDA error: device-side assert triggered",
    "Data of another format, or cut off": "UnidentifiedImageError: what kind is 'odd.png'?",
    "An object that can't be sent to another process": (
        "TypeError: cannot pickle '_thread.lock' object"
    ),
    "A name or value that isn't among those allowed": (
        "ValueError: colour must be one of red and blue"
    ),
    "A key that isn't in the dictionary": "KeyError: 'odd_column'",
    "An index out of range": "IndexError: list index out of range",
    "A value of another kind": "TypeError: unhashable type: 'odd'",
    "A name that Python doesn't know here": "NameError: name 'odd' is not defined",
    "A crash in compiled code": "Fatal Python error: Segmentation fault",
    "The compiler or runtime failed by itself": "OddRuntimeError: INTERNAL: RET_CHECK (x:7)",
}


def test_each_family_has_a_text():
    assert {family.name for family in FAMILIES} == set(TEXTS)


@pytest.mark.parametrize("name", TEXTS)
def test_a_family_is_told_by_its_words_and_says_that_it_goes_by_the_class(name):
    explanation = explain(f"step 1\nTraceback (most recent call last):\n{TEXTS[name]}\n")
    (match,) = explanation.matches
    assert match.symptom.name == name
    assert match.sure == "by its class"
    assert repr(explanation).startswith(f"{name} (by its class)\n  Seen: ")


# --- What the installed versions raise ---


def missing_module(_):
    import kernelmaker  # noqa: F401


def missing_name(_):
    from numpy import kernelmaker  # noqa: F401


def unknown_argument(_):
    np.zeros(3, kernelmaker=True)


def missing_attribute(_):
    np.ones(3).kernelmaker  # noqa: B018


def subscript_of_none(_):
    re.match("a", "b")[0]


def missing_file(folder):
    (folder / "none.txt").read_bytes()


def missing_key(_):
    return {"loss": 1.0}["accuracy"]


def missing_element(_):
    return np.ones(3)[7]


def local_function_for_a_process(_):
    pickle.dumps(lambda: 0)


def page_for_json(_):
    json.loads("<html>")


RAISED = {
    missing_module: "A package that is not installed here",
    missing_name: "A part that this version of the package doesn't have",
    unknown_argument: "An argument that this function doesn't take",
    missing_attribute: "An attribute that this object doesn't have",
    subscript_of_none: "A None where something else is needed",
    missing_file: "A file that is not there",
    missing_key: "A key that isn't in the dictionary",
    missing_element: "An index out of range",
    local_function_for_a_process: "An object that can't be sent to another process",
    page_for_json: "Data of another format, or cut off",
}


@pytest.mark.parametrize("fail", RAISED, ids=lambda fail: fail.__name__)
def test_what_is_raised_here_is_told_by_its_class_alive_and_pasted(fail, tmp_path):
    with pytest.raises(Exception) as caught:
        fail(tmp_path)
    text = "".join(traceback.format_exception(caught.value))
    for error in (caught.value, text):
        (match,) = explain(error).matches
        assert match.symptom.name == RAISED[fail]
        assert match.sure == "by its class"
        assert match.facts["Your line"].startswith("test_explain_by_class.py, line ")


# --- The parts of an error ---

PYTHON = """
Traceback (most recent call last):
  File "/home/me/train.py", line 9, in <module>
    fit(rows)
    ~~~^^^^^^
  File "/env/lib/python3.11/site-packages/kernelmaker/core/fit.py", line 77, in fit
    raise OddError("no rows of 17")
kernelmaker.errors.OddError: no rows of 17 in /data/a.bin
step 3
"""
IPYTHON = """
OddError                                  Traceback (most recent call last)
Cell In[4], line 2
      1 rows = read()
----> 2 fit(rows)

File ~/env/lib/python3.12/site-packages/kernelmaker/core/fit.py:77, in fit(rows)
     76 def fit(rows):
---> 77     raise OddError("no rows")

OddError: no rows of 17 in /data/a.bin
"""
COLAB = """
OddError                                  Traceback (most recent call last)
<ipython-input-4-0123456789ab> in <cell line: 0>()
      1 rows = read()
----> 2 fit(rows)

[/usr/lib/python3.10/dist-packages/kernelmaker/core/fit.py](https://localhost:8080/#) in fit(x)
     76 def fit(rows):
---> 77     raise OddError("no rows")

OddError: no rows of 17 in /data/a.bin
"""
WINDOWS = r"""
Traceback (most recent call last):
  File "C:\Users\me\train.py", line 9, in <module>
    fit(rows)
  File "C:\env\Lib\site-packages\kernelmaker\core\fit.py", line 77, in fit
OddError: no rows of 17 in C:\data\a.bin
"""


@pytest.mark.parametrize(
    ("text", "own_line"),
    [
        (PYTHON, "train.py, line 9: fit(rows)"),
        (IPYTHON, "a cell of the notebook, line 2: fit(rows)"),
        (COLAB, "a cell of the notebook, line 2: fit(rows)"),
        (WINDOWS, "train.py, line 9: fit(rows)"),
    ],
)
def test_who_raised_and_your_own_line_are_read_in_each_form(text, own_line):
    explanation = explain(text)
    assert not explanation
    facts = explanation.facts
    assert facts["Raised in"] == "kernelmaker/core/fit.py, line 77"
    assert facts["Your line"] == own_line
    assert facts["Search"].startswith("kernelmaker OddError no rows of in")
    assert f"\n  Your line: {own_line}\n" in repr(explanation)


def test_a_number_that_is_too_large_is_no_index():
    index = explain("IndexError: list index out of range")
    assert [match.symptom.name for match in index.matches] == ["An index out of range"]
    overflow = explain("OverflowError: (34, 'Numerical result out of range')")
    assert "An index out of range" not in [match.symptom.name for match in overflow.matches]


def test_a_connection_refused_among_processes_of_jax_is_no_tpu_that_went_away():
    text = (
        "[rank0] :UNAVAILABLE:failed to connect to all addresses; last error: UNKNOWN:\n"
        "ipv4:10.0.0.7:13305: Failed to connect to remote host: Connection refused\n"
        "[rank3] WatchTasksAsync failed for task 3: UNAVAILABLE: no address\n"
    )
    (match,) = explain(text).matches
    assert match.symptom.name == "A process of the job died or started again"


def test_a_sharding_rule_that_is_missing_is_no_disagreement():
    text = "ShardingTypeError: sharding rule for odd-add is not implemented. You can use auto_axes."
    (match,) = explain(text).matches
    assert match.symptom.name == "What this version or device doesn't do"
    assert match.facts["It advises"] == "You can use auto_axes"


def test_a_faulty_message_of_a_library_is_no_choice_of_yours():
    assert not explain("ValueError: Invalid format specifier '!r'")


def test_an_error_of_an_earlier_step_or_of_a_log_does_not_speak():
    earlier = "Traceback (most recent call last):\nKeyError: 'a'\n" * 2
    explanation = explain(f"{earlier}Traceback (most recent call last):\nOddError: what?")
    assert explanation.unknown == "OddError: what?"
    assert not explanation
    log = ["E0101 00:00:00.0 7 x.cc:1] UNAVAILABLE: the other end is gone, trying again"] * 20
    assert not explain("\n".join(log))
    assert not explain("WARNING: ConnectionError: no answer, trying again\nstep 1")


@pytest.mark.parametrize(
    "log",
    [
        """
Epoch 3/3
8/8 ━━━━━━━━━━━━━━━━━━━━ 0s 62ms/step - loss: 0.2777
Exception ignored in: <function Pool.__del__ at 0x7f>
Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/kernelmaker/pool.py", line 3, in __del__
AttributeError: 'Pool' object has no attribute 'close'
""",
        """
I0811 21:54:55.5 7 metric_logger.py:226] completed step: 1, seconds: 0.631, loss: 12.979
W0811 21:54:56.5 7 client.py:3] UNAVAILABLE: no answer from the metrics' server, trying again
E0811 21:54:57.5 7 client.py:3] DEADLINE_EXCEEDED: no answer from the metrics' server
I0811 21:55:06.1 7 metric_logger.py:226] completed step: 2, seconds: 0.628, loss: 12.980
""",
        """
INFO 11-07 06:32:56 [tpu_runner.py:287] Init mesh | mesh=Mesh('data': 1, 'model': 4)
INFO 11-07 06:32:57 [tpu.py:63] Cannot use the backend None on TPU.
WARNING 11-07 06:32:57 [tpu.py:66] kernels are not supported for head size 80; using XLA's.
INFO 11-07 06:33:07 [loader.py:93] Loading the checkpoint took 9 s
""",
        """
06/12/2025 10:05:38 - INFO - trainer -   ***** Running training *****
06/12/2025 10:05:39 - WARNING - trainer -   float16 is not supported here, using float32 instead
06/12/2025 10:05:40 - WARNING - hub -   ConnectionError: no answer, trying the cache
{'loss': 0.43, 'epoch': 1.0}
""",
        """
E external/local_xla/xla/stream_executor/cuda/cuda_dnn.cc:9] Unable to register cuDNN factory
W external/local_xla/xla/tsl/framework/bfc_allocator.cc:2] Allocation of 512 exceeds 10% of memory
Epoch 1/3
""",
    ],
)
def test_a_log_of_a_program_that_went_on_has_no_family(log):
    assert "by its class" not in repr(explain(log))


SAVING_FAILED = """step 10 loss 1.7
WARNING:root:could not save step 20, trying again
Traceback (most recent call last):
  File "train.py", line 6, in save
    open(path, "wb")
OSError: [Errno 5] Input/output error

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 8, in save
    open(other, "wb")
FileNotFoundError: [Errno 2] No such file or directory: 'runs/20.npz'
"""
LOGGED_AS_ERROR = SAVING_FAILED.replace("WARNING:", "ERROR:")


@pytest.mark.parametrize(
    "log",
    [
        SAVING_FAILED + "INFO:root:step 20 saved",
        SAVING_FAILED + "step 20 loss 1.3\nstep 25 loss 1.1",
        LOGGED_AS_ERROR + "INFO:root:step 20 saved\nTraining finished.\nprocess ended, exit code 0",
        "Unable to register cuFFT factory\n" + SAVING_FAILED + "Training completed",
    ],
)
def test_an_error_that_was_logged_and_overcome_is_no_diagnosis(log):
    assert all(match.sure == "note" for match in explain(log).matches)
    assert log.splitlines()[-1] not in explain(log).unknown


@pytest.mark.parametrize(
    "log",
    [
        SAVING_FAILED,
        SAVING_FAILED + "step 20 loss 1.3",
        SAVING_FAILED + "step 20 saved\nsrun: error: node3: task 0: Exited with exit code 1",
        SAVING_FAILED + "wandb: Waiting for W&B process to finish... (failed 1).\nwandb: done",
        SAVING_FAILED + "Training was not completed; exited with status 1. done",
        LOGGED_AS_ERROR + "step 20 loss 1.3\nstep 25 loss 1.1",  # another host may go on
        SAVING_FAILED.partition("\n")[2].partition("\n")[2] + "wandb: Synced files, finished",
    ],
)
def test_an_error_that_ended_the_program_keeps_its_answer_whatever_stands_after_it(log):
    (match,) = explain(log).matches
    assert match.symptom.name == "A file that is not there"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("google.api_core.exceptions.Aborted: quota exceeded", "A limit on requests or machines"),
        ("error: metadata-generation-failed", "A package that pip can't install"),
        (
            "F0101 00:00:00.0 7 x.cc:1] Check failed: a == b",
            "The compiler or runtime failed by itself",
        ),
        ("loading ends in a PicklingError: odd", "An object that can't be sent to another process"),
        ("x.sh: line 3: 17 Bus error (core dumped) python x.py", "A crash in compiled code"),
    ],
)
def test_an_error_that_has_no_class_of_the_usual_name_is_read(text, name):
    earlier = "Traceback (most recent call last):\nKeyError: 'a'\n"
    (match,) = explain(text).matches
    assert match.symptom.name == name
    assert match.evidence == text
    if "google" in text:
        (match,) = explain(f"{earlier}During handling of it:\n{text}").matches
        assert match.evidence == text


def test_a_tensor_that_is_only_printed_is_not_what_is_wrong():
    text = """ValueError: `inputs` argument cannot be empty. Received:
inputs=[]
outputs=<KerasTensor shape=(None, 50, 46), dtype=float32, sparse=False, name=keras_tensor_12>"""
    (match,) = explain(text).matches
    assert match.symptom.name == "A collection with nothing in it"


def test_below_a_heading_of_tensorflow_the_line_that_tells_is_searched():
    text = """tensorflow.python.framework.errors_impl.InvalidArgumentError: Graph execution error:

Detected at node 'x' defined at (most recent call last):
  File "train.py", line 3, in <module>
(0) INVALID_ARGUMENT: shapes [7,3] and [7,5] are odd
"""
    (match,) = explain(text).matches
    assert match.symptom.name == "Shapes that don't fit each other"
    assert match.facts["Here"] == "[7,3] · [7,5]"


@pytest.mark.long
@pytest.mark.parametrize(
    "unit",
    ["shape (1, 2) ", "float32 ", "[1, ", "a/", "tpu ", "mesh axis ", "{{", "File ", "x.py", "-"],
)
def test_a_long_message_is_searched_in_little_time(unit):
    began = time.process_time()
    explain("ValueError: " + unit * (200_000 // len(unit)))
    explain("\n".join(["ValueError: " + unit * 100] * 500))
    assert time.process_time() - began < 5


def test_what_is_named_here_is_of_the_message_only():
    text = PYTHON.replace("no rows of 17 in /data/a.bin\nstep 3", "not divisible by 2")
    (match,) = explain(text).matches
    assert match.symptom.name == "A size that isn't a multiple of another"
    assert match.facts["Here"] == ""
