"""A computer with little on it: a folder, and a PATH that holds the system's tools only."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys

# A course that can be installed without setuptools, which isn't here: it builds itself.
PROJECT = pathlib.Path(__file__).with_name("project")

TOOLS = "awk cat cut df dirname grep mkdir mktemp rm sh sleep tail tee touch uname unshare"


class Machine:
    """Runs the installer as on another computer: no uv, no settings of pip, room enough."""

    def __init__(self, course: pathlib.Path, **variables: str) -> None:
        self.folder, self.bin = course, course.parent / "bin"
        self.bin.mkdir()
        for tool in filter(shutil.which, TOOLS.split()):
            (self.bin / tool).symlink_to(shutil.which(tool))
        self.tool("df", "echo header; echo disk 0 0 99000000 0% /")
        self.environment = {"PATH": str(self.bin), "HOME": str(course.parent), **variables}
        self.environment["PIP_CONFIG_FILE"] = os.devnull

    def tool(self, name: str, script: str) -> None:
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def python(self, name: str = "python3") -> None:
        self.tool(name, f'exec "{sys.executable}" "$@"')

    def start(self, *prefix: str, **variables: str) -> subprocess.Popen:
        return subprocess.Popen(
            [*prefix, "sh", "helpers/install.sh"],
            cwd=self.folder,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def install(self, *prefix: str, **variables: str) -> tuple[int, str]:
        process = self.start(*prefix, **variables)
        said, _ = process.communicate(timeout=120)
        return process.returncode, said

    def installed(self) -> bool:
        return (self.folder / ".venv/.installed").exists()

    def command(self) -> str:
        """What the course's own command says, from another folder."""
        done = subprocess.run([self.folder / ".venv/bin/tpu-course"], cwd="/", capture_output=True)
        return done.stdout.decode().strip()


def make_project(folder: pathlib.Path) -> None:
    """Write what an installation of the course's own commands needs."""
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
    shutil.copytree(PROJECT, folder / "tpu_preflight")
    project = folder / "tpu_preflight/pyproject.toml"
    project.write_text(project.read_text().replace('"course"', '"tpu_preflight"'))
