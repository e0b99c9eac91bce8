"""Builds the small course, or its preflight, for pip, as far as these tests need it."""

import pathlib
import sys
import zipfile

WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_editable(folder, settings=None, metadata=None):
    name, info = pathlib.Path.cwd().name, f"{pathlib.Path.cwd().name}-9.9.dist-info"
    files = {
        f"{name}.pth": f"{pathlib.Path.cwd()}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n",
        f"{info}/WHEEL": WHEEL,
    }
    if name == "course":
        files[f"{info}/entry_points.txt"] = "[console_scripts]\ntpu-course = builder:main\n"
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files)
    wheel = f"{name}-9.9-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, wheel), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


def main():
    sys.stdout.write(f"tpu-course of {pathlib.Path(__file__).parent}\n")
