"""Cases of tests, kept as data beside them."""

import functools
import pathlib
import tomllib


@functools.cache
def _tables(path: pathlib.Path) -> dict:
    return tomllib.loads(path.read_text("utf-8"))


def cases(test: str, name: str) -> list:
    """The cases called ``name`` of the file ``cases.toml`` in a test's folder."""
    return _tables(pathlib.Path(test).with_name("cases.toml"))[name]
