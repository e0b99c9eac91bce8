"""How large each room is: files, lines, statements. CI prints it; nothing fails for it.

python tests/repo/sizes.py
"""

import ast
import itertools
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ("helpers", "course", "tpu_preflight/src/tpu_preflight", "tests", "tpu_preflight/tests")


def rooms(package: str) -> dict[str, list[pathlib.Path]]:
    """Give the Python files of each room; those beside the rooms are the package's own."""
    by_room: dict[str, list[pathlib.Path]] = {}
    folder = ROOT / package
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).parts
        room = f"{package}/{parts[0]}" if len(parts) > 1 else package
        by_room.setdefault(room, []).append(path)
    return by_room


def count(paths: list[pathlib.Path]) -> tuple[int, int, int]:
    """Count files, lines and statements."""
    lines = statements = 0
    for path in paths:
        text = path.read_text("utf-8")
        lines += len(text.splitlines())
        statements += sum(isinstance(node, ast.stmt) for node in ast.walk(ast.parse(text)))
    return len(paths), lines, statements


def main() -> None:
    """Print a table of the rooms, and what each package has in all."""
    print(f"{'room':44}{'files':>7}{'lines':>8}{'statements':>12}")
    for package in (*PACKAGES, "benchmarks"):
        by_room = rooms(package)
        for room, paths in by_room.items():
            files, lines, statements = count(paths)
            print(f"{room:44}{files:7}{lines:8}{statements:12}")
        all_paths = list(itertools.chain.from_iterable(by_room.values()))
        files, lines, statements = count(all_paths)
        print(f"{package + ', in all':44}{files:7}{lines:8}{statements:12}\n")


if __name__ == "__main__":
    main()
