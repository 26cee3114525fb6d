"""Streams on a device that is full from one call on: ``python -m tests.streams.full SHARED EVERY KIND …``.

It is run as `tests.full` is. Each line of its output is a try: the mode, whether it was to sync that failed, the number
of the call, and how it went.
"""

from __future__ import annotations

import ctypes
import errno
import json
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import oocarrays as ooc
from oocarrays.errors import DiskFullError, NotFoundError, OocError
from tests.flat import flat

CELLS = 12
BLOCKS = {"cb_block": 16, "ib_block": 16, "ib_pointers": 2, "superblock": 64}
KINDS = ("NB", "CB", "IB")
Lists = list[list[int]]


def write_once(s: Any, kind: str, turn: int, lists: Lists) -> None:
    """Write once in a mode, or in all up to that."""
    values = np.arange(CELLS) + 100 * turn
    if kind == "NB" or turn == 0:
        s.write(values)
    elif kind == "CB" or turn == 1:
        s.write(np.repeat(values, 2)[::2])
    else:
        s.write(values[::2], at=np.arange(0, CELLS, 2))
    for cell in range(0, CELLS, 2 if s.mode == "IB" else 1):
        lists[cell].append(cell + 100 * turn)


def program(place: Path, mode: str, kind: str, lists: Lists, flushed: Lists) -> None:
    """Write and flush in turn, and keep what was flushed."""
    shape = {"shape": CELLS, "dtype": "i8"} if mode == "w" else {}
    with flat(ooc.streams.open_streams, place, mode, ranks=2, blocks=BLOCKS, **shape) as s:
        for turn in range(len(lists[0]), len(lists[0]) + 6):
            write_once(s, kind, turn, lists)
            if turn % 2:
                s.flush()
                flushed[:] = [list(each) for each in lists]


def between(place: Path, lists: Lists, flushed: Lists) -> str:
    """What is there, beside what was flushed and what was written; all of that is kept as written."""
    try:
        with ooc.streams.open_streams(place) as s:
            found = s.to_ragged().to_list()
    except NotFoundError:
        found = [[] for _ in range(CELLS)]
    for cell, (least, most) in enumerate(zip(flushed, lists, strict=True)):
        if found[cell][: len(least)] != least or most[: len(found[cell])] != found[cell]:
            return f"WRONG: cell {cell} has {found[cell]}; {least} was flushed, and {most} written"
    lists[:], flushed[:] = found, [list(each) for each in found]
    return ""


def told(error: BaseException) -> str:
    text = str(error)
    return "" if isinstance(error, DiskFullError) and "\n" not in text else f"{type(error).__name__}: {text}"


def one(full: Any, place: Path, kind: str, number: int, late: bool) -> str:
    """Fail at a call, look, fail at a call of going on, look, and go on."""
    how, lists, flushed = [], [[] for _ in range(CELLS)], [[] for _ in range(CELLS)]
    for first in (number, number // 2):
        mode = "a" if (place / "zarr.json").exists() else "w"
        full.full_from(bytes(place.parent), first, (errno.EDQUOT, errno.ENOSPC)[number % 2], late)
        try:
            program(place, mode, kind, lists, flushed)
        except Exception as error:  # noqa: BLE001
            how.append(told(error))
        full.full_from(b"", -1, 0, late)
        how.append(between(place, lists, flushed))
    try:
        mode = "a" if (place / "zarr.json").exists() else "w"
        program(place, mode, kind, lists, flushed)
        flushed = [list(each) for each in lists]
        how.append(between(place, lists, flushed))
    except OocError as error:
        how.append(f"not gone on with: {told(error) or error}")
    left = [each.name for each in place.rglob("*") if each.name.endswith(".partial") or "oocarrays" in each.name]
    return "; ".join(each for each in [*how, f"left {left[:3]}" if left else ""] if each)


def tries(full: Any, kind: str, disk: Path, every: int) -> Iterator[tuple[str, bool, int, str]]:
    """Fail at each call, or at some."""
    for late in (False, True):
        full.full_from(bytes(disk), -1, 0, late)
        program(disk / f"{late}.zarr", "w", kind, [[] for _ in range(CELLS)], [])
        had = full.full_from(b"", -1, 0, late)
        for number in range(0, had, every):
            yield kind, late, number, one(full, disk / f"{late}{number}.zarr", kind, number, late)


def main(shared: str, every: int, *kinds: str) -> None:
    full = ctypes.CDLL(shared)
    full.full_from.argtypes, full.full_from.restype = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int, ctypes.c_int], int
    warnings.simplefilter("ignore")
    for kind in kinds or KINDS:
        with tempfile.TemporaryDirectory() as made:
            for each in tries(full, kind, Path(made), every):
                print(json.dumps(each), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
