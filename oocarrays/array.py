"""The array that a person holds: a Zarr array on disk, read section by section."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import zarr
from dask.base import tokenize

from oocarrays.chunks import ChunksLike, blocks_of, regular_chunks
from oocarrays.contents import array_facts
from oocarrays.errors import ChunksError
from oocarrays.graphs import settings
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.selection import Selection
from oocarrays.notebook import array_html
from oocarrays.plan.sieve import Method
from oocarrays.plan.sieve_writes import WriteMethod
from oocarrays.reading_ahead import AHEAD, Prefetched
from oocarrays.report import array_line
from oocarrays.section_reading import read
from oocarrays.section_writing import selection_of, write
from oocarrays.storage import array_file
from oocarrays.storage.array_file import StoreLike
from oocarrays.storage.formats import dimension_names
from oocarrays.storage.urls import store_of


class OutOfCoreArray:
    """An array in a Zarr store, of which only what is asked for comes into memory.

    ``a[key]`` is a numpy array, as in Zarr; ``a.to_dask()`` is lazy. Made by `open_array`.
    """

    def __init__(self, array: zarr.Array) -> None:
        self._array = array

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
        return dict(self._array.attrs.asdict())

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """Names of the axes, where they have names; in format 2 as xarray keeps them."""
        return dimension_names(self._array)

    @property
    def fill_value(self) -> Any:
        """Value of what is not stored."""
        return self._array.fill_value

    @property
    def zarr(self) -> zarr.Array:
        """The Zarr array itself."""
        return self._array

    @property
    def store(self) -> str:
        """Where the array is."""
        return array_file.location(self._array)

    def __getitem__(self, key: Any) -> Any:
        return read(self._array, Selection.as_numpy(key, self.shape))

    def __setitem__(self, key: Any, values: Any) -> None:
        Selection.as_numpy(key, self.shape)
        self.write(key, values)

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
        return read(self._array, selection_of(section, self.shape), method=method, out=out)

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
        write(self._array, section, values, method=method, memory=memory)

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
        return AHEAD.add(partial(read, self._array, taken), nbytes, most)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self[...], dtype=dtype)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of an array without axes")
        return self.shape[0]

    def to_dask(self, chunks: ChunksLike | None = None) -> Any:
        """A lazy ``dask.array.Array``, its name always the same for the same array and chunks.

        Parameters
        ----------
        chunks : int, str, tuple or dict
            Lengths of the blocks as `rechunk` takes them, ``"auto"`` or ``"128MiB"`` among them; by default those of
            the stored chunks (of the shards, where there are shards).

        Raises
        ------
        ChunksError
            Where a block is not made of whole stored chunks: several tasks would read the same one.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> z = zarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(1, 2))
        >>> OutOfCoreArray(z).to_dask({1: -1}).chunks
        ((1, 1, 1), (4,))
        """
        from dask.array import from_zarr

        stored = tuple(self._array.shards or self._array.chunks)
        grid = ChunkGrid.of(self.shape, stored)
        lengths = stored if chunks is None else regular_chunks(chunks, grid, self.dtype, self.dimension_names)
        for length, n, c in zip(lengths, self.shape, stored, strict=True):
            if length % c and length < n:
                raise ChunksError(f"chunks={chunks!r}: {length} is not a whole number of the {c} that are stored")
        name = f"oocarrays-{tokenize(self.store, self._array.metadata.to_dict(), lengths)}"
        return from_zarr(self._array, chunks=tuple(map(blocks_of, self.shape, lengths)), name=name)  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:
        return array_line(self)

    def _repr_html_(self) -> str:
        return array_html(array_facts(self._array))


def placer(storage_options: Mapping[str, Any] | None) -> Callable[[Any], Any]:
    """What makes paths and stores of all that a person may name as a place."""
    ways = settings.ways()

    def place(named: Any) -> Any:
        array = named.zarr if isinstance(named, OutOfCoreArray) else named
        return store_of(array, storage_options, ways)

    return place


def open_array(
    store: StoreLike | zarr.Array, *, mode: str = "r", storage_options: Mapping[str, Any] | None = None
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
    return OutOfCoreArray(array_file.open_array(placer(storage_options)(store), mode=mode))
