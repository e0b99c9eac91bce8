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
    laid_out: tuple[str, ...]
    opcode: str  # such as ``fusion``
    inside: str  # the text between its parentheses
    attributes: str  # the text after them
    root: bool  # whether its result is the computation's

    @property
    def operands(self) -> list[str]:
        """Names of the instructions whose results it takes."""
        return re.findall(r"%([^\s,(){}]+)", self.inside)

    def called(self, attribute: str) -> str | None:
        """Name of the computation that an attribute such as ``calls`` leads to."""
        found = re.search(rf"\b{attribute}=%?([^\s,(){{}}]+)", self.attributes)
        return found and found[1]


# Name, results, opcode, what stands between its parentheses, and attributes.
_LINE = re.compile(r"(ROOT )?%?(\S+) = (.*?) ([a-z][\w\-]*)\((.*?)\)(|, [\w-]+=.*)", re.DOTALL)


def _instruction(line: str) -> Instruction:
    found = _LINE.fullmatch(re.sub(r"/\*.*?\*/", "", line.strip()))
    if found is None:
        raise ValueError(f"a line that is no instruction: {line.strip()[:60]!r}")
    root, name, made, opcode, inside, attributes = found.groups()
    laid_out = tuple(re.findall(r"\w+\[[^\]]*\](?:\{[^}]*\})?", made))
    shapes = tuple(shape.partition("{")[0] for shape in laid_out)
    return Instruction(name, shapes, laid_out, opcode, inside, attributes, bool(root))


def computations(text: str) -> tuple[dict[str, list[Instruction]], str]:
    """Read all computations of a module, and the name of the main one.

    Raises:
        PreflightError: The text is something else.
    """
    found: dict[str, list[Instruction]] = {}
    current = main = None
    try:
        # Metadata that a kernel of Pallas gives itself is written over several lines.
        for line in re.sub(r'\n(?="|\}\})', "", text).splitlines():
            if head := re.match(r"(ENTRY )?%?(\S+) \(.*\{$", line):
                current = head[2]
                found[current] = []
                main = current if head[1] else main
            elif line.startswith("}"):
                current = None
            elif current is not None and " = " in line:
                found[current].append(_instruction(line))
        if main is None or not found[main]:
            raise ValueError("no main computation (ENTRY)")
    except ValueError as error:
        raise PreflightError(
            "This text can't be read as a program of XLA.",
            f"It has {error}.",
            "Give the text of experimental_get_compiler_ir(...)(stage='optimized_hlo').",
        ) from error
    return found, main
