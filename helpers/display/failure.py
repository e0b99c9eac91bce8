"""The last error of a text, taken apart: its class, its message, who raised it, the reader's line.

It takes what Python, IPython (old and new), Colab and pytest print, and the last words of programs
in C++, of gcloud and of pip. site.js does the same with the same expressions, so these use neither
named groups nor what JavaScript reads in another way, and are for ASCII.
"""

import dataclasses
import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_MESSAGE = 1000  # characters of a message that are searched
MOST_LINES = 8  # of a message
MOST_WORDS = 12  # to search the Web for
LONGEST_OWN_LINE = 160
LONGEST_ADVICE = 240
MOST_CAUSES = 20  # earlier errors that are looked at

# The last line of a Python traceback, its first line, and lines in which other programs report an
# error: with a status as TensorFlow and JAX name it, or as command lines and C++ do. What a CI says
# of a step that failed is no error of the program.
RAISED = re.compile(
    r"(?!Error: Process completed with)(?:\w{1,60}\.){0,9}"
    r"(?:\w{0,60}(?:Error|Exception|Interrupt|Exit)|Stop(?:Async)?Iteration|(?:Base)?ExceptionGroup"
    r"|gaierror|TimeoutExpired|_?queue\.(?:Empty|Full))\b(?=:|\(|$)"
)
TRACEBACK = re.compile(r"(?:\w{1,60} )?Traceback \(most recent call last\)")
REPORTED = re.compile(
    r"(?:^|[\W_])(?:ERROR|FATAL|CANCELLED|UNKNOWN|INVALID_ARGUMENT|DEADLINE_EXCEEDED|NOT_FOUND"
    r"|ALREADY_EXISTS|PERMISSION_DENIED|UNAUTHENTICATED|RESOURCE_EXHAUSTED|FAILED_PRECONDITION"
    r"|ABORTED|OUT_OF_RANGE|UNIMPLEMENTED|INTERNAL|UNAVAILABLE|DATA_LOSS): "
    r"|what\(\): |^FAILED .* - \w{1,60}: "
)
UNTELLING = "Graph execution error:"  # TensorFlow's heading; the error stands below it

# Classes of other names, such as google.api_core.exceptions.NotFound: where the last line has one.
OTHER_CLASS = re.compile(r"(?:[a-z_]\w{0,60}\.){1,9}[A-Z]\w{1,60}(?=: )", re.ASCII)
# What a program says that ends without a Python exception. A log's lines of level E are none of
# these: most programs go on after them.
ENDED = re.compile(
    r"(what\(\)): (.*)|(Fatal Python error): (.*)|(F)(?:\d{4}|) ?[\d:. ]*\S{1,200}:\d{1,6}\] (.*)"
    r"|(ERROR|error): (.*)|(Check failed): (.*)|(?:\S{1,60}: line \d{1,6}: {1,9}\d{1,9} )?"
    r"(Segmentation fault|Illegal instruction|Bus error|[Kk]illed)\b(.{0,40})$",
    re.ASCII,
)
# An error in the middle of a line, as people quote it in a title, and a status without a class.
# Only in an excerpt: a log quotes errors that its program overcame.
EXCERPT = 10  # lines
QUOTED_ERROR = re.compile(
    r"(?:^|[\s#*`:(])(?:\w{1,60}\.){0,9}(\w{1,60}(?:Error|Exception)): (.*)|\b(Check failed): (.*)"
    r"|\b(CANCELLED|UNKNOWN"
    r"|INVALID_ARGUMENT|DEADLINE_EXCEEDED|NOT_FOUND|ALREADY_EXISTS|PERMISSION_DENIED"
    r"|UNAUTHENTICATED|RESOURCE_EXHAUSTED|FAILED_PRECONDITION|ABORTED|OUT_OF_RANGE|UNIMPLEMENTED"
    r"|INTERNAL|UNAVAILABLE|DATA_LOSS): (.*)",
    re.ASCII,
)
HARMLESS = re.compile(r"[IWE]\d{4} |[IWE] {1,9}\S|.{0,60}\b(?:INFO|WARN|WARNING|DEBUG)\b", re.ASCII)
# A line of a log below the error is not part of its message.
LOGGED = re.compile(
    r"[IWEF]\d{4} |[IWEF] {1,9}\S{1,200}:\d{1,6}\] |(?:INFO|WARNING|DEBUG|ERROR)\b|\*\*\* "
    r"|During handling of|The above exception|[+|]?-{10}|For simplicity, JAX|Arguments received by",
    re.ASCII,
)

# One step of a traceback, by groups: file and line as Python prints them; as IPython does; a cell
# and its line; a file, or a cell, as IPython and Colab did until 2022; as pytest does.
FRAME = re.compile(
    r'File "([^"]{1,400})", line (\d{1,7})|File (\S{1,400}?):(\d{1,7})(?:, in |$)'
    r"|((?:Cell|Input) In ?\[\d{1,6}\])(?:, line (\d{1,7}))?"
    r"|\[?([^\s\]]{1,400}\.py|<ipython-input-[^>]{1,60}>)\]?(?:\(\S{0,100}\))? in (?=[\w<])"
    r"|([^\s:]{1,400}\.py):(\d{1,7}): (?:in |\w{1,60}$)",
    re.ASCII,
)
ARROW = re.compile(r"-{2,9}> ?(\d{1,7}) (.*)", re.ASCII)  # IPython's mark at the line that failed
# What Python writes between an error and the one that it led to: raised from it, or while it was
# handled.
CAUSED = re.compile(r"The above exception was the direct cause")
HANDLED = re.compile(r"During handling of the above exception")
MESSAGE_MARK = re.compile(r"^(?::|\() ?")  # what stands between a class and its message
MARKS = re.compile(r"[~^ ]{1,400}$")  # Python's marks below a source line

PACKAGE = re.compile(r"(?:(?:site|dist)-packages|third_party/py)/(([A-Za-z_]\w{0,60}).*)", re.ASCII)
# Python's own library, and code that was made while the program ran.
STANDARD = re.compile(
    r"/lib(?:64)?/python\d|\.pyx$|/python\d{2,3}/lib/|^<(?!ipython-input)|/__autograph_generated",
    re.ASCII | re.IGNORECASE,
)
CELL = re.compile(r"/ipykernel_\d|^<ipython-input|^(?:Cell|Input) In", re.ASCII)
CELL_NAME = "a cell of the notebook"

# A program that logs an error and goes on: what it writes above the traceback, what it reports
# after it, what its last lines say, and what no line after the error may say.
MILD = re.compile(
    r"(?!.{0,60}\b(?:ERROR|FATAL|CRITICAL)\b)"
    r"(?:[IW]\d{4} |[IW] {1,9}\S|[^'\"]{0,80}\b(?:INFO|WARN|WARNING|DEBUG)\b"
    r"|.{0,200}\b[A-Z]\w{0,40}Warning: )",
    re.ASCII,
)
LEVEL = re.compile(r"[IWE]\d{4} |[IWE] {1,9}\S", re.ASCII)  # as programs in C++ and absl log it
LOGGED_ERROR = re.compile(r"E\d{4} |.{0,80}\bERROR\b", re.ASCII)
STEP = re.compile(
    r"\b(?:step|epoch|iteration)\b\W{0,3}\d|\b\d{1,9}/\d{1,9}\b.{0,80}\d[mu]?s/step",
    re.ASCII | re.IGNORECASE,
)
WENT_ON = re.compile(
    r"\b(?:skipped|skipping|ignoring|falling back|fell back|starting from scratch|continuing"
    r"|dropped|dropping|pruned|using .{1,60} instead)\b",
    re.ASCII | re.IGNORECASE,
)
ENDED_WELL = re.compile(
    r"\b(?:finished|completed?|done|succeeded|saved|written)\b", re.ASCII | re.IGNORECASE
)
ENDED_BADLY = re.compile(
    r"fail|error|exception|abort|kill|terminat|fatal|signal|core dumped|traceback|cannot|could not"
    r"|unable|exit(?!\w{0,3} (?:code|status)\W{0,3}0\b)|\bnot\b.{0,20}\b(?:saved|written|finished)",
    re.ASCII | re.IGNORECASE,
)
# What is counted beside a good end: "finished: 6 trials, 1 failed". JAX's words below its errors.
COUNTED = re.compile(r"\b\d{1,6} (?:failed|failures?|errors?|aborted)\b", re.ASCII | re.IGNORECASE)
FILTERED = re.compile(r"For simplicity, JAX has removed")
LAST_LINES = 3
FEWEST_STEPS = 2  # after an error that was a warning only: the run goes on

# Python's heading of what it only reports, while an object is thrown away.
IGNORED = re.compile(r"Exception ignored ")

# What differs from one program to the next in a message: paths, addresses, numbers, shapes.
PRIVATE = re.compile(
    r"\{\{.{0,200}?\}\}|\S{0,400}[/\\]\S{0,400}|0x[0-9a-f]{1,16}|[(\[][\d, ]{1,200}[)\]]"
    r"|[\"'`]|\b\d[\d.,]{0,40}\b",
    re.ASCII,
)

# The sentence of a message that says what to do.
ADVICE = re.compile(
    r"(?:^|[.!?;:(] )((?:(?:so |or |and )?(?:please|try|consider|make sure|ensure|instead|did you"
    r"|do you|have you|you (?:can|could|should|must|need|may|might|have to|probably|want)|if you"
    r"|to (?:fix|avoid|debug|resolve|disable|enable|use|do|overcome|silence|get|allow|suppress)"
    r"|use|set|pass|install|upgrade|run|add|call|specify|check (?:that|if|the|your)|increase"
    r"|decrease|reduce|try to)\b"
    r"|[A-Z][^.!?]{0,120}\b(?:should|must|needs? to|has to|have to)\b)"
    r"(?:e\.g\.|i\.e\.|(?!e\.g|i\.e)[^\n]){10,300}?)"
    r"(?=[.!?] |[.!?)]*$)",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True)
class Frame:
    """One step of a traceback."""

    path: str  # with slashes
    number: str  # of the line; may be empty
    source: str = ""  # the line itself

    @property
    def in_package(self) -> re.Match[str] | None:
        """The path from an installed package on, and the package's name; None for other code."""
        return PACKAGE.search(self.path)

    @property
    def place(self) -> str:
        """The file, shortened, and the number of the line."""
        match = self.in_package
        if match is not None:
            name = match[1]
        elif CELL.search(self.path):
            name = CELL_NAME
        else:
            name = self.path.rpartition("/")[2]
        if not self.number:
            return name
        return f"{name}, line {self.number}"


@dataclass(frozen=True)
class Failure:
    """The last error of a text."""

    kind: str  # the class without its module, or the word that a program in C++ began with
    message: str  # in one line, cut
    package: str = ""  # the one whose code raised it; empty where that isn't known, or your own
    raised_at: str = ""  # file and line in that package
    own_line: str = ""  # the last line outside of packages: file, line, source
    line: str = ""  # the whole line, of an error that RAISED doesn't know

    @property
    def whole(self) -> str:
        """What the families' expressions are searched in."""
        return f"{self.kind}: {self.message}\n@ {self.raised_at}\n> {self.advice}"

    @property
    def advice(self) -> str:
        """What the message itself says is to be done; may be empty."""
        match = ADVICE.search(self.message)
        if match is None:
            return ""
        return match[1][:LONGEST_ADVICE]

    @property
    def search_words(self) -> str:
        """Words to search issues for, without what only this program has."""
        words = PRIVATE.sub(" ", f"{self.package} {self.kind} {self.message}").split()
        return " ".join(words[:MOST_WORDS])


def error_span(lines: Sequence[str]) -> tuple[int | None, int | None]:
    """Give the lines in which errors begin and end, by number; None and None without any."""
    begin = None
    end = None
    for number, line in enumerate(lines):
        raised = RAISED.match(line)
        if begin is None and (raised or TRACEBACK.match(line)):
            begin = number
        if raised:
            end = number
    if end is None:  # the text ends before the error's line
        return None, None
    return begin, end


def last_failure(lines: Sequence[str]) -> Failure | None:
    """Take the last error of a text apart; None where no program ended with one."""
    end = error_span(lines)[1]
    for number in reversed(range(end or 0, len(lines))):
        if OTHER_CLASS.match(lines[number]) and not RAISED.match(lines[number]):
            end = number
            break
    if end is None:
        return _last_words(lines)
    begin = _traceback_begin(lines, end)
    if begin > 0 and IGNORED.match(lines[begin - 1]):
        return None
    return _failure_at(lines, begin, end)


def _failure_at(lines: Sequence[str], begin: int, end: int) -> Failure:
    """Take an error apart by the lines with which its traceback begins and ends."""
    raised = RAISED.match(lines[end])
    line = ""
    if raised is None:
        raised = OTHER_CLASS.match(lines[end])
        line = lines[end]
    name = raised[0]
    first_line = MESSAGE_MARK.sub("", lines[end][len(name) :])
    message = _message(first_line, lines[end + 1 :])
    return _failure(name.rpartition(".")[2], message, _frames(lines, begin, end), line)


def was_overcome(lines: Sequence[str]) -> bool:
    """Tell whether a program logged the last error of a text, went on, and didn't fail after it."""
    end = error_span(lines)[1]
    if end is None:
        return False
    last_lines = len(lines) - LAST_LINES
    logged = 0
    steps = 0
    ended_well = False
    for number in range(end + 1, len(lines)):
        line = lines[number]
        if _speaks_of_failing(line, number >= last_lines):
            return False
        if STEP.search(line):
            steps += 1
        if MILD.match(line):
            logged += 1
        if number >= last_lines and ENDED_WELL.search(line):
            ended_well = True
    if ended_well and steps >= FEWEST_STEPS:
        return True
    begin = _traceback_begin(lines, end)
    while begin > 1 and (CAUSED.match(lines[begin - 1]) or HANDLED.match(lines[begin - 1])):
        begin = _traceback_begin(lines, begin - 2)
    if begin == 0 or not TRACEBACK.match(lines[begin]):
        return False
    heading = lines[begin - 1]
    warned = MILD.match(heading) is not None
    if not warned and not LOGGED_ERROR.match(heading):
        return False
    if warned and steps >= FEWEST_STEPS:
        return True
    # A loader that takes another file instead logs no steps.
    if warned and logged >= FEWEST_STEPS and WENT_ON.search(heading):
        return True
    return ended_well


def _speaks_of_failing(line: str, is_last: bool) -> bool:
    """Tell whether a line says that the program failed; of a log's lines only the last ones do."""
    # TensorFlow logs at these levels that a data set ended, or that there is no GPU.
    if FILTERED.match(line) or LEVEL.match(line):
        return False
    if not is_last and MILD.match(line):
        return False
    if ENDED_WELL.search(line):
        line = COUNTED.sub("", line)
    return ENDED_BADLY.search(line) is not None


def overcome_lines(lines: Sequence[str]) -> set[int]:
    """List the lines, by number, in which a program says what it then overcame.

    They are lines that it logged as information or as a warning, lines that say what it does
    instead, and any line that steps and a good end come after. No error may come after them. In
    an excerpt without steps and without an end people quote what is wrong: there is none.
    """
    last_lines = len(lines) - LAST_LINES
    ended_well = any(ENDED_WELL.search(line) for line in lines[-LAST_LINES:])
    is_log = len(lines) > EXCERPT or any(
        STEP.search(line) or ENDED_WELL.search(line) for line in lines
    )
    numbers = set()
    if not is_log:
        return numbers
    steps = 0
    spoke_of_failing = False
    for number in reversed(range(len(lines))):
        line = lines[number]
        mild = MILD.match(line) is not None
        went_on = WENT_ON.search(line) is not None
        if (
            (mild and number + 1 < len(lines))
            or (went_on and not spoke_of_failing)
            or (ended_well and steps >= FEWEST_STEPS and not spoke_of_failing)
        ):
            numbers.add(number)
        # What stands above an error may have led to it.
        if RAISED.match(line) or OTHER_CLASS.match(line) or ENDED.match(line):
            break
        if number >= last_lines and not mild and not went_on and REPORTED.search(line):
            break
        if went_on or STEP.search(line):
            steps += 1
        elif _speaks_of_failing(line, number >= last_lines):
            spoke_of_failing = True
    return numbers


def earlier_failures(lines: Sequence[str]) -> tuple[list[Failure], list[Failure]]:
    """Take apart what stands above the last error: its causes, and errors of their own.

    Of the causes those come first that errors were raised from, the oldest of them first; then
    those that were being handled, the last one first. Of the others the first one comes first.
    """
    end = error_span(lines)[1]
    if end is None:
        return [], []
    raised_from = []
    handled = []
    others = []
    link = None
    linked = True
    for number in reversed(range(end)):
        if CAUSED.match(lines[number]) or HANDLED.match(lines[number]):
            link = lines[number]
            continue
        if not RAISED.match(lines[number]):
            continue
        linked = linked and link is not None
        if not linked:
            others.append(number)
        elif CAUSED.match(link) and not handled:
            raised_from.append(number)
        else:
            handled.append(number)
        link = None
    # A log may have thousands: only those that are looked at are taken apart.
    causes = (raised_from[::-1] + handled)[:MOST_CAUSES]
    others = others[::-1][:MOST_CAUSES]
    return _failures_at(lines, causes), _failures_at(lines, others)


def _failures_at(lines: Sequence[str], numbers: Sequence[int]) -> list[Failure]:
    failures = []
    for number in numbers:
        failure = _failure_at(lines, _traceback_begin(lines, number), number)
        failures.append(dataclasses.replace(failure, line=lines[number]))
    return failures


def failure_of(error: BaseException, lines: Sequence[str]) -> Failure:
    """Take an exception apart that Python still has; its message is given in clean lines."""
    frames = []
    for step in traceback.extract_tb(error.__traceback__):
        path = step.filename.replace("\\", "/")
        frames.append(Frame(path, str(step.lineno or ""), step.line or ""))
    kind = type(error).__name__
    message = _message("", lines)
    # TensorFlow's "in user code:" quotes the error with its own traceback.
    quoted = last_failure(lines) if error_span(lines)[1] is not None else None
    if quoted is not None:
        kind = quoted.kind
        message = quoted.message
    return _failure(kind, message, frames)


def _last_words(lines: Sequence[str]) -> Failure | None:
    for line in reversed(lines):
        match = ENDED.match(line)
        if match is not None:
            return _quoted(match, line)
    if len(lines) > EXCERPT:
        return None
    for line in reversed(lines):
        match = QUOTED_ERROR.search(line)
        if match is not None and not HARMLESS.match(line):
            return _quoted(match, line)
    return None


def _quoted(match: re.Match[str], line: str) -> Failure:
    kind, message = (group for group in match.groups() if group is not None)
    return Failure(kind, message[:LONGEST_MESSAGE], line=line)


def _message(first_line: str, below: Sequence[str]) -> str:
    """Put the lines of a message together; below TensorFlow's heading begin where it tells more."""
    if first_line.endswith(UNTELLING) or (below and below[0].endswith(UNTELLING)):
        for number, line in enumerate(below):
            if REPORTED.search(line):
                first_line = line
                below = below[number + 1 :]
                break
    message = [first_line]
    for line in below[:MOST_LINES]:
        if LOGGED.match(line) or TRACEBACK.match(line):
            break
        message.append(line)
    return " ".join(message).strip()[:LONGEST_MESSAGE]


def _traceback_begin(lines: Sequence[str], end: int) -> int:
    """Find the line with which the traceback begins that ends with a line."""
    for number in reversed(range(end)):
        if TRACEBACK.match(lines[number]) or RAISED.match(lines[number]):
            return number
    return 0


def _frames(lines: Sequence[str], begin: int, end: int) -> list[Frame]:
    """List the steps of a traceback, from its first line to its last; the outermost first."""
    steps = []
    for number in range(begin, end):
        match = FRAME.match(lines[number])
        if match is not None:
            steps.append((number, match))
    frames = []
    for index, (number, match) in enumerate(steps):
        next_number = end
        if index + 1 < len(steps):
            next_number = steps[index + 1][0]
        filled = [group for group in match.groups() if group is not None]
        line_number = filled[1] if len(filled) > 1 else ""
        source = ""
        below = lines[number + 1 : next_number]
        for line in below:
            arrow = ARROW.match(line)
            if arrow is not None:
                line_number = arrow[1]
                source = arrow[2]
        if not source and below and match[1] is not None and not MARKS.match(below[0]):
            source = below[0]
        frames.append(Frame(filled[0].replace("\\", "/"), line_number, source))
    return frames


def _failure(kind: str, message: str, frames: Sequence[Frame], line: str = "") -> Failure:
    package = ""
    raised_at = ""
    own_line = ""
    steps = [frame for frame in frames if frame.in_package or not STANDARD.search(frame.path)]
    if steps and steps[-1].in_package:
        package = steps[-1].in_package[2]
        raised_at = steps[-1].place
    for frame in steps:
        if not frame.in_package:
            own_line = frame.place
            if frame.source:
                own_line += f": {frame.source}"
    return Failure(kind, message, package, raised_at, own_line[:LONGEST_OWN_LINE], line)
