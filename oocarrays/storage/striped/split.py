"""Values larger than a block: cut in blocks that lie on the disks in turn, replaced at once.

    c/0/3.striped                      the head: generation, bytes, block, disks        on the disk of the chunk
    c/0/3.<generation>.striped         the blocks of one disk, one behind the other     on each

The blocks of a new generation are written first, and then the head: whoever dies in between leaves blocks that nobody
asks for. A value that is not split is under its own key, and counts as long as it is there: so one kind takes the place
of the other at once, too.
"""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import asdict, dataclass

from zarr.abc.store import ByteRequest, OffsetByteRequest, RangeByteRequest, SuffixByteRequest

from oocarrays.errors import CorruptChunkError
from oocarrays.storage.striped.layout import runs

HEAD = ".striped"
"""How the names of heads end."""
BLOCKS = re.compile(r"\.[0-9a-f]{32}\.striped$")
"""How those of blocks do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What says of a value where its blocks are."""

    generation: str
    """In the names of its blocks."""
    length: int
    """Bytes."""
    block: int
    """Bytes of a block."""
    disks: tuple[int, ...]
    """The disk of each block in turn."""

    @classmethod
    def new(cls, length: int, block: int, disks: tuple[int, ...]) -> Head:
        """Return the head of a new value: no more disks than it has blocks."""
        return cls(generation=uuid.uuid4().hex, length=length, block=block, disks=disks[: max(-(-length // block), 1)])

    def to_json(self) -> bytes:
        """Return it as it is stored."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, text: bytes, key: str) -> Head:
        """Read it.

        Raises
        ------
        CorruptChunkError
            Where it is none.
        """
        try:
            said = json.loads(text)
            return cls(**{**said, "disks": tuple(said["disks"])})
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptChunkError(f"{key}{HEAD} is damaged: it is no head of a split chunk") from error

    def key(self, key: str) -> str:
        """Return the key of its blocks on each disk."""
        return f"{key}.{self.generation}{HEAD}"

    def asked(self, byte_range: ByteRequest | None) -> tuple[int, int]:
        """Where what is asked for begins, and how long it is.

        >>> head = Head(generation="", length=10, block=4, disks=(0, 1))
        >>> head.asked(None), head.asked(SuffixByteRequest(3)), head.asked(RangeByteRequest(8, 20))
        ((0, 10), (7, 3), (8, 2))
        """
        if isinstance(byte_range, SuffixByteRequest):
            start = max(self.length - byte_range.suffix, 0)
            return start, self.length - start
        if isinstance(byte_range, OffsetByteRequest):
            return min(byte_range.offset, self.length), max(self.length - byte_range.offset, 0)
        if isinstance(byte_range, RangeByteRequest):
            return byte_range.start, max(min(byte_range.end, self.length) - byte_range.start, 0)
        return 0, self.length

    def pieces(self, start: int, nbytes: int) -> list[tuple[int, int, int, list[tuple[int, int]]]]:
        """Return what each disk has of a range: its turn, where that begins and ends there, and where blocks go.

        >>> Head(generation="", length=20, block=4, disks=(5, 7)).pieces(2, 11)
        [(0, 2, 8, [(0, 2), (6, 10)]), (1, 0, 5, [(2, 6), (10, 11)])]
        """
        found = []
        for turn in range(len(self.disks)):
            for begin, cuts in runs(start, nbytes, self.block, len(self.disks), turn, 2**40):
                found.append((turn, begin, begin + sum(stop - low for low, stop in cuts), cuts))
        return found
