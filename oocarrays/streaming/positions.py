"""Where streams stand: one number where all stand at the same place, else of each cell its own; None at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocarrays.errors import InputError, SelectionError
from oocarrays.storage.streams.part import RanksPart

WHENCES = (0, 1, 2)
"""From the beginning, from where a stream stands, from its end: os.SEEK_SET, os.SEEK_CUR, os.SEEK_END."""


def moved(part: RanksPart, offset: Any, whence: int) -> int | np.ndarray | None:
    """Return where streams stand after a seek.

    Raises
    ------
    InputError
        Where the offset is no whole number, nor one for each cell.
    SelectionError
        Where that is before the beginning of a stream.
    """
    if whence not in WHENCES:
        raise InputError(f"whence={whence!r} is none of 0, 1 and 2")
    given = np.asarray(offset)
    if given.dtype.kind not in "iu" or given.shape not in ((), part.shape):
        raise InputError(f"offset={offset!r:.80} is no whole number, nor one for each cell of shape {part.shape}")
    if whence == 2 and given.ndim == 0 and given == 0:
        return None if part.writes else simple(part.ends())
    start = 0 if whence == 0 else part.tell() if whence == 1 else part.ends()
    position = start + given.reshape(-1).astype(np.int64) if given.ndim else start + int(given)
    if np.min(position, initial=0) < 0:
        raise SelectionError(f"seek to byte {np.min(position)} is before the beginning of a stream")
    return position if isinstance(position, int) else simple(position)


def simple(position: np.ndarray) -> int | np.ndarray:
    """One number for the positions of all cells, where they are the same."""
    if len(position) and bool((position == position[0]).all()):
        return int(position[0])
    return position if len(position) else 0
