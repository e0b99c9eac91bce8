"""`helpers` is what notebooks share: each of its modules is reached from a cell or an exercise."""

import ast
import json
import re

from conventions import NOTEBOOKS, ROOT, source

HELPERS = ROOT / "helpers"


def modules() -> dict[str, str]:
    """The source of each module of `helpers`, by its dotted name."""
    sources = {}
    for path in sorted(HELPERS.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        sources[name] = path.read_text("utf-8")
    return sources


def imported(code: str) -> set[str]:
    """The names that a program imports, also within functions."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def cells() -> str:
    """The code of all notebooks, without Jupyter's own lines."""
    programs = []
    for path in NOTEBOOKS:
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            text = source(cell)
            if cell["cell_type"] == "code" and not text.startswith("%%"):
                programs.append(re.sub(r"^(\s*)[!%].*", r"\1pass", text, flags=re.M))
    return "\n".join(programs)


def reached(entries: set[str], sources: dict[str, str]) -> set[str]:
    """The modules that importing ``entries`` brings along, sooner or later."""
    done: set[str] = set()
    waiting = [name for name in entries if name in sources]
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        names = imported(sources[name])
        names.add(name.rpartition(".")[0])  # a module brings its packages
        waiting += [name for name in names if name in sources]
    return done


def test_every_module_is_reached_from_a_cell_or_checks_an_exercise():
    sources = modules()
    entries = imported(cells())
    # `check` imports the module of an exercise by its number.
    entries |= {name for name in sources if name.startswith("helpers.exercises.notebook_")}
    # A rehearsed process is started by its file, and the magic %explain by a kernel's settings.
    entries |= {"helpers.tpu.worker", "helpers.tpu.gcs_server"}
    passengers = set(sources) - reached(entries, sources)
    assert passengers == set()


def test_a_passenger_is_seen():
    sources = {"helpers": "", "helpers.used": "", "helpers.passenger": "import helpers.used"}
    assert reached({"helpers.used"}, sources) == {"helpers", "helpers.used"}
