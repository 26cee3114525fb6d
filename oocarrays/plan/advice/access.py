"""Stored arrays and accesses to them: the elements of a trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from oocarrays.mapping.given import element_type, extents
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.section import Section
from oocarrays.plan.advice.patterns import Pattern

BY = ("zarr", "oocarrays")
"""Names of the library that reads or writes: Zarr itself (as under Dask and xarray) or oocarrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Snapshot of a stored array's metadata."""

    name: str
    """Location: a path or URL."""
    dtype: str
    """Element type, as NumPy's type string."""
    stored: Stored
    """Planner's view of the array: shape, chunks, codec and location."""
    shards: tuple[int, ...] | None = None
    """Shard length along each axis; None for an array without shards."""
    dims: tuple[str | None, ...] | None = None
    """Names of the axes; None without names."""
    planned: bool = field(default=False, metadata={"gained": True})
    """True for an array that did not exist when it was traced, such as one described in words."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.stored.grid.shape

    @property
    def chunks(self) -> tuple[int, ...]:
        return self.stored.shard_chunks or self.stored.grid.chunks

    @property
    def nbytes(self) -> int:
        return self.stored.nbytes


class Repeat(NamedTuple):
    """Number of times Dask's tasks read each chunk: once per combination of blocks, as in a contraction."""

    times: int
    """Number of combinations of other arrays' blocks."""
    axes: tuple[int, ...] = ()
    """Axes of the array itself along which each block adds combinations."""
    of: tuple[str, ...] = ()
    """Names of the other arrays."""

    def blocks(self, shape: tuple[int, ...], chunks: np.ndarray) -> np.ndarray:
        """Return the number of combinations for each chunk shape; `chunks` has one shape per row."""
        found = np.full(len(chunks), self.times, np.int64)
        for axis in self.axes:
            found *= -(-shape[axis] // chunks[:, axis])
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One access of a block to a stored array."""

    block: str
    dataset: str
    patterns: tuple[Pattern, ...]
    """Sections accessed in one run of the block."""
    writes: bool = False
    weight: float = 1.0
    """Number of runs of the block."""
    ranks: int | None = None
    """Number of ranks that read together, so that some may read for all; None for independent tasks."""
    by: str = "zarr"
    """Library that reads or writes: one of `BY`."""
    cut_by_chunks: bool = field(default=False, metadata={"gained": True})
    """True if each task accesses a single chunk, as Dask cuts tasks; other chunks mean other tasks."""
    repeats: tuple[Repeat, ...] = field(default=(), metadata={"gained": True})
    """Repetitions of each section that depend on chunks, one per place where a task reads it; () for none."""
    seconds: float | None = None
    """Measured seconds of all sections together; None without a recorded run."""
    threads: int | None = None
    """Number of threads that made requests, on all workers together; None without a recorded run."""

    @property
    def tasks(self) -> int:
        return sum(pattern.count for pattern in self.patterns)

    @property
    def elements(self) -> int:
        return sum(pattern.elements for pattern in self.patterns)

    @property
    def largest(self) -> tuple[int, ...]:
        return tuple(map(max, zip(*(pattern.largest for pattern in self.patterns), strict=True)))

    @property
    def by_ranks(self) -> bool:
        """Whether ranks of this package access the array, not Zarr: byte ranges would do, and some may read for all."""
        return self.by != "zarr"

    @property
    def plain(self) -> Access:
        """The access without names, weight and measurements: equal ones cost the same."""
        return replace(self.kind, block="", dataset="")

    def often(self, shape: tuple[int, ...], chunks: np.ndarray) -> int | np.ndarray:
        """Return the number of times each section is accessed, for each chunk shape."""
        return sum(each.blocks(shape, chunks) for each in self.repeats) if self.repeats else 1

    def sections(self) -> Iterator[Section]:
        for pattern in self.patterns:
            yield from pattern.sections()

    @property
    def kind(self) -> Access:
        """Key for merging accesses: every field except weight, seconds and threads."""
        return replace(self, weight=1.0, seconds=None, threads=None)


def planned_dataset(name: str, *, shape: Any, dtype: Any, chunks: Any = None) -> Dataset:
    """Return a dataset for an array that does not exist yet, uncoded and in local files."""
    extent, kind = extents(shape), element_type(dtype)
    lengths = extents(chunks, "chunks") if chunks is not None else tuple(max(n, 1) for n in extent)
    stored = Stored(grid=ChunkGrid.of(extent, lengths), itemsize=kind.itemsize, local=True)
    return Dataset(name=name, dtype=kind.str, stored=stored, planned=True)
