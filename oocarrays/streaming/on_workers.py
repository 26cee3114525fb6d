"""Streams with ranks on the workers of a cluster: input and output are arrays of one block a rank."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from oocarrays.errors import InputError, SelectionError, UnsupportedError
from oocarrays.graphs.streams.ranks import Ranks, rank_addresses
from oocarrays.mapping.given import whole
from oocarrays.plan.streams.calls import MODES, Mode, ModeAnswer, agreed, of_cells
from oocarrays.plan.streams.meta import Meta, WriterFacts, committed
from oocarrays.storage.streams.part import RanksPart
from oocarrays.storage.streams.stream_file import StreamFile
from oocarrays.streaming.given import CellValues
from oocarrays.streaming.items import as_items
from oocarrays.streaming.lazy import Kept, Linked, close_when_dropped, dask_ragged
from oocarrays.streaming.ragged import DaskRagged
from oocarrays.streaming.streams import Streams

if TYPE_CHECKING:
    import dask.array as da
    from distributed import Client


class RankStreams:
    """Streams of a file on the workers of a cluster; `open_streams` creates it for a given client.

    All ranks take part in every call; their data stays on their workers.
    """

    def __init__(self, file: StreamFile, client: Client, mode: str, budget: int, blocks: dict[str, int]) -> None:
        self._file = file
        self._opened_as = mode
        self._budget = budget
        cells = file.meta.cells
        self._used = [rank for rank in range(cells.ranks) if cells.of_rank(rank)[0] < cells.of_rank(rank)[1]] or [0]
        addresses = rank_addresses(client, len(self._used))
        shared = max(addresses.count(address) for address in addresses)
        self._ranks = Ranks(client, uuid.uuid4().hex, addresses)
        make = partial(_made, file=file, used=self._used, mode=mode, budget=budget // shared, blocks=blocks)
        self._ranks.begin(make)
        settle, end = partial(self._ranks.each, _settle), partial(self._ranks.end, _close)
        self._kept = Kept(file, settle, partial(_linked, file, budget), end, writes=mode != "r")
        close_when_dropped(self, file, file.let_go, "only what was flushed is there")

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis of the cells."""
        return self._file.meta.cells.shape

    @property
    def dtype(self) -> np.dtype:
        """The type that an item is read as."""
        return self._file.meta.item

    @property
    def ranks(self) -> int:
        """Ranks that have cells."""
        return len(self._used)

    @property
    def mode(self) -> str:
        """Mode of the end of the file, as far as all ranks know it."""
        return MODES[max(map(MODES.index, self._ranks.each(attrgetter("mode"))))]

    def __repr__(self) -> str:
        return f"<RankStreams {self._file.name}: shape {self.shape}, dtype {self.dtype}, {self.ranks} ranks>"

    def _bounds(self) -> list[tuple[int, int]]:
        """Return the rows of each rank along the first axis."""
        cells = self._file.meta.cells
        inner = max(cells.inner, 1)
        return [(lower // inner, upper // inner) for lower, upper in map(cells.of_rank, self._used)]

    def _dealt(self, values: Any) -> list[Any]:
        """Cut an array of the cells into the blocks of the ranks."""
        if not self.shape:
            return [values]
        return [values[lower:upper] for lower, upper in self._bounds()]

    def write(self, values: Any, *, where: Any = None, at: Any = None) -> None:
        """Write items, as `Streams.write`: a numpy or Dask array; its first axis is divided among ranks.

        Raises
        ------
        InputError
            If values, mask or cells do not fit the shape.
        """
        self._kept.check()
        if self._opened_as == "r":
            raise UnsupportedError(f"{self._file.name} is open for reading: open it with mode='a' or 'r+' to write")
        given = self._blocks(values, where) if at is None else self._events(values, where, at)
        found = self._ranks.each(Streams.prepared, given)
        with self._kept.failing():
            self._together(found)

    def _events(self, values: Any, where: Any, at: Any) -> list[tuple[Any, Any]]:
        cells = self._file.meta.cells
        call, _ = CellValues(shape=self.shape, item=self.dtype, lower=0).call(values, where, at)
        return [(of_cells(call, *cells.of_rank(rank)), None) for rank in self._used]

    def _blocks(self, values: Any, where: Any) -> list[tuple[Any, Any]]:
        """Divide values and mask among ranks; one value applies to every cell."""
        array = values if hasattr(values, "dask") else as_items(values, self.dtype)
        if not array.ndim and not hasattr(array, "dask"):
            array = np.full(self.shape, array)
        if array.shape[: len(self.shape)] != self.shape:
            raise InputError(f"values of shape {array.shape} do not fit streams of shape {self.shape}")
        if where is not None and np.shape(where) != self.shape:
            raise InputError(f"where= of shape {np.shape(where)} is no mask of shape {self.shape}")
        masks = [None] * self.ranks if where is None else self._ranks.blocks(self._dealt(where))
        return list(zip(self._ranks.blocks(self._dealt(array)), masks, strict=True))

    def _together(self, found: Sequence[tuple[ModeAnswer, str, bool, Mode | None]]) -> None:
        """Perform the call that every rank has prepared, in one mode."""
        every = agreed(each for each, *_ in found)
        mode, dtype = every.mode, found[0][1]
        if any(at_end for *_, at_end, _ in found) and any(begun != mode for *_, begun in found):
            self._ranks.each(_start_mode, [(mode, every.nbytes, dtype)] * self.ranks)
            if mode != "NB":
                settled = self._ranks.each(_settle)
                self._file.commit(committed(self._file.meta, settled, begins_ib=mode == "IB"))
        self._ranks.each(Streams.perform, [(mode,)] * self.ranks)

    def read(self, n: int | None = None) -> da.Array:
        """Read the same number of items of each cell: a Dask array with one block a rank.

        Raises
        ------
        SelectionError
            If a cell has fewer: `each` reads them one by one.
        """
        import dask.array as da
        from dask.delayed import delayed

        self._kept.check()
        n = None if n is None else whole(n, "n", 0)
        least = min(self._ranks.each(_least_left))
        if least < (1 if n is None else n):
            raise SelectionError(f"a cell has {least} items left, and {n or 1} are asked for: use each()")
        futures = self._ranks.start(Streams.read, [(n,)] * self.ranks)
        within = () if n is None else (n,)
        shapes = [
            ((upper - lower), *self.shape[1:], *within) if self.shape else within for lower, upper in self._bounds()
        ]
        each = zip(map(delayed, futures), shapes, strict=True)
        blocks = [da.from_delayed(future, shape, dtype=self.dtype) for future, shape in each]
        joined: da.Array = da.concatenate(blocks) if self.shape else blocks[0]
        return joined

    def to_dask(self) -> DaskRagged:
        """Return all of every stream as Dask arrays, as `Streams.to_dask`: tasks open the file on their workers."""
        self._kept.flush()
        whole = RanksPart(self._file, range(self._file.meta.cells.ranks), self._budget, writes=False)
        return dask_ragged(self._file, self.dtype, self._budget, whole.ends())

    def each(self, function: Any) -> None:
        """Call a function with the stream of each cell in turn, on the worker of its rank."""
        self._kept.check()
        if self._opened_as != "r":
            self._file.make_independent(self._ranks.each(_settle)[0].ib)
        self._ranks.each(_each, [(function,)] * self.ranks)

    def seek(self, offset: int, whence: int = 0) -> None:
        """Move the position of every stream, as `Streams.seek`."""
        self._kept.check()
        self._ranks.each(Streams.seek, [(offset, whence)] * self.ranks)

    def tell(self) -> np.ndarray:
        """Return the bytes of each stream before its position."""
        return np.concatenate([each.reshape(-1) for each in self._ranks.each(Streams.tell)]).reshape(self.shape)

    def flush(self) -> None:
        """Flush all written data to its device."""
        self._kept.flush()

    def close(self) -> None:
        """Flush all written data to its device, end the ranks, and release the file for other writers."""
        self._kept.close()

    def __enter__(self) -> RankStreams:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


# ---------------------------------------------------------------------- on the worker of a rank


def _made(number: int, *, file: StreamFile, used: list[int], mode: str, budget: int, blocks: dict[str, int]) -> Streams:
    rank = used[number]
    part = RanksPart(file, range(rank, rank + 1), budget, writes=mode != "r", asked=blocks)
    if mode == "r+":
        part.position = 0
    return Streams(file, part, mode)


def _start_mode(streams: Streams, mode: Mode, nbytes: int, dtype: str) -> None:
    streams._part.begin(mode, nbytes, np.dtype(dtype))


def _settle(streams: Streams) -> WriterFacts:
    return streams._part.settle()


def _each(streams: Streams, function: Any) -> None:
    streams.each(function)  # its results stay here


def _least_left(streams: Streams) -> int:
    part = streams._part
    return int((part.ends() - part.tell()).min(initial=2**62)) // streams.dtype.itemsize


def _close(streams: Streams) -> None:
    streams._part.apart.close()


def _linked(file: StreamFile, budget: int, meta: Meta) -> Linked:
    """Link the directory that all ranks have written."""
    file.commit(meta)
    return RanksPart(file, range(meta.cells.ranks), budget, writes=False).apart.link(meta.ib)
