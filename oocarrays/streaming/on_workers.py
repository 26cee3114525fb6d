"""Streams with ranks on the workers of a cluster: input and output are arrays of one block a rank.

    blocks ──► prepare (each rank, on its worker) ──► agree on a mode (here) ──► perform (each rank)

A rank's buffers stay on its worker between calls, as each node has its own buffers in the paper. If a worker is lost,
its unflushed data are lost too, and the streams raise an error.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from oocarrays.errors import InputError, RunError, SelectionError, in_number
from oocarrays.graphs.cluster.placement import workers_of
from oocarrays.mapping.given import whole
from oocarrays.plan.streams.calls import MODES, Mode, of_cells
from oocarrays.plan.streams.meta import Meta, WriterFacts
from oocarrays.storage.streams.independent import Linked
from oocarrays.storage.streams.part import RanksPart
from oocarrays.storage.streams.stream_file import StreamFile
from oocarrays.streaming.given import CellValues
from oocarrays.streaming.lazy import dask_ragged
from oocarrays.streaming.opened import OpenFile, OpenStreams, close_when_dropped
from oocarrays.streaming.ragged import DaskRagged, as_items
from oocarrays.streaming.streams import Streams

if TYPE_CHECKING:
    import dask.array as da
    from distributed import Client, Future


class WorkerRanks:
    """Ranks of one file, each on its worker, where ``make`` creates it by its number."""

    def __init__(
        self, client: Client, addresses: list[str], file: StreamFile, budget: int, make: Callable[[int], Streams]
    ) -> None:
        self.client, self.addresses = client, addresses
        self.name = uuid.uuid4().hex
        self._file, self._budget = file, budget
        client.gather(self._on_each(_create, [(make,)] * len(addresses)))

    def start(self, act: Callable[..., Any], given: Sequence[tuple[Any, ...]] | None = None) -> list[Future]:
        """Start a call on every rank with its own arguments, without waiting."""
        each = [()] * len(self.addresses) if given is None else given
        return self._on_each(_act, [(act, *one) for one in each])

    def each(self, act: Callable[..., Any], given: Sequence[tuple[Any, ...]] | None = None) -> list[Any]:
        """Call every rank and return the results; raise an error only after all ranks have stopped."""
        from distributed import wait

        started = self.start(act, given)
        wait(started)
        return self.client.gather(started)

    def _on_each(self, call: Callable[..., Any], given: Sequence[tuple[Any, ...]]) -> list[Future]:
        return [
            self.client.submit(call, self.name, rank, *one, workers=[address], pure=False, retries=0)
            for rank, (address, one) in enumerate(zip(self.addresses, given, strict=True))
        ]

    def settle(self) -> list[WriterFacts]:
        return [facts for each in self.each(lambda streams: streams._part.settle()) for facts in each]

    def begin(self, mode: Mode, nbytes: int, dtype: np.dtype) -> None:
        self.each(lambda streams: streams._part.begin(mode, nbytes, dtype))

    def link(self, meta: Meta) -> Linked:
        """Link the directory that all ranks have written, here."""
        self._file.commit(meta)
        return RanksPart(self._file, range(meta.cells.ranks), self._budget, writes=False).link(meta)

    def end(self) -> None:
        self.client.gather(self._on_each(_end, [()] * len(self.addresses)), errors="skip")


class RankStreams(OpenStreams):
    """Streams of a file on the workers of a cluster; `open_streams` creates it for a given client.

    Each rank has the `Streams` of its cells on its worker. All ranks take part in every call; their data stays on their
    workers.
    """

    def __init__(self, file: StreamFile, client: Client, mode: str, budget: int, blocks: dict[str, int]) -> None:
        self._budget = budget
        cells = file.meta.cells
        self._used = [rank for rank in range(cells.ranks) if cells.of_rank(rank)[0] < cells.of_rank(rank)[1]] or [0]
        workers, count = [worker.address for worker in workers_of(client)], len(self._used)
        addresses = [workers[rank * len(workers) // count] for rank in range(count)]  # contiguous runs of ranks
        shared = max(addresses.count(address) for address in addresses)
        make = partial(_made, file=file, used=self._used, mode=mode, budget=budget // shared, blocks=blocks)
        self._ranks = WorkerRanks(client, addresses, file, budget, make)
        super().__init__(OpenFile(file, mode, self._ranks), cells.shape)
        close_when_dropped(self, file, file.release, "only what was flushed is there")

    @property
    def ranks(self) -> int:
        """Ranks that have cells."""
        return len(self._used)

    @property
    def mode(self) -> str:
        """Mode of the end of the file, as far as all ranks know it."""
        return MODES[max(map(MODES.index, self._ranks.each(attrgetter("mode"))))]

    def __repr__(self) -> str:
        said = f"<RankStreams {self._file.name}: shape {self.shape}, dtype {self.dtype}, {self.ranks} ranks>"
        return in_number(said)

    def _bounds(self) -> list[tuple[int, int]]:
        """Return the rows of each rank along the first axis."""
        cells = self._file.meta.cells
        inner = max(cells.inner, 1)
        return [(lower // inner, upper // inner) for lower, upper in map(cells.of_rank, self._used)]

    def _dealt(self, values: Any) -> list[Any]:
        """Cut an array of the cells into the blocks of the ranks; those of Dask are computed on the ranks' workers."""
        blocks = [values[lower:upper] for lower, upper in self._bounds()] if self.shape else [values]
        return [
            self._ranks.client.compute(block, workers=[address]) if hasattr(block, "dask") else block
            for block, address in zip(blocks, self._ranks.addresses, strict=True)
        ]

    def write(self, values: Any, *, where: Any = None, at: Any = None) -> None:
        """Write items, as `Streams.write`: a numpy or Dask array; its first axis is divided among ranks.

        Raises
        ------
        InputError
            If values, mask or cells do not fit the shape.
        """
        self._open.check(writes=True)
        is_dask, ndim = hasattr(values, "dask"), len(self.shape)
        values = values if is_dask or at is not None else as_items(values, self.dtype)
        if at is None and values.shape[:ndim] != self.shape and (values.ndim or is_dask):
            raise InputError(f"values of shape {values.shape} do not fit streams of shape {self.shape}")
        if is_dask and at is None:
            given = self._blocks(values, where)
        else:
            cells = self._file.meta.cells
            call, dtype = CellValues(shape=self.shape, item=self.dtype, lower=0).call(values, where, at)
            given = [(of_cells(call, *cells.of_rank(rank)), dtype) for rank in self._used]
        found = self._ranks.each(Streams.prepared, given)
        with self._open.failing():
            mode = self._open.agree(found)
            self._ranks.each(lambda streams: streams.perform(mode))

    def _blocks(self, array: da.Array, where: Any) -> list[tuple[Any, Any]]:
        if where is not None and np.shape(where) != self.shape:
            raise InputError(f"where= of shape {np.shape(where)} is no mask of shape {self.shape}")
        masks = [None] * self.ranks if where is None else self._dealt(where)
        return list(zip(self._dealt(array), masks, strict=True))

    def read(self, n: int | None = None) -> da.Array:
        """Read the same number of items of each cell: a Dask array with one block a rank.

        Raises
        ------
        SelectionError
            If a cell has fewer: `each` reads them one by one.
        """
        import dask.array as da
        from dask.delayed import delayed

        self._open.check()
        n = None if n is None else whole(n, "n", 0)
        left = self._ranks.each(lambda streams: int((streams._part.ends() - streams._part.tell()).min(initial=2**62)))
        least = min(left) // self.dtype.itemsize
        if least < (1 if n is None else n):
            raise SelectionError(f"a cell has {least} items left, fewer than the {n or 1} requested: use each()")
        futures = self._ranks.start(lambda streams: streams.read(n))
        within = () if n is None else (n,)
        shapes = [
            ((upper - lower), *self.shape[1:], *within) if self.shape else within for lower, upper in self._bounds()
        ]
        each = zip(map(delayed, futures), shapes, strict=True)
        blocks = [da.from_delayed(future, shape, dtype=self.dtype) for future, shape in each]
        return da.concatenate(blocks) if self.shape else blocks[0]

    def to_dask(self) -> DaskRagged:
        """Return all of every stream as Dask arrays, as `Streams.to_dask`: tasks open the file on their workers."""
        self._open.flush()
        whole = RanksPart(self._file, range(self._file.meta.cells.ranks), self._budget, writes=False)
        return dask_ragged(self._file, self.dtype, self._budget, whole.ends())

    def each(self, function: Any) -> None:
        """Call a function with the stream of each cell in turn, on the worker of its rank."""
        self._open.check()
        if self._open.mode != "r":
            self._file.make_independent(self._ranks.settle()[0].ib)

        def act(streams: Streams) -> None:
            streams.each(function)  # its results stay there

        self._ranks.each(act)

    def seek(self, offset: int, whence: int = 0) -> None:
        """Move the position of every stream, as `Streams.seek`."""
        self._open.check()
        self._ranks.each(lambda streams: streams.seek(offset, whence))

    def tell(self) -> np.ndarray:
        """Return the bytes of each stream before its position."""
        return np.concatenate([each.reshape(-1) for each in self._ranks.each(Streams.tell)]).reshape(self.shape)


_HELD: dict[tuple[str, int], Streams] = {}
"""Streams of ranks in this process, by the name of the file's ranks and their number."""


def _create(name: str, rank: int, make: Callable[[int], Streams]) -> None:
    _HELD[name, rank] = make(rank)


def _act(name: str, rank: int, act: Callable[..., Any], *given: Any) -> Any:
    found = _HELD.get((name, rank))
    if found is None:
        raise RunError(f"rank {rank} of the streams was lost with its worker: flushed data is kept; open them again")
    return act(found, *given)


def _end(name: str, rank: int) -> None:
    found = _HELD.pop((name, rank), None)
    if found is not None:
        found._part.end()


def _made(number: int, *, file: StreamFile, used: list[int], mode: str, budget: int, blocks: dict[str, int]) -> Streams:
    rank = used[number]
    part = RanksPart(file, range(rank, rank + 1), budget, writes=mode != "r", asked=blocks)
    if mode == "r+":
        part.position = 0
    return Streams(file, part, mode)
