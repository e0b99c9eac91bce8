"""Files of facts, such as ``zones.toml``, each row with its source and the month of reading."""

import pathlib
import tomllib


def facts(name: str) -> dict:
    """Read a file of facts beside this one; lists become tuples, as a frozen dataclass needs."""

    def frozen(value: object) -> object:
        if isinstance(value, dict):
            return {key: frozen(inner) for key, inner in value.items()}
        return tuple(map(frozen, value)) if isinstance(value, list) else value

    return frozen(tomllib.loads(pathlib.Path(__file__).with_name(name).read_text("utf-8")))
