"""What ``options.toml`` says of the commands' options: how they are typed, and what help shows."""

import inspect
import pathlib
import tomllib
from collections.abc import Callable
from typing import Annotated

import typer

_ROWS = tomllib.loads(pathlib.Path(__file__).with_name("options.toml").read_text("utf-8"))


def described(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Tell typer of a command's parameters what the tables ``name`` and ``shared`` say of them.

    Raises:
        KeyError: A parameter stands in neither, and isn't described in the code.
    """
    rows = _ROWS["shared"] | _ROWS.get(name, {})
    for parameter in inspect.signature(command).parameters.values():
        kind = parameter.annotation
        if kind is typer.Context or hasattr(kind, "__metadata__"):
            continue
        row = dict(rows[parameter.name])
        if row.pop("argument", False):
            told = typer.Argument(**row)
        else:
            # Of a switch typer would make two: --quiet and --no-quiet.
            switch = ["--" + parameter.name.replace("_", "-")] if kind is bool else []
            told = typer.Option(*row.pop("flags", switch), **row)
        command.__annotations__[parameter.name] = Annotated[kind, told]
    return command
