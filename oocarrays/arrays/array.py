"""Array of the public API: a stored array with lazy access, slabs, and partitions.

    loop     ┬─ slab 0 ────┬─ slab 1 ────┬─ …
    thread   └─ read 1 ────┴─ read 2 ────┴─ …      `prefetch` slabs ahead

Thakur 1995, section 5.5.2 and Figure 5.8.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from dask.utils import format_bytes

from oocarrays.graphs import settings
from oocarrays.graphs.events import warn_of_missing
from oocarrays.mapping.layouts.halo import BoundaryLike, checked_boundary
from oocarrays.mapping.layouts.layout import LayoutLike
from oocarrays.mapping.section import Section
from oocarrays.options.chunks import ChunksLike
from oocarrays.options.given import memory_of, verb
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.plan.slabs.options import DepthLike, SlabOptions, WindowLike, window_options
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.show import report
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.meter import new_meter
from oocarrays.storage.sections.windows import Blocks, Windows, within
from oocarrays.stored.array import StoredArray, opened

if TYPE_CHECKING:  # lazy arrays need dask.array, which is slow to import
    import dask.array as da

    from oocarrays.stored.lazy_array import LazyArray


Window = tuple[Slab, Blocks]


@dataclass(frozen=True, slots=True, eq=False)
class SlabWindow:
    """A slab in memory, with its halo."""

    data: np.ndarray
    """Its elements, which the caller may change: rows for the next slab have been copied."""
    section: Section
    """Elements of the array in it, without its halo."""
    inside: tuple[slice, ...]
    """Position of these in ``data``."""

    def __repr__(self) -> str:
        spans = ", ".join(f"{taken.start}:{taken.stop}" for taken in self.section.axes)
        return f"<oocarrays.SlabWindow [{spans}], {report.shape_text(self.data.shape)} with its halo>"


class SlabIterator:
    """Iterator over the slabs of an array. Created by `OutOfCoreArray.slabs`; nothing is read before the first slab.

    A ``with`` block, or `close`, ends it early.
    """

    def __init__(self, file: ArrayFile, plan: SlabPlan, prefetch: int) -> None:
        self.plan = plan
        """Frozen plan: reads, and peak memory."""
        self.meter = new_meter()
        """Meter of the reads so far."""
        self._name = file.presence.name
        self._windows = _read_ahead(Windows(plan, [file], self.meter).in_order(), prefetch)

    def __iter__(self) -> SlabIterator:
        return self

    def __next__(self) -> SlabWindow:
        window = next(self._windows, None)
        if window is None:
            warn_of_missing(self.meter, self._name)
            raise StopIteration
        slab, (data,) = window
        core = self.plan.core(slab)
        return SlabWindow(data, core, within(core, self.plan.window(slab))[:-1])

    def __len__(self) -> int:
        return self.plan.count

    def close(self) -> None:
        """Stop reading, and end the thread; allowed after the end, too."""
        self._windows.close()
        warn_of_missing(self.meter, self._name)

    def __enter__(self) -> SlabIterator:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def __repr__(self) -> str:
        plan = self.plan
        return (
            f"<oocarrays.SlabIterator {report.shape_text(plan.shape)} in {report.fact_text(plan.cut_fact(' slabs'))}, "
            f"{format_bytes(plan.peak_bytes)} of {format_bytes(plan.budget)}>"
        )


def _read_ahead(windows: Iterator[Window], prefetch: int) -> Generator[Window, None, None]:
    """Yield the windows, with `prefetch` of them read ahead by a thread that ends with this generator."""
    if not prefetch:
        yield from windows
        return
    pool, ahead = ThreadPoolExecutor(1, "oocarrays-slabs"), deque[Future[Window | None]]()
    try:
        ahead.append(pool.submit(next, windows, None))
        while (window := ahead.popleft().result()) is not None:
            while len(ahead) < prefetch:
                ahead.append(pool.submit(next, windows, None))
            yield window
    finally:
        pool.shutdown(cancel_futures=True)


class OutOfCoreArray(StoredArray):
    """Array in a Zarr store; only the sections that are read come into memory.

    ``a[key]`` is a numpy array, as in Zarr; ``a.to_dask()`` is lazy. Created by `open_array`.
    """

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "partitions":  # until version 0.7
                raise AttributeError("a.partitions(layout) is oocarrays.ranks.partitions(a, layout) now", name=name)
            return self.__getattribute__(name)  # an error

    @verb(old={"axis": "window={axis: 'auto'}", "height": "window=height, or window={axis: height}"})
    def slabs(
        self,
        *,
        memory: int | float | str | None = None,
        depth: DepthLike = 0,
        boundary: BoundaryLike = "none",
        prefetch: int = 1,
        reuse: bool = True,
        window: WindowLike | int | None = None,
    ) -> SlabIterator:
        """Iterate over the array in slabs with their halos, with read-ahead.

        `map_slabs` does the same with a function, on several ranks, and writes the results.

        Parameters
        ----------
        memory : int or str
            Budget in bytes, including the slab that the loop holds; by default as in `rechunk`.
        depth, boundary
            Halo width on each side, and values beyond the edges, as in `map_slabs`.
        prefetch : int
            Number of slabs that a thread reads ahead; with 0 each slab is read on demand.
        reuse : bool
            Whether to keep rows that the next slab needs, instead of reading them again.
        window : int, sequence or mapping
            Elements of a slab, as in `map_slabs`; by default chosen by the plan.

        Yields
        ------
        SlabWindow
            ``.data`` is a numpy array with its halo, ``.section`` the elements without the halo, and ``.inside`` the
            position of these in ``.data``.

        Raises
        ------
        InputError
            For invalid arguments; `BudgetError` if not one slab fits: before the first slab is read.

        Notes
        -----
        Thakur 1995, sections 5.5.2 (prefetching) and 5.5.3 (reuse).

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = OutOfCoreArray(zarr.create_array({}, data=np.arange(7), chunks=(2,)))
        >>> for slab in a.slabs(depth=1, window=4, memory="16MiB"):
        ...     print(slab.section, slab.data, slab.data[slab.inside])
        Section(lower=(0,), upper=(4,)) [0 1 2 3 4] [0 1 2 3]
        Section(lower=(4,), upper=(7,)) [3 4 5 6] [4 5 6]
        """
        asked: Any = {"depth": depth, "boundary": boundary, **window_options(window)}
        options = SlabOptions(prefetch=prefetch, reuse=reuse, **asked).along(self.ndim, self.dimension_names)
        asked = replace(
            options,
            boundary=checked_boundary(options.boundary, self.ndim, self.dtype),
            budget=settings.budget(memory_of(memory)),
            prefetch=options.prefetch or 1,  # a loop holds its slab while it asks for the next
            workspace=0,
            past_cache_above=settings.past_cache_above(),
        )
        return SlabIterator(self._file, plan_slabs([self._file.stored], (), asked), options.prefetch)

    @property
    def T(self) -> da.Array:
        """Lazy array with reversed axes: ``a.to_dask().T``."""
        return self.to_dask().T

    def to_dask(
        self,
        chunks: ChunksLike | None = None,
        *,
        layout: LayoutLike | None = None,
        ranks: int | None = None,
        grid: Sequence[int] | None = None,
        memory: int | float | str | None = None,
        scratch: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    ) -> LazyArray:
        """Return a lazy Dask array of any blocks; equal arrays, blocks and memory give equal names.

        Each stored byte is read once if the computation allows it: by its own block, or by a group of blocks that share
        stored chunks. If no such group fits in memory, the data goes through a plain copy in scratch, which is deleted
        after use. ``.explain()`` names the method, the bytes that each task holds, and how often stored bytes are read
        (``.plan.times_read``).

        Parameters
        ----------
        chunks : int, str, tuple or dict
            Lengths of the blocks as `rechunk` takes them, including ``"auto"`` and ``"128MiB"``, or any lengths along
            an axis that add up; by default those of the stored chunks (or shards).
        layout, ranks, grid : Layout or str, int, sequence of int
            Use the parts of a layout's ranks as blocks instead, as `distribute` takes them: block and gen_block axes.
        memory : int or str
            Budget of all tasks of a process together, in bytes; by default as in `rechunk`.
        scratch : path
            Local folder for a plain copy; by default the setting, or beside the array. The workers of a cluster share
            it.

        Raises
        ------
        ChunksError, LayoutError
            If the blocks do not fit the array.
        BudgetError
            If a block does not fit the given memory.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> z = zarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(1, 2))
        >>> x = OutOfCoreArray(z).to_dask(((1, 2), 3))
        >>> x.chunks, x.sum(axis=0).compute()
        (((1, 2), (3, 1)), array([12, 15, 18, 21]))
        """
        from oocarrays.stored.lazy_array import blocks_for, to_dask

        blocks = blocks_for(self, chunks, layout, ranks=ranks, grid=grid)
        return to_dask(self._file, blocks, memory=memory, scratch=scratch)


def open_array(
    store: StoreLike | zarr.Array[Any],
    *,
    mode: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    missing: str | None = None,
) -> OutOfCoreArray:
    return OutOfCoreArray(opened(store, mode=mode, storage_options=storage_options), missing)
