"""A folder on this disk or in a bucket: the same few operations on both, the same errors.

TensorFlow could do both, and takes seconds to start; so this goes through fsspec.
"""

import contextlib
import logging
import os
import pathlib
import re
import secrets
import tempfile
from collections.abc import Iterable, Iterator

import filelock

from helpers.base import files
from helpers.base.errors import CourseError, cause

_BUCKET = (
    "Make the bucket where the TPU is (gcloud storage buckets create gs://… --location=REGION), "
    "log in (gcloud auth application-default login; in Colab auth.authenticate_user()), "
    "or ask the bucket's owner to give your account roles/storage.objectAdmin. Then run the same "
    "command again: nothing already written is lost."
)

PATIENCE = 20  # seconds until a bucket answers; the libraries try again for minutes
LARGEST = 2**30  # bytes of a file that is read whole: a log of ten million steps has fewer


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Tell an address such as ``gs://bucket/folder`` from a path on this machine."""
    return "://" in os.fspath(path)


def short(path: str | os.PathLike[str]) -> str:
    """Name a folder in a message: an address as it is, a path by its last part."""
    path = os.fspath(path)
    if is_remote(path):
        return path
    return pathlib.Path(path).absolute().name or path


class Folder:
    """A folder that need not exist yet; names of what is in it may have slashes.

    A file is whole or absent. What can't be read raises a `CourseError`, what can't be written
    `files.CantWrite`; what isn't there is no error.

    Attributes:
        path: Path (with the home folder for ``~``) or address, without a slash at the end.
        absolute: The same from anywhere on this machine.
        remote: Whether it is an address.

    Raises `CourseError`: It is neither a path in UTF-8 nor ``gs://bucket/folder``.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        import fsspec

        path = os.fspath(path)
        if not path.strip() or re.match(r"(?!gs://[^/])\w{2,}:/", path):
            raise CourseError(
                f"{path[:60]!r} can't be used as a folder.",
                "Records, runs and TPUs know folders of this machine and gs://BUCKET/FOLDER alone.",
                "Name a folder that is not empty text; write an address in full, as text: a Path "
                "makes gs:/ of it.",
            )
        if re.search(r"[\0\ud800-\udfff]", path):
            raise CourseError(
                f"The name of the folder {path[:60]!r} is not UTF-8.",
                "TensorFlow takes names in UTF-8; archives of older Korean systems have CP949.",
                "Rename it (mv, or convmv -f cp949 -t utf8 --notest), then run the same command.",
            )
        # No shell writes `~` out in `--output=~/records`, and a Path would make one slash of two.
        path = os.path.expanduser(path)  # noqa: PTH111
        self.path = path.rstrip("/") or "/"
        self.remote = is_remote(path)
        if self.remote:
            # It logs each error with its stack; here every error is raised.
            logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
            # Other writers (TensorFlow's too) change the same bucket: a kept listing would be old.
            self._files, self._root = fsspec.core.url_to_fs(self.path, use_listings_cache=False)
        else:
            self._files = fsspec.filesystem("file")
            self._root = pathlib.Path(self.path).absolute().as_posix()
        self.absolute = self.path if self.remote else self._root
        # Each of fsspec's libraries has errors of its own, most of them no OSError.
        self._failures = Exception if self.remote else OSError

    def at(self, name: str) -> str:
        """Give the path or address of a file in the folder, as TensorFlow takes it."""
        return f"{self.path.rstrip('/')}/{name}"

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}".rstrip("/")

    @contextlib.contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        try:
            yield
        # What isn't there is no error: the caller goes on below its block.
        except (FileNotFoundError, NotADirectoryError):
            pass
        except self._failures as error:
            raise CourseError(
                f"{name or self.path} could not be read.",
                f"{cause(error)}.",
                "Check that you may read there, and run the same command again when it can be "
                "reached; nothing was changed.",
            ) from error

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except files.CantWrite:
            raise
        except self._failures as error:
            if self.remote:
                raise files.CantWrite(
                    f"{self.path} could not be written to.", f"{cause(error)}.", _BUCKET
                ) from error
            raise files.cant_write(pathlib.PurePath(self._at(name)), error) from error

    def check(self) -> None:
        """Raise `files.CantWrite` unless the folder can be made and written to; leave nothing."""
        if self.remote:
            probe = self._at(f".write-check-{secrets.token_hex(4)}")
            with self._writing(""):
                self._files.pipe_file(probe, b"", timeout=PATIENCE)
                self._files.rm(probe)
            return
        # Tried in the nearest folder that exists, as nothing is to be left behind.
        nearest = pathlib.Path(self._root)
        with self._writing(""):
            # A link that leads nowhere counts: no folder can be made in its place.
            while not (nearest.exists() or nearest.is_symlink()):
                nearest = nearest.parent
            tempfile.TemporaryFile(dir=nearest).close()

    def alone(self) -> contextlib.AbstractContextManager:
        """Keep other processes of this machine out; the lock ends with the process, however.

        A bucket has no lock.

        Raises `CourseError`: Another process is at work there, or as `check`.
        """
        if self.remote:
            return contextlib.nullcontext()
        self.check()
        if self.sizes().get(".lock"):  # to lock it would empty it
            raise CourseError(
                f"{short(self.path)} has a .lock from another program.",
                "The course's is empty; this one would be emptied.",
                "Name another folder, or move the file away.",
            )
        try:
            return filelock.FileLock(self._at(".lock")).acquire(blocking=False)
        except filelock.Timeout:
            raise CourseError(
                f"Another process writes to {short(self.path)}.",
                "Two at the same time would interfere with each other.",
                "Wait until it has ended (or stop it: Ctrl-C there), or name another folder.",
            ) from None
        except OSError as error:  # another user's file, or a folder
            raise files.cant_write(pathlib.PurePath(self._at(".lock")), error) from error

    def read(self, name: str) -> bytes | None:
        """Read a file; None where there is none.

        Raises `CourseError`: It is no file, has more than ``LARGEST`` bytes, or can't be read.
        """
        info = None
        with self._reading(name):
            info = self._files.info(self._at(name), timeout=PATIENCE)
        if info is None:
            return None
        # Asked before it is opened: a pipe would be waited for, /dev/zero has no end.
        if info["type"] != "file" or info["size"] > LARGEST:
            raise self._no_file(name)
        with self._reading(name):
            return self._files.cat_file(self._at(name))
        return None

    def _no_file(self, name: str) -> CourseError:
        return CourseError(
            f"{name} in {short(self.path)} can't be read.",
            "It is a folder, a pipe or a device, or larger than any that the course writes.",
            "Move it away; if a file of that name was yours, bring it back from a copy.",
        )

    def pieces(self, name: str) -> Iterator[bytes]:
        """Read a file some bytes at a time; nothing where there is none.

        Raises `CourseError`: It is no file, or can't be read.
        """
        size = 2**24
        with self._reading(name):
            if self._files.info(self._at(name), timeout=PATIENCE)["type"] != "file":
                raise self._no_file(name)
        with self._reading(name), self._files.open(self._at(name), "rb", block_size=size) as file:
            while piece := file.read(size):
                yield piece

    def exists(self, name: str) -> bool:
        """Tell whether there is a file or folder of this name."""
        with self._reading(name):
            self._files.info(self._at(name), timeout=PATIENCE)
            return True
        return False

    def entries(self, name: str = "") -> dict[str, dict]:
        """Give what the storage knows of each file: other times or numbers when it is replaced."""
        path = self._at(name)
        with self._reading(name):
            entries = {}
            for entry in self._files.ls(path, detail=True):
                # A bucket's folder can hold an object that is named like the folder itself.
                if entry["name"] != path:
                    entries[entry["name"].rstrip("/").rpartition("/")[2]] = entry
            return entries
        return {}

    def list(self, name: str = "") -> list[str]:
        """Give the names of what is in the folder, or in one below it, in order."""
        return sorted(self.entries(name))

    def sizes(self) -> dict[str, int]:
        """Give the sizes of the files in the folder, in bytes, by name; pipes are none."""
        sizes = {}
        for name, entry in self.entries().items():
            if entry["type"] == "file":
                sizes[name] = entry["size"]
        return sizes

    def write(self, name: str, data: str | bytes | Iterable[bytes]) -> None:
        """Write a file, or the pieces of one, whole or not at all; text is written as UTF-8."""
        path = pathlib.Path(self._at(name))
        with self._writing(name):
            if self.remote:
                # Whole on this disk first: if a piece can't be made, the bucket's file stays.
                with tempfile.TemporaryDirectory() as folder:
                    local = pathlib.Path(folder, path.name)
                    files.write(local, data)
                    self._files.put_file(str(local), self._at(name))
                return
            files.write(path, data)

    def delete(self, name: str) -> None:
        """Delete a file, or a folder and all that is in it, if it is there."""
        with self._writing(name), contextlib.suppress(FileNotFoundError):
            self._files.rm(self._at(name), recursive=True)
