"""Files and folders: opening, reading, writing and removal, with a single translation of system errors.

    read_into, write_at, write_all    loops over one system call, which may transfer less than requested
    translated, failure               OSError ─► StoreFailure, DiskFullError: "cannot write a.zarr: Permission denied"

A FIFO, socket, device or folder in the place of a file is refused without waiting for it. Folders of runs are readable
by their owner only: a journal describes a source, and scratch holds copies of it.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress

from oocarrays.errors import DiskFullError, StoreFailure
from oocarrays.storage.local.names import OURS, SHARED

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}
"""Kinds of files that hold no bytes of an array."""
FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full device, or of an exhausted user quota."""
ABSENT = (FileNotFoundError, NotADirectoryError)
"""Errors of a path that does not exist."""
MOST_BYTES = 2**30
"""Maximum bytes of one system call; the kernel stops at 2 GiB."""


# ---------------------------------------------------------------------- errors


def failure(doing: str, where: object, error: OSError, *, full: bool = False) -> DiskFullError | StoreFailure:
    """Return the error of this package for an error of the system, with its full text, or its reason alone."""
    if error.errno in FULL and doing == "write":
        return DiskFullError(f"no room left on the device for {where}: {error.strerror}")
    return StoreFailure(f"cannot {doing} {where}: {error if full else error.strerror or error}")


class translated:
    """Context in which an error of the system is raised as a `failure`; exceptions in ``but`` pass."""

    __slots__ = ("_but", "_doing", "_full", "_where")

    def __init__(self, doing: str, where: object, *, but: tuple[type[OSError], ...] = (), full: bool = False) -> None:
        self._doing, self._where, self._but, self._full = doing, where, but, full

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None and isinstance(error, OSError) and not isinstance(error, self._but):
            raise failure(self._doing, self._where, error, full=self._full) from error


# ---------------------------------------------------------------------- files


def open_regular(path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file; also an ``opener`` of ``open``."""
    try:
        file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EISDIR):  # a socket; a FIFO without a reader; a folder
            raise
        raise _refused(path, os.stat(path).st_mode) from error
    kind = os.fstat(file).st_mode
    if stat.S_ISREG(kind):
        return file
    os.close(file)
    raise _refused(path, kind)


def check_regular(path: str) -> None:
    """Raise if a path that another library opens is neither a file nor a folder nor absent."""
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise StoreFailure(f"cannot open {path}: {_refused(path, kind).strerror}")


def _refused(path: str, kind: int) -> OSError:
    name = KINDS.get(stat.S_IFMT(kind), "a special file")
    return OSError(errno.EINVAL, f"it is {name}, not a regular file", path)


def read_file(path: str) -> bytes | None:
    """Read a small file; return None if it does not exist."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read()
    except ABSENT:
        return None


def remove_file(path: str) -> None:
    """Remove a file if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(path)


def mode_of(path: str) -> int:
    """Return the permissions of a new file: for our own files the owner only, except those shared with readers."""
    folder, name = os.path.split(path)
    ours = name.startswith(OURS) or any(part.startswith(OURS) for part in folder.split(os.sep))
    return 0o600 if ours and not name.startswith(SHARED) else 0o666


def read_into(file: int, offset: int, out: memoryview) -> int:
    """Fill ``out`` from an open file; return the number of bytes that the file lacks."""
    lacks = len(out)
    got = os.preadv(file, [out[:MOST_BYTES]], offset)
    while got < lacks and got:
        lacks, offset, out = lacks - got, offset + got, out[got:]
        got = os.preadv(file, [out[:MOST_BYTES]], offset)
    return lacks - got


def write_at(file: int, offset: int, data: memoryview, done: int = 0) -> None:
    """Write ``data`` at ``offset`` of an open file, but for its first ``done`` bytes."""
    while done < len(data):
        done += os.pwrite(file, data[done : done + MOST_BYTES], offset + done)


def write_all(file: int, data: memoryview) -> None:
    """Write ``data`` at the position of an open file."""
    done = 0
    while done < len(data):
        done += os.write(file, data[done : done + MOST_BYTES])


def sync_path(path: str) -> None:
    """Sync a file, or the names in a folder, to the device, if it exists."""
    with suppress(*ABSENT):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


# ---------------------------------------------------------------------- folders


def make_folder(folder: str) -> None:
    """Create a folder, accessible by its owner only if it is ours; raise like ``os.mkdir``."""
    os.mkdir(folder, 0o700 if os.path.basename(folder).startswith(OURS) else 0o777)


def make_folders(folder: str, *, durable: bool = False, named: bool = True) -> None:
    """Create a folder and its parents if they do not exist; if durable, sync their names, the last one if ``named``."""
    if not os.path.isdir(folder):
        above = os.path.dirname(folder)
        if above != folder:
            make_folders(above, durable=durable)
        with suppress(FileExistsError):
            make_folder(folder)
        if durable and named:
            sync_path(above)


def make_below(root: str, folder: str) -> None:
    """Create a folder and its parents below ``root``; raise if ``root`` itself has been removed."""
    if folder == root:
        return
    try:
        make_folder(folder)
    except FileExistsError:
        pass
    except FileNotFoundError:
        if os.path.dirname(folder) == root:
            raise
        make_below(root, os.path.dirname(folder))
        with suppress(FileExistsError):
            make_folder(folder)


def remove_tree(folder: str) -> None:
    """Delete a folder and its contents, also while other processes do the same."""
    while os.path.lexists(folder):
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise


def files_below(folder: str, *, skip: str = "/", strict: bool = False) -> Iterator[str]:
    """Yield the relative paths of all files in a tree, except in folders with names that start with ``skip``.

    If strict, raise if a folder cannot be listed.
    """
    for at, folders, names in os.walk(folder, onerror=_raise if strict else None):
        folders[:] = [name for name in folders if not name.startswith(skip)]
        yield from (os.path.relpath(os.path.join(at, name), folder) for name in names)


def _raise(error: OSError) -> None:
    raise error
