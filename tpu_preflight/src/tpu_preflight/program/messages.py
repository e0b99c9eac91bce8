"""What TensorFlow says when it refuses something: the line that matters, the operation, the place.

TensorFlow's errors are long texts with stacks in them. One parser reads them all: those of eager
runs, of tracing (AutoGraph and Keras wrap them) and of XLA.
"""

import dataclasses
import linecache
import os
import pathlib
import re
import traceback
from collections.abc import Iterable, Sequence

from tpu_preflight.text import steady

# File, line and function.
Frame = tuple[str, int, str]

# Files and folders whose frames are no part of the user's step: what calls it. A module that wraps
# a step in another function adds its file.
_HERE = pathlib.Path(__file__).resolve().parents[1]
MACHINERY = [f"{_HERE}{os.sep}"]

_PACKAGE = re.compile(r"(?:site|dist)-packages/")
_CORE = re.compile(
    r"packages/(?:tensorflow|keras|tf_keras|jax)/|/lib/python3\.\d+/(?!(?:site|dist)-packages/)|"
    r"<frozen|^<__array|__autograph_generated_file"
)

_FRAME = re.compile(r'File "(.+?)", line (\d+), in ([^\n]*)')
# What comes before an error inside another's text.
_HEADING = re.compile(
    r"\s*(?:\w+: )?(?:in user code:|Graph execution error:|Exception encountered when calling|"
    r"Could not automatically infer the output|Detected at node|\d+ root error\(s\) found)"
)
_NOISE = re.compile(r"\s+(?:\[\[|File )|\s*Stack trace|<stack traces unavailable>")
# Keras appends to an error what its layer was called with.
_KERAS_ARGUMENTS = re.compile(r"(?:Call a|A)rguments received by ")


@dataclasses.dataclass(frozen=True)
class Source:
    """A line of Python."""

    file: str  # path of the file, or the name that IPython gives to a cell
    line: int  # line number, from 1
    function: str  # the function that it is part of
    code: str = ""  # the line itself, where it can be read

    def __repr__(self) -> str:
        if "ipykernel" in self.file:
            name = "the notebook's cell"
        else:
            name = pathlib.Path(self.file).name
        where = f"{name}, line {self.line}"
        # Python's own names, such as <module> and <lambda>, tell a reader nothing.
        if self.function and not self.function.startswith("<"):
            where += f", in {self.function}"
        if self.code:
            where += f": {self.code}"
        return where


@dataclasses.dataclass(frozen=True)
class Refusal:
    """What an error's text says."""

    line: str  # the one line that says what is wrong
    # ``no kernel`` (XLA has no such operation), ``size`` (a size depends on a value), ``no
    # gradient``, or empty where the text gives none of these.
    reason: str = ""
    # TensorFlow's name of the refused operation, such as ``UniqueWithCounts``; empty where the text
    # doesn't say.
    operation: str = ""
    node: str = ""  # the operation's name in the graph; empty where the text doesn't say
    source: Source | None = None  # the line that made the operation, where it can be found
    layer: str = ""  # the layer that it belongs to; empty where the text doesn't say
    text: str = ""  # the whole text

    @property
    def where(self) -> str:
        """The place of the operation in words, as `place` says it."""
        return place(self.source, self.layer)


_REASONS = {
    "no kernel": re.compile(r"unsupported operations.*?: (\w+) \(", re.DOTALL),
    "size": re.compile(r"Input \d+ to node `.*?` with op (\w+) must be a compile-t"),
    "no gradient": re.compile(r"gradient registry has no entry for: (\w+)"),
}
# What TensorFlow puts around the names of gradients and of functions that call each other.
_WRAPPER = re.compile(r"gradient_tape|None_\w+|(?:Stateful)?PartitionedCall(?:_\d+)?")
# Keras says which layer it was in, the innermost last.
_IN_LAYER = re.compile(r"when calling (?:layer [\"'](\S+?)[\"']|(\w+)\.call\(\))")
_NODE = re.compile(r"\{\{node ([^}]*)\}\}|\[\[([^\]{]+)\]\]")


def refusal(error: BaseException) -> Refusal:
    """Read an error of TensorFlow, as it was raised."""
    text = _text(error)
    reason, operation = _reason_and_operation(_first_stack(text))
    node_match = _NODE.search(text)
    node = ""
    if node_match is not None:
        node = node_match[1] or node_match[2]
    layer = layer_in(text) or layer_of(node)
    return Refusal(
        line=line_of(error),
        reason=reason,
        operation=operation,
        node=node,
        source=source_of(error),
        layer=layer,
        text=str(error),
    )


def _reason_and_operation(text: str) -> tuple[str, str]:
    for reason, pattern in _REASONS.items():
        match = pattern.search(text)
        if match is not None:
            return reason, match[1]
    return "", ""


def layer_in(text: str) -> str:
    """Give the innermost layer that an error of Keras names, or nothing."""
    matches = _IN_LAYER.findall(text)
    if not matches:
        return ""
    name, kind = matches[-1]
    return name or kind


def line_of(error: BaseException) -> str:
    """Pick the line of an error that says what is wrong, without what differs at each run.

    The line is whole; it is the error's type where it has no text.
    """
    text = _KERAS_ARGUMENTS.split(_text(error))[0]
    candidates: list[str] = []
    frame_indent = None  # of the frame in the line above; its code is indented further
    for line in text.splitlines():
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        is_code = frame_indent is not None and indent > frame_indent
        if _HEADING.match(line):
            # What was collected belongs to the outer error; the inner one begins here.
            candidates.clear()
        elif not _NOISE.match(line) and not is_code:
            candidates.append(line)
        is_frame = line.lstrip().startswith('File "')
        frame_indent = indent if is_frame else None
    if candidates:
        line = steady(candidates[0])
    else:
        line = type(error).__name__
    return re.sub(r" when trying to compile graph \S+ on ", " on ", line)


def shorten(line: str) -> str:
    """Cut a line of more than 150 characters after its first sentence, or within it (``…``)."""
    if len(line) <= 150:
        return line
    sentence = re.match(r".{20,150}?[.)](?= [A-Z])", line)
    if sentence is not None:
        return sentence[0]
    return f"{line[:149]}…"


def source_of(error: BaseException) -> Source | None:
    """Find the line that an error is about, as `nearest_line` does.

    AutoGraph and XLA write a stack into the text, which tells more than the error's own.
    """
    written_frames = []
    for file, line, name in _FRAME.findall(_first_stack(_text(error))):
        written_frames.append((file, int(line), name))
    raised_frames = []
    for frame in traceback.extract_tb(error.__traceback__):
        raised_frames.append((frame.filename, frame.lineno, frame.name))
    return nearest_line(written_frames) or nearest_line(raised_frames)


def forward_name(name: str) -> str:
    """Give the name of the operation that a gradient's operation belongs to."""
    scopes = [scope for scope in name.split("/") if not _WRAPPER.fullmatch(scope)]
    return "/".join(scopes)


def layer_of(name: str) -> str:
    """Give the layer that an operation belongs to, by its name: ``bert/encoder``, or nothing."""
    return forward_name(name).rpartition("/")[0]


def place(source: Source | None, layer: str) -> str:
    """Say where an operation is made: the learner's line, else the layer and its library's line."""
    if source is not None and not _PACKAGE.search(source.file):
        return str(source)
    parts = []
    if layer:
        parts.append(f"layer {layer}")
    if source is not None:
        parts.append(str(source))
    return "; ".join(parts)


def learners_line(frames: Iterable[Frame]) -> Source | None:
    """Choose the learner's innermost frame, the outermost being first; None if there is none.

    What called the course's machinery is no part of the learner's step.
    """
    return _innermost([f for f in _inside(frames) if not _PACKAGE.search(f[0])])


def nearest_line(frames: Iterable[Frame]) -> Source | None:
    """Choose the learner's innermost frame, else that of the library they call; None if none."""
    inside = _inside(frames)
    return learners_line(inside) or _innermost(inside)


def _inside(frames: Iterable[Frame]) -> list[Frame]:
    """Leave out the callers of the machinery, and TensorFlow, Keras and Python."""
    frames = _with_whole_paths(list(frames))
    begin = 0
    for i, (file, _, _) in enumerate(frames, 1):
        if os.path.realpath(file).startswith(tuple(MACHINERY)):
            begin = i
    return [f for f in frames[begin:] if not _CORE.search(f[0])]


def _with_whole_paths(frames: Sequence[Frame]) -> list[Frame]:
    """Give back the folders that all files of a stack share, which TensorFlow's C++ leaves out.

    What they are, a file of this package shows: where it is on the disk is known.
    """
    shared = "/"
    for file, _, _ in frames:
        if file.startswith("/"):
            continue
        _, _, within_package = file.rpartition(f"{_HERE.name}/")
        path = f"{_HERE}/{within_package}"
        if path.endswith(f"/{file}") and pathlib.Path(path).is_file():
            shared = path.removesuffix(file)
    whole_frames = []
    for file, line, function in frames:
        is_whole = file.startswith(("<", "/")) or pathlib.Path(file).exists()
        path = file if is_whole else shared + file
        whole_frames.append((path, line, function))
    return whole_frames


def _innermost(frames: Sequence[Frame]) -> Source | None:
    if not frames:
        return None
    path, line, function = frames[-1]
    name = (function or "").strip().rstrip("*").strip()  # AutoGraph marks its own with a star
    if name == "None":
        name = ""
    return Source(path, line, name, linecache.getline(path, line).strip())


def _text(error: BaseException) -> str:
    text = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # Keras writes in bold
    prefix = "Failed getting HLO text: '"
    if text.startswith(prefix):
        return text.removeprefix(prefix).removesuffix("'")
    return text


def _first_stack(text: str) -> str:
    """Cut a text after the stack of the operation itself; those that follow are its callers'."""
    return text.split("tf2xla conversion failed")[0].split("[[{{node")[0]
