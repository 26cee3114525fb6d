"""Modes: how the cells of an array write their streams, found by looking at each call.

    NB  no buffering             all cells, b bytes each, contiguous      ──► a row of the array, as it is in memory
    CB  collective buffering     all cells, the same number of bytes      ──► buffers of all cells, full together
    IB  independent buffering    some cells, each its own number of bytes ──► a buffer of each cell, and superblocks

Tests are those of section 4.2 and 5.2 of Moore, Hatcher and Quinn, in their order. A file goes from NB to CB to IB as
it is written, and never back: what is written once in IB is followed by IB.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Mode = Literal["NB", "CB", "IB"]
MODES: tuple[Mode, ...] = ("NB", "CB", "IB")
"""From the fastest to the most general."""


class ModeAnswer(NamedTuple):
    """The answer of one rank to the tests of a call: what the ranks tell each other."""

    mode: Mode
    """The fastest mode that its own cells allow."""
    nbytes: int
    """Bytes of each of its cells; -1 where they differ."""
    everywhere: bool
    """Whether all of its cells take part."""


def write_mode(current: Mode, nbytes: int, everywhere: bool, contiguous: bool, block: int) -> Mode:
    """Find the mode of a write at the end of all streams.

    Examples
    --------
    >>> write_mode("NB", 8, True, True, 0), write_mode("NB", 4, True, True, 8), write_mode("CB", 8, False, True, 8)
    ('NB', 'CB', 'IB')
    """
    if current == "IB" or not everywhere or nbytes < 0:
        return "IB"
    if current == "CB" or not contiguous or (block and nbytes != block):
        return "CB"
    return "NB"


def read_mode(offset: int, nbytes: int, block: int, nb_end: int, cb_end: int) -> Mode:
    """Find the mode of a read of the same bytes of all streams.

    Examples
    --------
    >>> [read_mode(offset, 8, 8, 64, 96) for offset in (0, 4, 64, 96, -1)]
    ['NB', 'CB', 'CB', 'IB', 'IB']
    """
    if offset < 0 or nbytes < 0 or offset + nbytes > cb_end:
        return "IB"
    if block and offset + nbytes <= nb_end and offset % block == 0 and nbytes % block == 0:
        return "NB"
    return "CB"


def agreed(found: Iterable[ModeAnswer]) -> ModeAnswer:
    """Reduce what the ranks found to what all of them do.

    >>> agreed([ModeAnswer("NB", 8, True), ModeAnswer("IB", -1, False)])
    ModeAnswer(mode='IB', nbytes=-1, everywhere=False)
    >>> agreed([ModeAnswer("NB", 8, True), ModeAnswer("NB", 16, True)]).mode
    'IB'
    """
    each = list(found)
    mode = MODES[max((MODES.index(one.mode) for one in each), default=0)]
    sizes = {one.nbytes for one in each}
    nbytes = sizes.pop() if len(sizes) == 1 else -1
    everywhere = all(one.everywhere for one in each)
    return ModeAnswer(mode if nbytes >= 0 and everywhere else "IB", nbytes, everywhere)
