"""The text of a compiled program, instruction by instruction (https://openxla.org/xla/hlo_dumps)."""

import dataclasses
import re

from tpu_preflight.errors import PreflightError


@dataclasses.dataclass(frozen=True)
class Instruction:
    """One line of a computation."""

    name: str  # what other lines call its result
    shapes: tuple[str, ...]  # type and shape of each result: ``f32[8,128]``
    # The same with the layouts, where the text has them: ``f32[8,128]{1,0:T(8,128)}``.
    layouts: tuple[str, ...]
    opcode: str  # such as ``fusion``
    inside: str  # the text between its parentheses
    attributes: str  # the text after them
    root: bool  # whether its result is the computation's

    @property
    def operands(self) -> list[str]:
        """Names of the instructions whose results it takes."""
        return re.findall(r"%([^\s,(){}]+)", self.inside)

    def called(self, attribute: str) -> str | None:
        """Name of the computation that an attribute such as ``calls`` leads to; None without it.

        Of several in braces it is the first.
        """
        match = re.search(rf"\b{attribute}=\{{?%?([^\s,(){{}}]+)", self.attributes)
        if match is None:
            return None
        return match[1]


# Name, results, opcode, what is between its parentheses, and attributes.
_LINE = re.compile(r"(ROOT )?%?(\S+) = (.*?) ([a-z][\w\-]*)\((.*?)\)(|, [\w-]+=.*)", re.DOTALL)
_HEAD = re.compile(r"(ENTRY )?%?(\S+) \(.*\{$")


def _instruction(line: str) -> Instruction:
    # XLA's comments, such as /*index=5*/ in long lists.
    match = _LINE.fullmatch(re.sub(r"/\*.*?\*/", "", line.strip()))
    if match is None:
        raise ValueError(f"a line that is no instruction: {line.strip()[:60]!r}")
    root, name, results, opcode, inside, attributes = match.groups()
    layouts = re.findall(r"\w+\[[^\]]*\](?:\{[^}]*\})?", results)
    shapes = [shape.partition("{")[0] for shape in layouts]
    return Instruction(
        name=name,
        shapes=tuple(shapes),
        layouts=tuple(layouts),
        opcode=opcode,
        inside=inside,
        attributes=attributes,
        root=root is not None,
    )


def computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """Read all computations of a module, and the name of the main one.

    Raises:
        PreflightError: The text is something else.
    """
    try:
        return _computations(text)
    except ValueError as error:
        raise PreflightError(
            "This text can't be read as a program of XLA.",
            f"It has {error}.",
            "Give the text of experimental_get_compiler_ir(...)(stage='optimized_hlo').",
        ) from error


def _computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    instructions: dict[str, list[Instruction]] = {}
    current = None
    main = None
    # Metadata that a kernel of Pallas gives itself is written over several lines.
    text = re.sub(r'\n(?="|\}\})', "", text)
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            entry, current = head.groups()
            instructions[current] = []
            if entry:
                main = current
        elif line.startswith("}"):
            current = None
        elif current is not None and " = " in line:
            instructions[current].append(_instruction(line))
    if main is None or not instructions[main]:
        raise ValueError("no main computation (ENTRY)")
    return instructions, main
