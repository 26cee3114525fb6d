"""The array that a person holds: a stored array that gives itself lazily, in slabs, and in partitions, too."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import zarr

from oocarrays.mapping.layouts.halo import BoundaryLike, checked_boundary
from oocarrays.options.chunks import ChunksLike
from oocarrays.options.packing import LayoutLike
from oocarrays.plan.slabs.options import DepthLike, SlabOptions, WindowLike
from oocarrays.storage.files.places import StoreLike
from oocarrays.stored.array import StoredArray, opened
from oocarrays.stored.slab_iterator import SlabIterator, slabs_of

if TYPE_CHECKING:  # what is lazy needs dask.array, which takes its time to import
    import dask.array as da

    from oocarrays.stored.lazy_array import LazyArray


class OutOfCoreArray(StoredArray):
    """An array in a Zarr store, of which only what is asked for comes into memory.

    ``a[key]`` is a numpy array, as in Zarr; ``a.to_dask()`` is lazy. Made by `open_array`.
    """

    def partitions(self, layout: Any = None, **how: Any) -> Iterator[Any]:
        """The array in partitions that fit in memory, one after the other, each a `DistributedArray`, read lazily.

        Parameters
        ----------
        layout : Layout, str, Distribution or sequence of them
            How each partition is laid out over its ranks; by default as the array's descriptor says.
        how
            As in `read_sections`: ``ranks``, ``grid``, ``memory``, ``method``, ``scheduler``, ``workers`` and others.
            Partitions are as large as fit in ``memory`` bytes of each process together.

        Yields
        ------
        DistributedArray
            Its ``.section`` says where it lies: whole chunks of the array, which come in file order.

        Raises
        ------
        InputError
            `BudgetError` where not one chunk fits, `LayoutError` where there is no layout: before the first is given.

        Notes
        -----
        Thakur 1995, section 5.3.2: the partitioned in-core model.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = OutOfCoreArray(zarr.create_array({}, data=np.arange(48).reshape(8, 6), chunks=(2, 6)))
        >>> parts = a.partitions("(block, *)", ranks=2, memory="1GiB", scheduler="threads")
        >>> [(part.section.lower, part.local(1).compute().shape) for part in parts]
        [((0, 0), (4, 6))]
        """
        from oocarrays.distributed.collective import partitions_of

        return partitions_of(self, layout, **how)

    def slabs(
        self,
        *,
        memory: int | float | str | None = None,
        depth: DepthLike = 0,
        boundary: BoundaryLike = "none",
        prefetch: int = 1,
        reuse: bool = True,
        axis: int | str | None = None,
        height: int | None = None,
        window: WindowLike | None = None,
    ) -> SlabIterator:
        """The array in slabs with their halos, one after the other, the next ones read ahead: for loops.

        `map_slabs` does the same with a function, on several ranks, and writes what that gives.

        Parameters
        ----------
        memory : int or str
            Bytes to hold at most, the slab that the loop has among them; by default as in `rechunk`.
        depth, boundary
            How many neighbours a slab has on each side, and what stands beyond the edges, as in `map_slabs`.
        prefetch : int
            Slabs that a thread reads ahead; with 0 they are read when they are asked for.
        reuse : bool
            Whether rows that the next slab needs again are kept instead of being read again.
        axis, height : int
            Along which axis, by number or name, slabs follow one another, and how many elements each has; by default
            what is best.
        window : sequence of int or mapping
            Elements of a slab along each axis, as in `map_slabs`: for blocks that are whole in no axis.

        Yields
        ------
        SlabWindow
            ``.data`` is a numpy array with its halo, ``.section`` the elements that it has without, and ``.inside``
            where these are in it.

        Raises
        ------
        InputError
            For anything that cannot be; `BudgetError` where not one slab fits: before the first is given.

        Notes
        -----
        Thakur 1995, sections 5.5.2 (prefetching) and 5.5.3 (reuse).

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = OutOfCoreArray(zarr.create_array({}, data=np.arange(7), chunks=(2,)))
        >>> for slab in a.slabs(depth=1, height=4, memory="16MiB"):
        ...     print(slab.section, slab.data, slab.data[slab.inside])
        Section(lower=(0,), upper=(4,)) [0 1 2 3 4] [0 1 2 3]
        Section(lower=(4,), upper=(7,)) [3 4 5 6] [4 5 6]
        """
        asked: Any = {"depth": depth, "boundary": boundary, "axis": axis, "heights": window}
        options = SlabOptions(prefetch=prefetch, reuse=reuse, height=height, **asked)
        options = options.along(self.ndim, self.dimension_names)
        edge = checked_boundary(options.boundary, self.ndim, self.dtype)
        return slabs_of(self._file, replace(options, boundary=edge), memory)

    @property
    def T(self) -> da.Array:
        """The array with its axes the other way round, lazily: ``a.to_dask().T``."""
        turned: da.Array = self.to_dask().T
        return turned

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
        """A lazy Dask array of any blocks, its name always the same for the same array, blocks and memory.

        Each stored byte is read once, where what is computed lets it: by the block that it is in, or by a group of
        blocks that share stored chunks; where no such group fits in memory, by way of a plain copy in scratch, which
        is gone when it has been used. ``.explain()`` says which, the bytes that each task holds, and how often stored
        bytes are read where memory or groups do not let it be once (``.plan.times_read``).

        Parameters
        ----------
        chunks : int, str, tuple or dict
            Lengths of the blocks as `rechunk` takes them, ``"auto"`` or ``"128MiB"`` among them, or any lengths along
            an axis that add up; by default those of the stored chunks (of the shards, where there are shards).
        layout, ranks, grid : Layout or str, int, sequence of int
            Blocks are the parts of a layout's ranks instead, as `distribute` takes them: block and gen_block axes.
        memory : int or str
            Bytes that the tasks of a process may hold together; by default as in `rechunk`.
        scratch : path
            Local folder for a plain copy; by default the setting, or beside the array. On a cluster, workers share it.

        Raises
        ------
        ChunksError, LayoutError
            Where blocks do not fit the array.
        BudgetError
            Where there is no room for a block in the memory that was named.

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
    store: StoreLike | zarr.Array,
    *,
    mode: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    missing: str | None = None,
) -> OutOfCoreArray:
    return OutOfCoreArray(opened(store, mode=mode, storage_options=storage_options), missing)
