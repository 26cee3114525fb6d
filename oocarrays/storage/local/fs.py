"""Files and folders: their names, opening, reading, writing and removal, with one translation of system errors.

    zarr.json                                        document of format 3
    .zattrs  .zarray  .zgroup                        documents of format 2
    .oocarrays/draft.zarr.json                       draft of a document, until the array is finished
    c/0/3.0123456789abcdef0123456789abcdef.partial   file that is being written
    .oocarrays/  .oocarrays.source  .oocarrays.made  journal, and notes of a finished array

    read_into, write_at, write_all    loops over one system call, which may transfer less than requested
    translated, failure               OSError ─► StoreFailure, DiskFullError: "cannot write a.zarr: Permission denied"

A FIFO, socket, device or folder in the place of a file is refused without waiting for it. Folders of runs are readable
by their owner only: a journal describes a source, and scratch holds copies of it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from oocarrays.errors import DiskFullError, StoreFailure

METADATA, ARRAY_2, GROUP_2, ATTRIBUTES_2 = "zarr.json", ".zarray", ".zgroup", ".zattrs"
"""Document of format 3; documents of format 2."""
DOCUMENTS = (ATTRIBUTES_2, ARRAY_2, GROUP_2, METADATA)
"""Metadata documents of formats 2 and 3, in writing order: the first holds the mark of format 2."""
SAYING = (*DOCUMENTS, ".zmetadata")
"""All documents, including consolidated metadata."""
ATTRIBUTES = (METADATA, ATTRIBUTES_2)
"""Documents with attributes, in format 3 and in format 2."""
NODES = (METADATA, ARRAY_2, GROUP_2)
"""Documents that make a folder an array or a group."""
DESCRIPTOR = "oocarrays"
"""Attribute that holds the descriptor."""
MARK = "oocarrays:unfinished"
"""Attribute of an unfinished target; its value is the id of the run."""
OURS = ".oocarrays"
"""Prefix of names that do not belong to an array."""
SHARED = (".oocarrays.source", ".oocarrays.made")
"""Keys of a finished array's source and request: readable by every user with read access to the array."""
DRAFT = "draft."
"""Prefix of the names of drafts."""
PARTIAL_END = ".partial"
"""Suffix of the names of partial files: ours, and those of Zarr's `LocalStore`."""
PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")
"""Pattern of the complete suffix."""


def partial_name(path: str, mark: str = "") -> str:
    """Return the name of a file while it is written; without a mark, it is unique and names the writing process."""
    return f"{path}.{mark or f'{_machine()}{os.getpid():08x}{os.urandom(6).hex()}'}{PARTIAL_END}"


def mark_of_plan(run: str, beginning: str, number: int) -> str:
    """Return the mark in the names of unfinished chunks, for one pass of one plan of a run."""
    return hashlib.sha256(f"{run} {beginning} {number}".encode()).hexdigest()[:32]


@cache
def _machine() -> str:
    """Return 12 digits for the processes of this machine, or container, since it has started; else random ones."""
    with suppress(OSError):
        boot, numbers = Path("/proc/sys/kernel/random/boot_id").read_bytes(), os.stat("/proc/self/ns/pid").st_ino
        return hashlib.sha256(b"%s %d" % (boot, numbers)).hexdigest()[:12]
    return os.urandom(6).hex()


def is_abandoned(name: str) -> bool:
    """Return whether a partial file was written by a process of this machine that has died."""
    found = PARTIAL.search(name)
    if found is None or found[0][1:13] != _machine():
        return False
    try:
        os.kill(int(found[0][13:21], 16), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # of another user, or no number of a process
        return False
    return False


def array_document(zarr_format: int) -> str:
    """Return the name of the document that makes a folder an array."""
    return ARRAY_2 if zarr_format == 2 else METADATA


def is_document(key: str) -> bool:
    return key.rpartition("/")[2] in SAYING


def draft_key(key: str) -> str:
    path, slash, name = key.rpartition("/")
    return f"{path}{slash}{OURS}/{DRAFT}{name.removeprefix('.')}"


def is_draft(key: str) -> bool:
    return f"{OURS}/{DRAFT}" in key


def names_below(keys: Iterable[str], prefix: str) -> Iterator[str]:
    """Yield each name directly below a prefix once."""
    before = f"{prefix.rstrip('/')}/" if prefix else ""
    below = (key.removeprefix(before).partition("/")[0] for key in keys if key.startswith(before))
    yield from dict.fromkeys(below)


def chunk_key(index: Iterable[int]) -> str:
    return "/".join(("c", *map(str, index)))


def chunk_index(key: str, counts: Sequence[int]) -> tuple[int, ...] | None:
    """Return the index of a chunk from its default key; None if an array of ``counts`` chunks has no such one."""
    word, *numbers = key.split("/")
    if word != "c" or len(numbers) != len(counts) or not all(map(str.isdecimal, numbers)):
        return None
    index = tuple(map(int, numbers))
    return index if all(i < n for i, n in zip(index, counts, strict=True)) else None


def index_of_chunk(key: str, array: Any) -> tuple[int, ...] | None:
    """Return the index of a chunk, or shard, by its key below a Zarr array; None for a key of anything else."""
    names = [name for name in key.replace(".", "/").split("/") if name != "c"][: array.ndim]
    if len(names) != array.ndim or not all(name.isascii() and name.isdigit() for name in names):
        return None
    index = tuple(map(int, names))
    return index if array.metadata.encode_chunk_key(index) == key else None


def chunk_keys(counts: Sequence[int]) -> Iterator[str]:
    return map(chunk_key, product(*map(range, counts)))


FULL = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full device, or of an exhausted user quota."""
ABSENT = (FileNotFoundError, NotADirectoryError)
"""Errors of a path that does not exist."""
MOST_BYTES = 2**30
"""Maximum bytes of one system call; the kernel stops at 2 GiB."""


def failure(doing: str, where: object, error: OSError, *, full: bool = False) -> DiskFullError | StoreFailure:
    """Return the error of this package for an error of the system, with its full text, or its reason alone."""
    if error.errno in FULL and doing == "write":
        return DiskFullError(f"no space left on the device for {where}: {error.strerror}")
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
    return open_sized(path, flags, mode)[0]


def open_sized(path: str, flags: int = os.O_RDONLY, mode: int = 0o666) -> tuple[int, int]:
    """Open a regular file; return it with its size in bytes."""
    try:
        file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        if error.errno not in (errno.ENXIO, errno.EISDIR):  # a socket; a FIFO without a reader; a folder
            raise
        raise _refused(path, os.stat(path).st_mode) from error
    status = os.fstat(file)
    if stat.S_ISREG(status.st_mode):
        return file, status.st_size
    os.close(file)
    raise _refused(path, status.st_mode)


def check_regular(path: str) -> None:
    """Raise if a path that another library opens is neither a file nor a folder nor absent."""
    try:
        kind = os.stat(path).st_mode
    except OSError:
        return
    if not stat.S_ISREG(kind) and not stat.S_ISDIR(kind):
        raise StoreFailure(f"cannot open {path}: {_refused(path, kind).strerror}")


def _refused(path: str, kind: int) -> OSError:
    names = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFDIR: "a folder"}
    name = names.get(stat.S_IFMT(kind), "a device" if stat.S_ISCHR(kind) or stat.S_ISBLK(kind) else "a special file")
    return OSError(errno.EINVAL, f"it is {name}, not a regular file", path)


def read_file(path: str) -> bytes | None:
    """Read a small file; return None if it does not exist."""
    try:
        with open(path, "rb", opener=open_regular) as file:
            return file.read()
    except ABSENT:
        return None


class Version(NamedTuple):
    """Version of a stored file or object, which a change of it changes."""

    key: str
    """Its key below an array, a folder or a store."""
    size: int
    """Its length in bytes."""
    tag: Any
    """Its modification time, or its ETag; empty if the store reports none."""
    inode: int = 0
    """Its inode; 0 if it is not compared."""


def status_of(path: str) -> os.stat_result | None:
    """Return the status of a path; None if it does not exist."""
    try:
        return os.stat(path)
    except ABSENT:
        return None
    except OSError as error:
        raise failure("look at", path, error) from error


def existing(path: str) -> str:
    """Return a path, or its nearest parent that exists."""
    path = os.path.abspath(path)
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def size_of(path: str) -> int | None:
    """Return the size of a file in bytes; None if it does not exist."""
    status = status_of(path)
    return None if status is None else status.st_size


def remove_file(path: str) -> None:
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


def chunk_files(folder: str, wanted: Callable[[str], object], below: str = "") -> Iterator[tuple[str, str]]:
    """Yield the key and the path of each file in the folder of an array, following links, but for partial files.

    ``wanted`` selects files and folders by their names.
    """
    path = f"{folder}/{below}"
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if not wanted(name) or (name.endswith(PARTIAL_END) and PARTIAL.search(name)):
                    continue
                if entry.is_dir():
                    yield from chunk_files(folder, wanted, f"{below}{name}/")
                elif entry.is_file() or os.path.exists(entry.path):  # a FIFO is refused when it is read
                    yield f"{below}{name}", entry.path
    except OSError as error:
        if not isinstance(error, ABSENT) or error.filename != path:  # a link may lead through a file
            raise failure("look at", error.filename or path, error) from error


def files_below(folder: str, *, skip: str = "/", strict: bool = False) -> Iterator[str]:
    """Yield the relative paths of all files in a tree, except in folders with names that start with ``skip``.

    If strict, raise if a folder cannot be listed.
    """
    for at, folders, names in os.walk(folder, onerror=_raise if strict else None):
        folders[:] = [name for name in folders if not name.startswith(skip)]
        yield from (os.path.relpath(os.path.join(at, name), folder) for name in names)


def _raise(error: OSError) -> None:
    raise error
