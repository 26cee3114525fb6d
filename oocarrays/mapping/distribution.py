"""One axis over ranks.

GenBlock.even(10, 4)      │ 0 0 0 │ 1 1 1 │ 2 2 │ 3 3 │
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GenBlock:
    """An axis cut in blocks of any length, one a rank (HPF ``GEN_BLOCK``; Dask's chunk tuples).

    >>> GenBlock.even(10, 4)
    GenBlock(sizes=(3, 3, 2, 2))
    >>> [list(GenBlock.even(3, 4).part(rank)) for rank in range(4)]
    [[0], [1], [2], []]
    """

    sizes: tuple[int, ...]
    """Elements of each rank's block."""

    @classmethod
    def even(cls, extent: int, ranks: int) -> GenBlock:
        """Blocks of as equal a length as can be, the longer ones first."""
        size, longer = divmod(extent, ranks)
        return cls(tuple(size + (rank < longer) for rank in range(ranks)))

    def part(self, rank: int) -> range:
        """The elements that ``rank`` holds."""
        start = sum(self.sizes[:rank])
        return range(start, start + self.sizes[rank])
