"""Commands that are shown to be copied into a shell, and never run here."""

import dataclasses
import shlex

from helpers.base import html


@dataclasses.dataclass(frozen=True)
class Command:
    """One command, as the words that a program receives; ``costs``: you pay from here on."""

    purpose: str
    words: tuple[str, ...]
    costs: bool = False

    def __str__(self) -> str:
        return shlex.join(self.words)

    def lines(self, width: int = 92) -> str:
        """Write the command over several lines, each but the last ending in a backslash."""
        quoted = [shlex.quote(word) for word in self.words]
        text, length = quoted[0], len(quoted[0])
        for word in quoted[1:]:
            if length + len(word) + 3 > width:
                text, length = f"{text} \\\n    {word}", 4 + len(word)
            else:
                text, length = f"{text} {word}", length + 1 + len(word)
        return text


@dataclasses.dataclass(frozen=True)
class Commands:
    """Commands in order, shown to be copied into a shell, with what we could not check."""

    commands: tuple[Command, ...]
    doubts: tuple[str, ...] = ()

    def __add__(self, other: "Commands") -> "Commands":
        doubts = (*self.doubts, *(x for x in other.doubts if x not in self.doubts))
        return Commands(self.commands + other.commands, doubts)

    def __repr__(self) -> str:
        notes = [f"# Not checked: {doubt}" for doubt in self.doubts]
        shown = [
            f"# {command.purpose}{' (costs from here on)' * command.costs}\n{command.lines()}"
            for command in self.commands
        ]
        return "\n".join(notes + shown)

    def _repr_html_(self) -> str:
        return html.render("commands.html", commands=self.commands, doubts=self.doubts)
