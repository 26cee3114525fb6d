"""Opening files of an array: a FIFO, socket, device or folder in the place of one is refused, and never waited for."""

from __future__ import annotations

import errno
import os
import stat

from oocarrays.errors import StoreFailure

KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}
"""Kinds of files that hold no bytes of an array."""


def open_regular(path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file; also an ``opener`` of ``open``."""
    try:
        file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EISDIR):  # a socket; a FIFO that nobody reads; a folder
            raise
        raise _refused(path, os.stat(path).st_mode) from error
    kind = os.fstat(file).st_mode
    if stat.S_ISREG(kind):
        return file
    os.close(file)
    raise _refused(path, kind)


def check_regular(path: str) -> None:
    """Check a file that another library opens, which sees itself whether it exists, or is a folder."""
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise StoreFailure(f"cannot open {path}: {_refused(path, kind).strerror}")


def _refused(path: str, kind: int) -> OSError:
    name = KINDS.get(stat.S_IFMT(kind), "a special file")
    return OSError(errno.EINVAL, f"it is {name}, not a regular file", path)
