"""Recorded accesses of stored arrays, folded at once: one fold for each array and kind of read or write."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import zarr
from zarr.abc.store import Store
from zarr.storage import FsspecStore, LocalStore, StorePath

from oocarrays.errors import OocError
from oocarrays.graphs.tracing.parts import Product
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.advice.access import Access, Dataset, Repeat
from oocarrays.plan.advice.patterns import Fold, Pattern
from oocarrays.plan.advice.trace import Trace
from oocarrays.storage.files.array_file import describe
from oocarrays.storage.files.formats import dimension_names
from oocarrays.storage.files.places import is_remote, location
from oocarrays.storage.stores.joined import at_place, innermost

Kind = tuple[str, bool, str, int | None, bool]
"""Name of the array, whether it is written, by which reader, number of ranks, whether tasks follow the chunks."""


def dataset_of(array: zarr.Array) -> Dataset:
    place, shards = array.store_path, getattr(array, "shards", None)
    store = _in_files(innermost(place.store))
    array = (
        array if store is place.store else at_place(array, StorePath(store, place.path))
    )  # no counted, traced accesses
    return Dataset(
        name=location(array),
        dtype=array.dtype.str,
        stored=_stored(array),
        shards=None if shards is None else tuple(shards),
        dims=dimension_names(array),
    )


def _in_files(store: Store) -> Store:
    """Return a local store as Zarr's own kind, also if fsspec opened it, as it does for Dask."""
    if not isinstance(store, FsspecStore):
        return store
    files: Any = getattr(store.fs, "sync_fs", store.fs)
    return LocalStore(store.path) if "local" in files.protocol else store


def _stored(array: zarr.Array) -> Stored:
    """Return the storage description of an array, also if its elements have no fixed size."""
    try:
        return describe(array).stored
    except OocError:
        itemsize = max(array.dtype.itemsize, 1)
        grid = ChunkGrid.of(tuple(array.shape), tuple(array.chunks))
        return Stored(
            grid=grid, itemsize=itemsize, local=False, codec="other", remote=is_remote(array.store_path.store)
        )


@dataclass
class _One:
    """Fold of the accesses of one array and kind."""

    fold: Fold
    seconds: float = 0.0
    threads: set[Any] = field(default_factory=set)


class Seen:
    """Recorded sections of stored arrays; threads may add to it concurrently."""

    def __init__(self) -> None:
        self.datasets: dict[str, Dataset] = {}
        """Accessed arrays, by name."""
        self.repeats: dict[str, tuple[Repeat, ...]] = {}
        """Repetitions of Dask's reads of each chunk, by array name, where they depend on the chunks."""
        self._kinds: dict[Kind, _One] = {}
        self._names: dict[int, tuple[Any, str]] = {}
        self._lock = threading.Lock()

    def name(self, array: zarr.Array | Dataset) -> str:
        """Return the name of an array; each object is examined once."""
        known = self._names.get(id(array))
        if known is None:
            found = array if isinstance(array, Dataset) else dataset_of(array)
            self.datasets.setdefault(found.name, found)
            self._names[id(array)] = known = (array, found.name)  # held, so that its id stays unique
            if len(self._names) > 2**12:
                self._names = {id(array): known}
        return known[1]

    def fold(self, array: zarr.Array, *, writes: bool = False, by: str = "zarr", cut: bool = False) -> Fold:
        """Return the fold of an array, for one thread that adds many sections."""
        return self._one((self.name(array), writes, by, None, cut and by == "zarr")).fold

    def _one(self, kind: Kind) -> _One:
        if kind not in self._kinds:
            self._kinds[kind] = _One(Fold(len(self.datasets[kind[0]].shape)))
        return self._kinds[kind]

    def add(
        self,
        array: zarr.Array | Dataset,
        taken: Iterable[Product],
        *,
        writes: bool = False,
        by: str = "zarr",
        seconds: float = 0.0,
        thread: Any = None,
        ranks: int | None = None,
        cut: bool = False,
    ) -> None:
        """Add accesses of an array, or of one that is planned; ``cut`` if Dask's tasks follow the array's chunks."""
        with self._lock:
            one = self._one((self.name(array), writes, by, ranks, cut and by == "zarr" and not writes))
            for each in taken:
                one.fold.add_product(each)
            one.seconds += seconds
            if thread is not None:
                one.threads.add(thread)

    def take(self) -> list[tuple[Dataset, Kind, tuple[Pattern, ...], float, list[Any]]]:
        """Return the recorded accesses, in the form that `put` accepts."""
        with self._lock:
            return [
                (self.datasets[kind[0]], kind, one.fold.patterns(), one.seconds, list(one.threads))
                for kind, one in self._kinds.items()
            ]

    def put(self, told: Iterable[tuple[Dataset, Kind, tuple[Pattern, ...], float, list[Any]]], worker: Any) -> None:
        with self._lock:
            for dataset, kind, patterns, seconds, threads in told:
                self.datasets.setdefault(dataset.name, dataset)
                one = self._one(kind)
                one.fold.add_all(patterns)
                one.seconds += seconds
                one.threads |= {(worker, thread) for thread in threads}

    def trace(self, block: str, weight: float = 1.0) -> Trace:
        """Return the trace of a block with all recorded accesses."""
        found = []
        for _, (name, writes, by, ranks, cut), patterns, seconds, threads in self.take():
            how: Any = {"writes": writes, "weight": weight, "ranks": ranks, "by": by, "cut_by_chunks": cut}
            how |= {"seconds": seconds, "threads": len(threads)} if threads else {}
            if patterns:
                repeats = self.repeats.get(name, ()) if cut else ()
                found.append(Access(block=block, dataset=name, patterns=patterns, repeats=repeats, **how))
        used = {access.dataset for access in found}
        return Trace.of([each for each in self.datasets.values() if each.name in used], found)
