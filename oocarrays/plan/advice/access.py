"""Stored arrays and how a block takes them: what a trace is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from oocarrays.mapping.given import element_type, extents
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.section import Section
from oocarrays.plan.advice.patterns import Pattern

BY = ("zarr", "oocarrays")
"""Who reads or writes: Zarr for itself, as for Dask and xarray, or we."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A stored array, as it was when it was looked at."""

    name: str
    """Where it is: a path or URL."""
    dtype: str
    """The type of its elements."""
    stored: Stored
    """What a planner knows of it: shape, chunks, codec, and where it is."""
    shards: tuple[int, ...] | None = None
    """Length of its shards in each axis, where its chunks lie in shards."""
    dims: tuple[str | None, ...] | None = None
    """Names of its axes, where they have names."""
    planned: bool = field(default=False, metadata={"gained": True})
    """Whether it was not there yet when it was traced, as what words tell of."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis, in elements."""
        return self.stored.grid.shape

    @property
    def chunks(self) -> tuple[int, ...]:
        """Chunk length in each axis, in elements."""
        return self.stored.shard_chunks or self.stored.grid.chunks

    @property
    def nbytes(self) -> int:
        return self.stored.nbytes

    @property
    def known_by(self) -> tuple[Any, ...]:
        """The facts that patterns of it depend on: where they are others, the array has changed."""
        return self.shape, self.dtype


class Repeat(NamedTuple):
    """Return how often Dask's tasks read each chunk: once for each combination of blocks, as in a contraction."""

    times: int
    """Combinations of blocks of other arrays."""
    axes: tuple[int, ...] = ()
    """Axes of the array itself whose blocks it meets."""
    of: tuple[str, ...] = ()
    """Names of the other arrays."""

    def blocks(self, shape: tuple[int, ...], chunks: np.ndarray) -> np.ndarray:
        """Count the combinations in each of some chunk shapes, a row each."""
        found = np.full(len(chunks), self.times, np.int64)
        for axis in self.axes:
            found *= -(-shape[axis] // chunks[:, axis])
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One way in which a block reads or writes a stored array."""

    block: str
    """Name of the block."""
    dataset: str
    """Name of the array."""
    patterns: tuple[Pattern, ...]
    """Sections that are taken in one run of the block."""
    writes: bool = False
    """Whether they are written, not read."""
    weight: float = 1.0
    """Times that the block is run."""
    ranks: int | None = None
    """Ranks that ask at one time, so that some may read for all; None for tasks that each read for themselves."""
    by: str = "zarr"
    """Who reads or writes: one of `BY`."""
    cut_by_chunks: bool = field(default=False, metadata={"gained": True})
    """Whether each task takes what there is in one chunk, as Dask cuts them: with other chunks there are others."""
    repeats: tuple[Repeat, ...] = field(default=(), metadata={"gained": True})
    """Repetitions of each section that depend on chunks, one for each place in which a task reads it; () for none."""
    seconds: float | None = None
    """Seconds that all its sections took together, where a run was recorded."""
    threads: int | None = None
    """Threads that asked for any, on all workers together, where a run was recorded."""

    @property
    def tasks(self) -> int:
        """Number of sections that are taken in one run."""
        return sum(pattern.count for pattern in self.patterns)

    @property
    def elements(self) -> int:
        """Elements that are taken in one run."""
        return sum(pattern.elements for pattern in self.patterns)

    @property
    def largest(self) -> tuple[int, ...]:
        """Elements of a section along each axis, at most."""
        return tuple(map(max, zip(*(pattern.largest for pattern in self.patterns), strict=True)))

    def sections(self) -> Iterator[Section]:
        """Yield every section that is taken in one run, each as often as it is."""
        for pattern in self.patterns:
            yield from pattern.sections()

    @property
    def kind(self) -> tuple[Any, ...]:
        """All but how often, and how long it took."""
        return (
            self.block,
            self.dataset,
            self.writes,
            self.ranks,
            self.by,
            self.cut_by_chunks,
            self.repeats,
            self.patterns,
        )


def planned_dataset(name: str, *, shape: Any, dtype: Any, chunks: Any = None) -> Dataset:
    """Return an array that is not there yet, uncoded and in local files."""
    extent, kind = extents(shape), element_type(dtype)
    lengths = extents(chunks, "chunks") if chunks is not None else tuple(max(n, 1) for n in extent)
    stored = Stored(grid=ChunkGrid.of(extent, lengths), itemsize=kind.itemsize, local=True)
    return Dataset(name=name, dtype=kind.str, stored=stored, planned=True)
