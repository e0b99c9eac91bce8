"""Builds the small course in its folder, for pip, as far as these tests need it."""

import pathlib
import sys
import zipfile

WHEEL = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def build_editable(folder, settings=None, metadata=None):
    files = {
        "course.pth": f"{pathlib.Path.cwd()}\n",
        "course-9.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: course\nVersion: 9.9\n",
        "course-9.9.dist-info/WHEEL": WHEEL,
        "course-9.9.dist-info/entry_points.txt": "[console_scripts]\ntpu-course = builder:main\n",
    }
    files["course-9.9.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    with zipfile.ZipFile(pathlib.Path(folder, "course-9.9-py3-none-any.whl"), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return "course-9.9-py3-none-any.whl"


def main():
    sys.stdout.write(f"tpu-course of {pathlib.Path(__file__).parent}\n")
