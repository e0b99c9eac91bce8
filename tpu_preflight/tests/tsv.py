"""Tables of cases, kept as text beside the tests."""

import pathlib


def table(name: str) -> list[list[str]]:
    """Read a file of lines with tabs between the cells; ``#`` begins a remark, then come heads."""
    lines = pathlib.Path(__file__).with_name(name).read_text("utf-8").splitlines()
    _, *rows = (line.split("\t") for line in lines if not line.startswith("#"))
    return rows
