"""Opening striped files, as Python opens files: modes, buffers, text, and what is there already."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import Any

from oocarrays.errors import InputError
from oocarrays.mapping.given import whole
from oocarrays.storage.striped.disks import disks_of
from oocarrays.storage.striped.file import BUFFERS, StripedFile
from oocarrays.storage.striped.table import Table


def open_striped(
    name: str,
    mode: str = "r",
    *,
    disks: Sequence[Any],
    block: int | None = None,
    buffers: int = BUFFERS,
    buffering: int = 0,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """Open a file whose blocks lie on several disks in turn, so that it is read and written at the sum of their speeds.

    Each disk has a part of it under its name, and beside it a small descriptor, ``name.striped``: so disks may be given
    in any order, and one that is missing, empty, an old copy or another file's is named in one line.

    Parameters
    ----------
    name : str
        Of the file on each disk.
    mode : str
        As of ``open``: ``"r"``, ``"r+"``, ``"w"``, ``"x"``, ``"a"``, with ``"+"``, ``"b"`` or ``"t"``; without ``"t"``
        what is read and written are bytes.
    disks : sequence of path
        Folders, one a disk.
    block : int, optional
        Bytes of a block, where the file is made: by default 1 MiB.
    buffers : int
        Requests of each disk that are under way at one time, at most.
    buffering : int
        Bytes of a buffer in this process as of ``open``, 1 for its default; 0 for none.
    encoding, errors, newline
        Of text.

    Returns
    -------
    StripedFile
        An `io.RawIOBase` with ``pread``, ``pwrite``, ``readstart`` and ``readend`` beside; the buffered and text layers
        of `io` over it, where they are asked for.

    Raises
    ------
    InputError
        One of its kinds: `NotFoundError`, `TargetError` where ``"x"`` finds one, `DescriptorError` for wrong disks.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     disks = [os.path.join(folder, each) for each in "abc"]
    ...     for disk in disks: os.mkdir(disk)
    ...     with open_striped("field", "w+", disks=disks, block=4) as file:
    ...         file.write(b"0123456789abcdef"), file.seek(3), file.read(6), file.pread(2, 14)
    ...     with open(os.path.join(disks[1], "field"), "rb") as part: part.read()
    (16, 3, b'345678', b'ef')
    b'4567'
    """
    _check_name(name)
    kind, text = _mode(mode)
    block = None if block is None else whole(block, "block", 1)
    buffers, there = whole(buffers, "buffers", 1), disks_of(disks)
    table = Table(
        name, there, block, write=kind != "r", make=kind[0] in "wxa", new=kind[0] == "x", blank=kind[0] == "w"
    )
    raw = StripedFile(table, kind, buffers)
    try:
        if kind[0] == "w":
            raw.truncate(0)
        if kind[0] == "a":
            raw.seek(0, os.SEEK_END)
        return _layered(raw, kind, text, buffering, encoding=encoding, errors=errors, newline=newline)
    except BaseException:
        raw.close()
        raise


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name or "/" in name or "\0" in name or name in (".", ".."):
        raise InputError(f"name={name!r} is no name of a file: the folders are given as disks=")


def _mode(mode: Any) -> tuple[str, bool]:
    """Return a mode without what it says of text, and whether it says so."""
    letters = "".join(sorted(set(mode))) if isinstance(mode, str) else ""
    kind = [letter for letter in "rwxa" if letter in letters]
    if len(kind) != 1 or len(letters) != len(mode) or set(letters) - set("rwxa+bt") or {"b", "t"} <= set(letters):
        raise InputError(f"mode={mode!r}: it takes 'r', 'w', 'x' or 'a', with '+', and 'b' or 't'")
    return kind[0] + "+" * ("+" in letters), "t" in letters


def _layered(raw: StripedFile, kind: str, text: bool, buffering: int, **how: Any) -> Any:
    """Return the layers of `io` over it that are asked for."""
    buffering = whole(buffering, "buffering", -1)
    if not (buffering or text):
        if any(value is not None for value in how.values()):
            raise InputError("encoding=, errors= and newline= are of text: give mode 'rt' or 'wt'")
        return raw
    size = buffering if buffering > 1 else max(io.DEFAULT_BUFFER_SIZE, min(raw.block, 2**20))
    layer: Any = io.BufferedReader if kind == "r" else io.BufferedRandom if "+" in kind else io.BufferedWriter
    return io.TextIOWrapper(layer(raw, size), **how) if text else layer(raw, size)
