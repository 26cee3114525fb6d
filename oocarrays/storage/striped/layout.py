"""Arithmetic of block and chunk placement.

    file      block  0 1 2 3 4 5 6 7 …            store     chunk (i, j)   0 1 2 3
              disk   0 1 2 0 1 2 0 1 …                                     1 2 3 0
                                                                           2 3 0 1

Block *b* of a striped file is on disk *b* mod D (Wang and Leiss, section 3: disk interleaving). Chunks of an array
follow each other over the disks along the last axis. Each row of chunks begins one disk after the previous row, so that
neighbours along any axis are on different disks. The disk of a chunk depends on its key alone: an array that grows
moves no chunks.

The cycle of a store lists the disk of each turn. A disk that joins takes every (D + 1)-th turn, so that only its own
chunks move.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from oocarrays.storage.local.fs import PARTIAL, PARTIAL_END

INDEX = re.compile(r"(?:^|/)(?:c[./])?(\d+(?:[./]\d+)*)$")
"""End of chunk keys."""


def turn_of(key: str) -> int | None:
    """Return the turn of a chunk: the sum of its index; None for other keys."""
    key = PARTIAL.sub("", key) if key.endswith(PARTIAL_END) else key
    found = INDEX.search(key)
    if found is None:
        return 0 if key == "c" or key.endswith("/c") else None
    return sum(map(int, found[1].replace(".", "/").split("/")))


def joined_by(cycle: Sequence[int], disk: int) -> tuple[int, ...]:
    """Return the cycle with one more disk that has as many turns as the others; no other disk gains turns."""
    disks = len(set(cycle)) + 1
    turns = _longer(cycle, disks)
    left = Counter(turns)
    for start in range(0, len(turns) - len(turns) % disks, disks):
        window = range(start, start + disks)
        most = max(window, key=lambda turn: (left[turns[turn]], turn))
        left[turns[most]] -= 1
        turns[most] = disk
    return tuple(turns)


def _longer(cycle: Sequence[int], disks: int) -> list[int]:
    """Return the cycle repeated so that ``disks`` disks can have equal numbers of turns."""
    length, most = math.lcm(len(cycle), disks), 5040  # a multiple of any number of disks up to ten
    return [*cycle] * (length // len(cycle) if length <= most else max(most // len(cycle), 1))


def left_by(cycle: Sequence[int], disk: int) -> tuple[int, ...]:
    """Return the cycle without a disk; its turns go to the disks with the fewest, and no others move."""
    turns = _longer(cycle, len(set(cycle)) - 1)
    counts = Counter(each for each in turns if each != disk)
    for turn, each in enumerate(turns):
        if each == disk:
            before, after = turns[turn - 1], turns[(turn + 1) % len(turns)]
            turns[turn] = min(counts, key=lambda other: (counts[other], other in (before, after), other))
            counts[turns[turn]] += 1
    return tuple(turns)


def part_bytes(length: int, block: int, disks: int, number: int) -> int:
    """Return the number of a file's bytes on one disk."""
    stripes, rest = divmod(length, block * disks)
    return stripes * block + min(max(rest - number * block, 0), block)


def length_of(parts: Sequence[int], block: int) -> int:
    """Return the length of a file from the bytes on its disks: the end of the last byte."""
    disks = len(parts)
    return max(
        ((nbytes - 1) // block * disks + number) * block + (nbytes - 1) % block + 1 if nbytes else 0
        for number, nbytes in enumerate(parts)
    )


def runs(
    offset: int, nbytes: int, block: int, disks: int, number: int, most: int
) -> Iterator[tuple[int, list[tuple[int, int]]]]:
    """Yield a disk's requests for a range: the offset on the disk, and begin and end in the range of each block."""
    end = offset + nbytes
    first, last = offset // block, (end - 1) // block if nbytes else -1
    each = first + (number - first) % disks
    while each <= last:
        several = range(each, min(each + most * disks, last + 1), disks)
        begin = max(each * block, offset) - each * block + each // disks * block
        if disks == 1:
            yield begin, [(max(each * block, offset) - offset, min((several[-1] + 1) * block, end) - offset)]
        else:
            yield begin, [(max(b * block, offset) - offset, min((b + 1) * block, end) - offset) for b in several]
        each = several[-1] + disks
