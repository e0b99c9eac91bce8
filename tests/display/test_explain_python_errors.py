"""Python's own errors, raised for real: each is told by its family, alive and pasted."""

import textwrap
import traceback

import pytest

from helpers.display.explain import explain

UNLIKE = "An operator between values of different kinds"
ORDER = "Values that have no order"
NO_CALL = "A call of something that is no function"
BRACKETS = "Brackets behind something without elements"
UNPACKING = "Another number of values than names"
COLLECTION = "One value where a collection is expected"
NO_NUMBER = "A text that is no number"
ENCODING = "Bytes or letters that this encoding doesn't have"
NO_END = "A function that calls itself without end"
ZERO = "A division by zero"
TOO_LARGE = "A number too large for its type"
EMPTY = "A collection with nothing in it"
LENGTHS = "Collections of different lengths"
SOURCE = "Python can't read this source"
NOT_SET = "An attribute that may not be set"
MORE = "An iterator that has no more elements"
DIED = "A worker process that died"
KIND = "A value of another kind"
CHOICE = "A name or value that isn't among those allowed"
ARGUMENT = "An argument that this function doesn't take"
NONE = "A None where something else is needed"
PART = "A part that this version of the package doesn't have"
REFUSED = "A file operation that the system refused"
NO_CONNECTION = "No connection"
NO_ANSWER = "No answer in time"
# What is run, its family, and what of its message is shown.
RAISED = [
    ("learning_rat", "A name that Python doesn't know here", "learning_rat"),
    (
        """
        def count():
            steps += 1
        count()
        """,
        "A variable that is used before it is set",
        "steps",
    ),
    ("None.shape", NONE, "shape"),
    ("None(3)", NONE, ""),
    ("None[0]", NONE, ""),
    ("first, second = None", NONE, ""),
    ("1 + None", NONE, ""),
    ("int(None)", NONE, ""),
    ("[].shape", "An attribute that this object doesn't have", "list · shape"),
    ("import math; math.sqroot", PART, "math · sqroot"),
    ("from math import sqroot", PART, "sqroot · math"),
    ("import json.kernelmaker", PART, "json.kernelmaker"),
    ("import kernelmaker", "A package that is not installed here", "kernelmaker"),
    (
        "import math.odd",
        "A file of yours that hides a package",
        "math.odd · math",
    ),
    ("import math; math.sqrt(-1)", "A number that isn't allowed here", ""),
    ("range(1, 2, 0)", "A number that isn't allowed here", ""),
    ("from . import rows", "A relative import in a file that is run by itself", ""),
    ("{'loss': 1}['accuracy']", "A key that isn't in the dictionary", "accuracy"),
    ("{}[1, 2]", "A key that isn't in the dictionary", "(1, 2)"),
    ("import os; os.environ['ODD']", "A key that isn't in the dictionary", "ODD"),
    ("[][0]", "An index out of range", ""),
    ("(lambda a, b: a)(1)", ARGUMENT, "<lambda>"),
    ("(lambda a: a)(1, 2)", ARGUMENT, "<lambda>"),
    ("(lambda a: a)(1, a=2)", ARGUMENT, "<lambda>"),
    ("dict(1, 2)", KIND, ""),
    ("(3)()", NO_CALL, "int"),
    ("import math; math()", NO_CALL, "module"),
    ("[1]['a']", BRACKETS, "list · str"),
    ("(3)[0]", BRACKETS, "int"),
    ("rows = (1, 2); rows[0] = 3", BRACKETS, "tuple"),
    ("'a' + 1", UNLIKE, "str · int"),
    ("1 + 'a'", UNLIKE, "+ · int · str"),
    ("[1] + 1", UNLIKE, "list · int"),
    ("b'a' + 'a'", UNLIKE, "str · bytes"),
    ("','.join([1])", UNLIKE, "str · int"),
    ("-'a'", UNLIKE, "- · str"),
    ("1 < 'a'", ORDER, "< · int · str"),
    ("sorted([('a', object()), ('a', object())])", ORDER, "< · object · object"),
    ("list(3)", COLLECTION, "int"),
    ("next([1])", COLLECTION, "list"),
    ("len(3)", COLLECTION, "int"),
    ("3 in 4", COLLECTION, "int"),
    ("first, second = 3", UNPACKING, "int"),
    ("first, second = [1, 2, 3]", UNPACKING, "too many · 2"),
    ("first, second = [1]", UNPACKING, "not enough · 2 · 1"),
    ("{[]: 1}", KIND, "list"),
    ("float([1])", KIND, ""),
    ("'%d' % 'a'", KIND, "str"),
    ("'%s %s' % ('a',)", KIND, ""),
    ("open([])", KIND, "list"),
    ("with 3: pass", KIND, ""),
    ("import json; json.dumps({1})", "An object that JSON can't hold", "set"),
    (
        """
        import abc
        class Reader(abc.ABC):
            @abc.abstractmethod
            def read(self): ...
        Reader()
        """,
        "A class with a method that is still to be written",
        "Reader · read",
    ),
    ("raise NotImplementedError", "A class with a method that is still to be written", ""),
    ("open('data/odd.csv')", "A file that is not there", "data/odd.csv"),
    ("open('/')", "A file that is not there", "/"),
    ("import os; os.mkdir('/')", "Something is there already", "/"),
    (
        "raise PermissionError(13, 'Permission denied', '/x')",
        "A file or device that may not be opened",
        "/x",
    ),
    ("b'\\xff'.decode()", ENCODING, "utf-8 · 0xff"),
    ("'\\xe9'.encode('ascii')", ENCODING, ""),
    ("'a'.encode('odd')", ENCODING, "odd"),
    ("def again(): again()\nagain()", NO_END, ""),
    ("import json; json.loads('')", "Data of another format, or cut off", ""),
    ("1 / 0", ZERO, ""),
    ("1.0 / 0.0", ZERO, ""),
    ("5 % 0", ZERO, ""),
    ("import math; math.exp(1000)", TOO_LARGE, ""),
    ("float(10**400)", TOO_LARGE, ""),
    ("import numpy as np; np.int32(2**40)", TOO_LARGE, "1099511627776 · int32"),
    ("import jax; jax.numpy.int32(2**40)", TOO_LARGE, "1099511627776 · int32"),
    ("assert 1 == 2", "A check in the program that didn't hold", ""),
    ("assert False, 'odd rows'", "A check in the program that didn't hold", "odd rows"),
    ("next(iter([]))", MORE, ""),
    ("def rows():\n  yield next(iter([]))\nlist(rows())", MORE, ""),
    ("raise TimeoutError", NO_ANSWER, ""),
    ("import queue; queue.Queue().get(timeout=0.01)", NO_ANSWER, ""),
    (
        "import subprocess; subprocess.run(['sleep', '9'], timeout=0.01)",
        NO_ANSWER,
        "",
    ),
    ("import socket; socket.create_connection(('127.0.0.1', 9))", NO_CONNECTION, ""),
    ("raise ConnectionResetError(104, 'odd')", NO_CONNECTION, ""),
    ("import socket; socket.getaddrinfo('odd.invalid', 80)", NO_CONNECTION, ""),
    ("raise BrokenPipeError(32, 'Broken pipe')", DIED, ""),
    ("import os; os.waitpid(-1, 0)", DIED, ""),
    ("[0] * 10**15", "Too little memory in the machine", ""),
    ("int('3 GB')", NO_NUMBER, "'3 GB'"),
    ("float('')", NO_NUMBER, "''"),
    ("[1].index(3)", CHOICE, ""),
    ("[1].remove(3)", CHOICE, ""),
    ("'a'.index('b')", CHOICE, ""),
    ("import enum; enum.Enum('Colour', 'RED')('blue')", CHOICE, "'blue'"),
    ("max([])", EMPTY, ""),
    ("[].pop()", EMPTY, "list"),
    ("import random; random.sample([], 3)", EMPTY, ""),
    ("import numpy as np; np.concatenate([])", EMPTY, "concatenate"),
    ("import numpy as np; np.max([])", EMPTY, "maximum"),
    ("list(zip([1], [1, 2], strict=True))", LENGTHS, "2"),
    (
        "import io; odd = io.StringIO(); odd.close(); odd.read()",
        "A file or connection that is closed already",
        "file",
    ),
    ("rows = (1", SOURCE, ""),
    ("print 1", SOURCE, ""),
    ("if 1:\npass", SOURCE, ""),
    ("raise EOFError('EOF when reading a line')", "A question that nobody can answer here", ""),
    ("raise KeyboardInterrupt", "The program was interrupted", ""),
    ("import sys; sys.exit(2)", "The program ended itself", "2"),
    (
        "import argparse; argparse.ArgumentParser().parse_args(['--odd'])",
        "The program ended itself",
        "2",
    ),
    (
        """
        counts = {1: 1}
        for key in counts:
            counts[key + 1] = 1
        """,
        "A collection that changes while a loop goes over it",
        "",
    ),
    (
        """
        import asyncio
        async def inner(): ...
        async def outer():
            call = inner()
            try:
                asyncio.run(call)
            finally:
                call.close()
        asyncio.run(outer())
        """,
        "An event loop inside another one",
        "",
    ),
    (
        """
        import dataclasses
        @dataclasses.dataclass(frozen=True)
        class Settings:
            rate: float = 0.1
        Settings().rate = 1
        """,
        NOT_SET,
        "rate",
    ),
    (
        """
        class Settings:
            @property
            def rate(self): ...
        Settings().rate = 1
        """,
        NOT_SET,
        "rate · Settings",
    ),
    (
        """
        import socket
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            second.bind(first.getsockname())
        """,
        "A port or address that is taken",
        "",
    ),
    ("raise OSError(24, 'Too many open files')", "Too many open files", ""),
    ("open('a' * 300)", REFUSED, ""),
    (
        "raise OSError(5, 'Input/output error', '/mnt/x')",
        REFUSED,
        "5 · Input/output error · /mnt/x",
    ),
    ("raise OSError(22, 'Invalid argument')", REFUSED, "22 · Invalid argument"),
    (
        "from concurrent.futures import process; raise process.BrokenProcessPool('odd')",
        DIED,
        "",
    ),
    (
        "import numpy as np; np.linalg.inv(np.zeros([2, 2]))",
        "A matrix that can't be solved or inverted",
        "",
    ),
    ("import subprocess; subprocess.run('false', check=True)", "The report of another error", ""),
]


def raised(code):
    try:
        exec(compile(textwrap.dedent(code), "odd.py", "exec"), {"__name__": "odd"})
    except BaseException as error:
        return error
    raise AssertionError(code)


@pytest.mark.parametrize(("code", "name", "shown"), RAISED, ids=[row[0] for row in RAISED])
def test_an_error_of_python_itself_is_told_by_its_family(code, name, shown):
    error = raised(code)
    text = "".join(traceback.format_exception(error))
    for form in (error, text):
        (match,) = explain(form).matches
        assert match.symptom.name == name
        assert match.sure == "by its class"
        if shown:
            assert match.facts["Here"] == shown


CAUSE = 'Traceback (most recent call last):\n  File "odd.py", line 3, in read\n'


def test_the_cause_speaks_for_an_error_that_nothing_is_known_of():
    error = raised(
        "try:\n  {}['rows']\nexcept KeyError as cause:\n  raise OSError('odd') from cause"
    )
    for form in (error, "".join(traceback.format_exception(error))):
        (match,) = explain(form).matches
        assert match.symptom.name == "A key that isn't in the dictionary"
        assert match.evidence == "KeyError: 'rows'"


def test_the_oldest_cause_comes_before_what_was_raised_from_it():
    error = raised(
        """
        try:
            try:
                1 / 0
            except ZeroDivisionError as first:
                raise KeyError("rows") from first
        except KeyError as second:
            raise OSError("odd") from second
        """
    )
    for form in (error, "".join(traceback.format_exception(error))):
        (match,) = explain(form).matches
        assert match.symptom.name == ZERO


def test_the_first_error_of_a_log_speaks_for_the_report_of_a_dead_worker():
    log = (
        f"{CAUSE}ZeroDivisionError: division by zero\nstep 7\n{CAUSE}KeyError: 'rows'\n"
        "step 8\nTraceback (most recent call last):\nRayTaskError: worker 3, see its log\n"
    )
    (match,) = explain(log).matches
    assert match.symptom.name == ZERO
    assert match.evidence == "ZeroDivisionError: division by zero"
    assert match.facts["Your line"] == "odd.py, line 3"


def test_an_earlier_error_of_its_own_does_not_speak_for_another_one():
    assert not explain(f"{CAUSE}KeyError: 'rows'\nstep 7\n{CAUSE}OddError: what?")


def test_what_a_message_advises_is_shown():
    text = f"{CAUSE}OddError: the rows are odd. Please set `even=True` in the reader, e.g. now."
    explanation = explain(text)
    (match,) = explanation.matches
    assert match.symptom.name == "What the message itself advises"
    assert match.facts["It advises"] == "Please set `even=True` in the reader, e.g. now"
    assert "\n  It advises: Please set `even=True`" in repr(explanation)


def test_advice_stands_beside_a_family_that_is_known():
    text = f"{CAUSE}KeyError: 'rows'. You should call read() first."
    (match,) = explain(text).matches
    assert match.facts["It advises"] == "You should call read() first"
