"""Files and folders on their way: hidden, and locked by the process that writes them.

A lock ends with its process, however that ends, and every container and PID namespace on the
machine sees it. So what is unlocked was left by a process that was killed.
"""

import contextlib
import glob
import os
import pathlib
import secrets
import shutil
from collections.abc import Callable, Iterator

try:
    import fcntl
except ImportError:  # Windows: nothing is locked, so nothing that another process left is deleted
    fcntl = None

_SUFFIX_BYTES = 8
_SUFFIX = "[0-9a-f]" * (2 * _SUFFIX_BYTES)  # a backup that is named by a date isn't ours
_locks: set[int] = set()  # descriptors that hold this process's locks


def _release_in_child() -> None:
    # A fork shares its parent's locks, and would keep them beyond the parent's end.
    for descriptor in _locks:
        os.close(descriptor)
    _locks.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


def _open_locked(path: pathlib.Path) -> int:
    """Open a file or folder and lock it; the lock lasts until its descriptor is closed.

    Raises OSError: another process holds the lock, or this disk has no locks.
    """
    if fcntl is None:
        raise OSError("this system has no such locks")
    # A pipe of this name would be waited for, and a link would lead to somebody else's file.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _create_locked(
    path: pathlib.Path, create: Callable[[pathlib.Path], None]
) -> tuple[pathlib.Path, int | None]:
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(_SUFFIX_BYTES)}")
        create(temporary)
        try:
            descriptor = _open_locked(temporary)
        except (FileNotFoundError, BlockingIOError):
            continue  # another process took it for a leftover before it was locked
        except OSError:
            return temporary, None  # a disk without locks: there nothing is ever deleted
        # Else it was deleted before the lock: then the lock is of a file without a name.
        if temporary.exists():
            return temporary, descriptor
        os.close(descriptor)


@contextlib.contextmanager
def _reserved(
    path: pathlib.Path,
    create: Callable[[pathlib.Path], None],
    delete: Callable[[pathlib.Path], None],
) -> Iterator[pathlib.Path]:
    temporary, descriptor = _create_locked(path, create)
    if descriptor is not None:
        _locks.add(descriptor)
    try:
        yield temporary
    finally:
        delete(temporary)
        if descriptor in _locks:  # not in a fork
            _locks.remove(descriptor)
            os.close(descriptor)


def reserved_file(path: pathlib.Path) -> contextlib.AbstractContextManager[pathlib.Path]:
    """Make an empty hidden file next to ``path``, locked while the block runs.

    Rename it to give it its place; what still has the hidden name at the block's end is deleted.
    """

    def create(temporary: pathlib.Path) -> None:
        temporary.touch(exist_ok=False)

    def delete(temporary: pathlib.Path) -> None:
        temporary.unlink(missing_ok=True)

    return _reserved(path, create, delete)


def reserved_folder(
    path: pathlib.Path, mode: int = 0o777
) -> contextlib.AbstractContextManager[pathlib.Path]:
    """Make an empty hidden folder next to ``path``, as `reserved_file` makes a file."""

    def create(temporary: pathlib.Path) -> None:
        temporary.mkdir(mode, parents=True)

    def delete(temporary: pathlib.Path) -> None:
        shutil.rmtree(temporary, ignore_errors=True)

    return _reserved(path, create, delete)


def leftovers(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """List what killed processes left of reserved files or folders for ``path``.

    Each is locked until the next is asked for, so that nobody else deletes it meanwhile.
    """
    for candidate in path.parent.glob(f".{glob.escape(path.name)}.{_SUFFIX}"):
        try:
            descriptor = _open_locked(candidate)
        except OSError:
            continue  # in use, or not for this user
        try:
            yield candidate
        finally:
            os.close(descriptor)
