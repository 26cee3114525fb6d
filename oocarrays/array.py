"""The array that a person holds: a Zarr array on disk, read section by section."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr

from oocarrays.chunks import ChunksLike
from oocarrays.contents import array_facts
from oocarrays.graphs import settings
from oocarrays.mapping.layout import Layout
from oocarrays.mapping.selection import Selection
from oocarrays.notebook import array_html
from oocarrays.plan.sieve import Method
from oocarrays.plan.sieve_writes import WriteMethod
from oocarrays.reading_ahead import AHEAD, Prefetched
from oocarrays.report import array_line
from oocarrays.section_reading import read
from oocarrays.section_writing import selection_of, write
from oocarrays.storage import array_file
from oocarrays.storage.array_file import ArrayFile, StoreLike, describe
from oocarrays.storage.descriptor import KEY, Descriptor, descriptor_of
from oocarrays.storage.formats import dimension_names
from oocarrays.storage.metered import new_meter
from oocarrays.storage.presence import Policy, shows_chunks
from oocarrays.storage.urls import absolute, store_of

if TYPE_CHECKING:
    from oocarrays.distributed_array import LayoutLike
    from oocarrays.lazy_array import LazyArray
    from oocarrays.slab_iterator import SlabIterator


class OutOfCoreArray:
    """An array in a Zarr store, of which only what is asked for comes into memory.

    ``a[key]`` is a numpy array, as in Zarr; ``a.to_dask()`` is lazy. Made by `open_array`.
    """

    def __init__(self, array: zarr.Array, missing: str | None = None) -> None:
        self._array: zarr.Array = absolute(array)
        self._missing = settings.missing(missing)
        self._had_chunks = self._array.read_only and shows_chunks(self._array)
        self._known: dict[bool, tuple[Any, ArrayFile]] = {}

    def __reduce__(self) -> Any:
        return type(self), (self._array, self._missing)

    @property
    def _file(self) -> ArrayFile:
        """How its chunks are read."""
        return self._described(written=False)

    def _described(self, *, written: bool) -> ArrayFile:
        """How chunks are read or written: looked at anew where metadata are others, as after ``a.zarr.resize``.

        Whether there are any was seen when it was opened; of an array that is written all may become fill values.
        """
        known, metadata = self._known.get(written), self._array.metadata
        if known is None or known[0] is not metadata:
            file = describe(self._array, written=written, missing=None if written else self._missing)
            file = replace(file, presence=replace(file.presence, had_chunks=self._had_chunks))
            self._known[written] = known = metadata, file
        return known[1]

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        return tuple(self._array.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """Type of an element."""
        return self._array.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(self._array.size)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    @property
    def chunks(self) -> tuple[int, ...]:
        """Chunk length in each axis."""
        return tuple(self._array.chunks)

    @property
    def attrs(self) -> dict[str, Any]:
        """The user's attributes."""
        return {name: value for name, value in self._array.attrs.asdict().items() if name != KEY}

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """Names of the axes, where they have names; in format 2 as xarray keeps them."""
        return dimension_names(self._array)

    @property
    def _descriptor(self) -> Descriptor | None:
        return descriptor_of(self._array.attrs.asdict(), self.store)

    @property
    def layout(self) -> Layout | None:
        """Which rank is to hold which element, where its descriptor says so: of a global array file."""
        said = self._descriptor
        return said.layout if said and said.rank is None else None

    @property
    def depth(self) -> tuple[int, ...]:
        """How many neighbours a rank sees along each axis, on either side; none where its descriptor says nothing."""
        said = self._descriptor
        return said.depth if said else (0,) * self.ndim

    @property
    def orientation(self) -> tuple[int, ...] | None:
        """The axes from the slowest to the fastest along a chunk, where its descriptor says so."""
        said = self._descriptor
        return said.orientation if said else None

    @property
    def fill_value(self) -> Any:
        """Value of what is not stored."""
        return self._array.fill_value

    @property
    def missing(self) -> Policy:
        """What is made of a chunk that is not there, wherever this array is read: as `open_array` was told."""
        return self._missing

    @property
    def zarr(self) -> zarr.Array:
        """The Zarr array itself."""
        return self._array

    @property
    def store(self) -> str:
        """Where the array is."""
        return array_file.location(self._array)

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
        from oocarrays.partitions import partitions_of

        return partitions_of(self, layout, **how)

    def slabs(
        self,
        *,
        memory: int | float | str | None = None,
        depth: int | Sequence[int] = 0,
        boundary: str | float = "none",
        prefetch: int = 1,
        reuse: bool = True,
        axis: int | None = None,
        height: int | None = None,
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
            Along which axis slabs follow one another, and how many elements each has; by default what is best.

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
        from oocarrays.slab_iterator import slabs_of

        return slabs_of(
            self._file, memory=memory, depth=depth, boundary=boundary, prefetch=prefetch, reuse=reuse, axis=axis,
            height=height,
        )  # fmt: skip

    def __getitem__(self, key: Any) -> Any:
        return read(self._file, Selection.as_numpy(key, self.shape))

    def __setitem__(self, key: Any, values: Any) -> None:
        self.write(Selection.as_numpy(key, self.shape), values)

    def read(self, section: Any, *, method: Method = "auto", out: np.ndarray | None = None) -> Any:
        """A section as a numpy array, as ``a[section]``.

        Of uncompressed chunks, and of those in shards, only byte ranges are read: together those between which less
        lies than is read in the time of a request, within ``oocarrays.sieve-buffer`` bytes a buffer.

        Parameters
        ----------
        section : index or Section
            As in ``a[section]``; sequences of indices along several axes take their product, as Zarr's ``oindex``.
        method : str
            ``"direct"`` asks for each run of what is wanted, ``"sieve"`` for all from the first to the last of a chunk
            that a buffer holds, ``"auto"`` for what costs least. Coded chunks are read whole.
        out : numpy.ndarray, optional
            What is filled and returned.

        Raises
        ------
        SelectionError
            For an index out of range, or where ``out`` has another shape.
        CorruptChunkError
            Where a chunk is cut short, or cannot be decoded.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = OutOfCoreArray(zarr.create_array({}, data=np.arange(24).reshape(4, 6), chunks=(2, 6)))
        >>> a.read(([0, 3], slice(None, None, 2)), method="sieve")
        array([[ 0,  2,  4],
               [18, 20, 22]])
        """
        return read(self._file, selection_of(section, self.shape), method=method, out=out)

    def write(
        self,
        section: Any,
        values: Any,
        *,
        method: WriteMethod = "auto",
        memory: int | float | str | None = None,
    ) -> None:
        """Write values to a section, as ``a[section] = values``; the rest of the chunks that it touches stays.

        Others may write to the same chunks at the same time: threads of this process, and to local files other
        processes, lose nothing. Between processes nothing protects chunks in other stores.

        Parameters
        ----------
        section : index or Section
            As in ``a[section]``.
        values : array or scalar
            Broadcast and cast as numpy does.
        method : str
            ``"sieve"`` reads, changes and replaces each chunk at once, and so does ``"auto"``. ``"direct"`` writes
            each run of an uncompressed chunk in a local file where it is: a reader, or a crash, can come between two.
        memory : int or str, optional
            Bytes to hold at most beside the values; by default 256 MiB, or what one chunk needs.

        Raises
        ------
        InputError
            Where the array is open for reading.
        SelectionError
            For an index out of range, or values that do not fit.
        UnsupportedError
            For ``"direct"`` where chunks cannot be changed in place.
        BudgetError
            Where ``memory`` is too small for one chunk.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = OutOfCoreArray(zarr.create_array({}, shape=(4, 6), chunks=(2, 6), dtype="i4"))
        >>> a.write(np.s_[::3, 1:3], [7, 8])
        >>> a[::3, :4]
        array([[0, 7, 8, 0],
               [0, 7, 8, 0]], dtype=int32)
        """
        write(self._described(written=True), section, values, method=method, memory=memory)

    def prefetch(self, section: Any) -> Prefetched:
        """Begin to read a section in a thread, and go on; ``.result()`` is the array.

        At most ``oocarrays.read-ahead`` bytes (256 MiB) are read and not taken yet: what is more waits for its turn.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = OutOfCoreArray(zarr.create_array({}, data=np.arange(8), chunks=(2,)))
        >>> ahead = a.prefetch(np.s_[::3])
        >>> ahead.result()
        array([0, 3, 6])
        """
        taken = selection_of(section, self.shape)
        nbytes = taken.size * self.dtype.itemsize
        most = settings.size_in_bytes(settings.setting("read-ahead"), "read-ahead")
        return AHEAD.add(partial(read, self._file, taken, meter=new_meter()), nbytes, most)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[...], dtype=dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def to_dask(
        self,
        chunks: ChunksLike | None = None,
        *,
        layout: LayoutLike | None = None,
        ranks: int | None = None,
        grid: Sequence[int] | None = None,
        memory: int | float | str | None = None,
        scratch: str | os.PathLike[str] | None = None,
    ) -> LazyArray:
        """A lazy Dask array of any blocks, its name always the same for the same array, blocks and memory.

        Each stored byte is read once, where what is computed lets it: by the block that it is in, or by a group of
        blocks that share stored chunks; where no such group fits in memory, by way of a plain copy in scratch, which
        is gone when it has been used. ``.explain()`` says which, and the bytes that each task holds.

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
        from oocarrays.lazy_array import blocks_for, to_dask

        blocks = blocks_for(self, chunks, layout, ranks=ranks, grid=grid)
        return to_dask(self._file, blocks, memory=memory, scratch=scratch)

    def __repr__(self) -> str:
        return array_line(self)

    def _repr_html_(self) -> str:
        return array_html(array_facts(self._array))


def missing_of(source: Any, asked: str | None = None) -> Policy:
    """What is made of chunks that a source lacks: as it is asked for, as it was opened, or as it is set."""
    return settings.missing(getattr(source, "missing", None) if asked is None else asked)


def placer(storage_options: Mapping[str, Any] | None) -> Callable[[Any], Any]:
    """What makes paths and stores of all that a person may name as a place."""
    ways = settings.ways()

    def place(named: Any) -> Any:
        array = named.zarr if isinstance(named, OutOfCoreArray) else named
        return store_of(array, storage_options, ways)

    return place


def open_array(
    store: StoreLike | zarr.Array,
    *,
    mode: str = "r",
    storage_options: Mapping[str, Any] | None = None,
    missing: str | None = None,
) -> OutOfCoreArray:
    """Open an array in a Zarr store.

    Parameters
    ----------
    store : path, URL, Zarr store or zarr.Array
        Where the array is.
    mode : str
        As in Zarr: ``"r"`` reads, ``"r+"`` reads and writes.
    storage_options : mapping
        How a URL is opened, by the names that fsspec has for it.
    missing : str
        What is made of a chunk that is not there, as `oocarrays.open_array` has it.

    Raises
    ------
    NotFoundError
        Where there is no store, or no array in it.
    UnfinishedError
        Where a run that died left it.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> store = zarr.storage.MemoryStore()
    >>> z = zarr.create_array(store, data=np.arange(12).reshape(3, 4), chunks=(1, 4))
    >>> a = open_array(store)
    >>> a.shape, a.chunks, a[1:, ::3]
    ((3, 4), (1, 4), array([[ 4,  7],
           [ 8, 11]]))
    """
    return OutOfCoreArray(array_file.open_array(placer(storage_options)(store), mode=mode), missing)
