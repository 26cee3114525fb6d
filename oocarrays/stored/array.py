"""Stored arrays: a Zarr array on disk, read and written section by section."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import zarr
from zarr.storage import StorePath, WrapperStore

from oocarrays.graphs import settings
from oocarrays.graphs.settings import setting
from oocarrays.mapping.given import Policy, as_numpy
from oocarrays.mapping.grid import Extents
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.points import Points, is_paired
from oocarrays.mapping.selection import Selection
from oocarrays.options.given import around
from oocarrays.plan.sections.sieve import Method
from oocarrays.plan.sections.write import WriteMethod
from oocarrays.show.contents import array_facts
from oocarrays.show.notebook import array_html
from oocarrays.show.report import bytes_text, shape_text
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile, describe
from oocarrays.storage.files.descriptor import Descriptor, descriptor_of
from oocarrays.storage.files.formats import dimension_names, stored_order
from oocarrays.storage.files.places import StoreLike, location
from oocarrays.storage.files.presence import shows_chunks
from oocarrays.storage.local.fs import DESCRIPTOR
from oocarrays.storage.meter import new_meter
from oocarrays.storage.sections.runs import RunReader
from oocarrays.storage.stores.joined import at_place
from oocarrays.storage.stores.urls import absolute, check_options, store_of, twin
from oocarrays.stored import reading
from oocarrays.stored.reading import Indexed, Prefetched, read, read_small, selection_of, write


class StoredArray(Extents):
    """An array in a Zarr store: ``a[key]`` is a numpy array, as in Zarr, and ``a[key] = values`` writes."""

    def __init__(self, array: zarr.Array, missing: str | None = None) -> None:
        self._array: zarr.Array = absolute(array)
        self._missing = settings.missing(missing)
        self._had_chunks = self._array.read_only and shows_chunks(self._array)
        self._known: dict[bool, tuple[Any, ArrayFile]] = {}
        self._small: RunReader | None = None

    def __reduce__(self) -> Any:
        return type(self), (self._array, self._missing)

    @property
    def _file(self) -> ArrayFile:
        return self._described(written=False)

    def _described(self, *, written: bool) -> ArrayFile:
        """Return the array as the readers and writers need it, read again if its metadata changed, as by
        ``a.zarr.resize``.

        Whether it has any chunks is known from its opening; once it is written, all may become fill values.
        """
        known, metadata = self._known.get(written), self._array.metadata
        if known is None or known[0] is not metadata:
            file = describe(self._array, written=written, missing=None if written else self._missing)
            file = replace(file, presence=replace(file.presence, stored=int(self._had_chunks)))
            self._known[written] = known = metadata, file
        return known[1]

    @property
    def _runs(self) -> RunReader:
        file, reader = self._file, self._small
        if reader is None or reader.file is not file:
            self._small = reader = RunReader(file)
        return reader

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis."""
        return tuple(self._array.shape)

    @property
    def dtype(self) -> np.dtype:
        """Type of an element."""
        return self._array.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.dtype.itemsize

    @property
    def shards(self) -> tuple[int, ...] | None:
        """Shard length in each axis; None without shards."""
        shards = self._array.shards
        return None if shards is None else tuple(shards)

    @property
    def codecs(self) -> tuple[Any, ...]:
        """The codecs of its chunks, in the order in which they are applied: filters, then compressors."""
        return (*self._array.filters, *self._array.compressors)

    @property
    def path(self) -> str:
        """Path of the array in its store."""
        return self._array.path

    @property
    def chunks(self) -> tuple[int, ...]:
        """Chunk length in each axis."""
        return tuple(self._array.chunks)

    @property
    def attrs(self) -> dict[str, Any]:
        """The user's attributes."""
        return {name: value for name, value in self._array.attrs.asdict().items() if name != DESCRIPTOR}

    @property
    def dimension_names(self) -> tuple[str | None, ...] | None:
        """Names of the axes, or None; in format 2 as xarray keeps them."""
        return dimension_names(self._array)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the axes, as in xarray: ``dim_0`` and so on for axes without names."""
        names = self.dimension_names or (None,) * self.ndim
        return tuple(f"dim_{axis}" if name is None else name for axis, name in enumerate(names))

    @property
    def _descriptor(self) -> Descriptor | None:
        return descriptor_of(self._array.attrs.asdict(), self.store)

    @property
    def layout(self) -> Layout | None:
        """Layout of a global array file over ranks, if its descriptor has one."""
        said = self._descriptor
        return said.layout if said and said.rank is None else None

    @property
    def depth(self) -> tuple[int, ...]:
        """Halo width along each axis, on either side; 0 unless its descriptor has one."""
        said = self._descriptor
        return said.depth if said else (0,) * self.ndim

    @property
    def orientation(self) -> tuple[int, ...]:
        """Storage order of a chunk's elements: the axes from the slowest to the fastest."""
        return stored_order(self._array) or tuple(range(self.ndim))

    @property
    def fill_value(self) -> Any:
        """Value of elements that are not stored."""
        return self._array.fill_value

    @property
    def missing(self) -> Policy:
        """Policy for missing chunks in all reads of this array, as given to `open_array`."""
        return self._missing

    @property
    def zarr(self) -> zarr.Array[Any]:
        """The Zarr array itself."""
        return self._array

    @property
    def store(self) -> str:
        """Store of the array."""
        return location(self._array)

    def __getitem__(self, key: Any) -> Any:
        if is_paired(key):
            return self._at(Points.of(key, self.shape))
        found = read_small(self._runs, key)
        return self.read(Selection.of(key, self.shape)) if found is None else found

    def __setitem__(self, key: Any, values: Any) -> None:
        if is_paired(key):
            reading.write_points(self._described(written=True), Points.of(key, self.shape), values)
        else:
            self.write(Selection.of(key, self.shape), values)

    def _at(self, taken: Points) -> Any:
        reading.check_room(taken.size * self.dtype.itemsize)
        return reading.read_points(self._file, taken)

    @property
    def oindex(self) -> Indexed:
        """Product indexing: ``a.oindex[[0, 3], :, [1, 2]]``, read and written as ``a[...]``.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = StoredArray(zarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(2, 2)))
        >>> a.oindex[[0, 2], [1, 3]]
        array([[ 1,  3],
               [ 9, 11]])
        """
        return Indexed(self.read, self.write)

    @property
    def vindex(self) -> Indexed:
        """Point indexing: ``a.vindex[[0, 3], [1, 2]]``; the points are the first axis of the result.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = StoredArray(zarr.create_array({}, data=np.arange(12).reshape(3, 4), chunks=(2, 2)))
        >>> a.vindex[[0, 2], [1, 3]]
        array([ 1, 11])
        """
        return Indexed(
            lambda key: self._at(Points.of(key, self.shape, first=True)),
            lambda key, values: reading.write_points(
                self._described(written=True), Points.of(key, self.shape, first=True), values
            ),
        )

    def read(self, section: Any, *, method: Method = "auto", out: np.ndarray | None = None) -> Any:
        """Return a section as a numpy array, as ``a[section]``.

        Of uncompressed chunks, and of those in shards, only byte ranges are read. Ranges are merged if reading the gap
        between them is faster than a second request, within ``oocarrays.sieve-buffer`` bytes a buffer.

        Parameters
        ----------
        section : index or Section
            As in ``a[section]``; sequences of indices along several axes take their product, as Zarr's ``oindex``.
        method : str
            ``"direct"`` requests each run of the section, ``"sieve"`` each chunk's range from its first to its last
            element, as far as a buffer holds it, ``"auto"`` the cheapest. Coded chunks are read whole.
        out : numpy.ndarray, optional
            Array to fill and return.

        Raises
        ------
        SelectionError
            For an index out of range, or if ``out`` has another shape.
        CorruptChunkError
            If a chunk is truncated, or cannot be decoded.
        BudgetError
            If the section exceeds ``oocarrays.whole-array-limit``, by default half of the free memory; `load` reads it
            without that limit.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = StoredArray(zarr.create_array({}, data=np.arange(24).reshape(4, 6), chunks=(2, 6)))
        >>> a.read(([0, 3], slice(None, None, 2)), method="sieve")
        array([[ 0,  2,  4],
               [18, 20, 22]])
        """
        taken = selection_of(section, self.shape)
        file = self._file
        if out is None:
            reading.check_room(taken.size * file.stored.itemsize)
        return read(file, taken, method=method, out=out, runs=self._runs)

    def load(self, section: Any = ...) -> Any:
        """Return a section, by default all, as a numpy array, without a memory limit.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> StoredArray(zarr.create_array({}, data=np.arange(4), chunks=(2,))).load()
        array([0, 1, 2, 3])
        """
        return read(self._file, selection_of(section, self.shape), runs=self._runs)

    def write(
        self, section: Any, values: Any, *, method: WriteMethod = "auto", memory: int | float | str | None = None
    ) -> None:
        """Write values to a section, as ``a[section] = values``; other elements of its chunks keep their values.

        Concurrent writes to the same chunks lose nothing: from threads of this process, and from other processes in
        local files. In other stores, processes are not protected from each other.

        Parameters
        ----------
        section : index or Section
            As in ``a[section]``.
        values : array or scalar
            Broadcast and cast as numpy does; numbers may be rounded, and integers and texts must fit.
        method : str
            ``"sieve"`` and ``"auto"`` read, change and replace each chunk at once. ``"direct"`` writes each run of an
            uncompressed chunk of a local file in place: a reader, or a crash, can come between two runs.
        memory : int or str, optional
            Budget in bytes beside the values; by default 256 MiB, or the need of one chunk.

        Raises
        ------
        InputError
            If the array is open for reading only.
        SelectionError
            For an index out of range, or values that do not fit.
        UnsupportedError
            For ``"direct"`` if chunks cannot be changed in place.
        BudgetError
            If ``memory`` is too small for one chunk.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = StoredArray(zarr.create_array({}, shape=(4, 6), chunks=(2, 6), dtype="i4"))
        >>> a.write(np.s_[::3, 1:3], [7, 8])
        >>> a[::3, :4]
        array([[0, 7, 8, 0],
               [0, 7, 8, 0]], dtype=int32)
        """
        write(self._described(written=True), section, values, method=method, memory=memory)

    def prefetch(self, section: Any) -> Prefetched:
        """Start to read a section in a thread and return at once; ``.result()`` is the array.

        At most ``oocarrays.read-ahead`` bytes (256 MiB) are read ahead of ``.result()``; further sections wait.

        Examples
        --------
        >>> import numpy as np, zarr
        >>> a = StoredArray(zarr.create_array({}, data=np.arange(8), chunks=(2,)))
        >>> ahead = a.prefetch(np.s_[::3])
        >>> ahead.result()
        array([0, 3, 6])
        """
        taken = selection_of(section, self.shape)
        nbytes = taken.size * self.dtype.itemsize
        most = settings.size_in_bytes(setting("read-ahead"), "read-ahead")
        return reading.AHEAD.add(partial(read, self._file, taken, meter=new_meter()), nbytes, most)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return as_numpy(lambda: self[...], dtype)

    def __repr__(self) -> str:
        names, shards = self.dimension_names, self.zarr.shards
        named = f" ({', '.join(map(str, names))})" if names else ""
        return (
            f"<oocarrays.{type(self).__name__} {shape_text(self.shape)}{named} {self.dtype}, "
            f"chunks {shape_text(self.chunks)}{f', shards {shape_text(shards)}' if shards else ''}, "
            f"{bytes_text(self.nbytes)}, {self.store}>"
        )

    def _repr_html_(self) -> str:
        return array_html(array_facts(self._array))


def missing_of(source: Any, asked: str | None = None) -> Policy:
    """Return the policy for missing chunks: the argument, or that of the opened source, or the setting."""
    return settings.missing(getattr(source, "missing", None) if asked is None else asked)


def placer(storage_options: Mapping[str, Any] | None, *places: Any) -> Callable[[Any], Any]:
    """Return a function that opens a location given by the user as a path or a store.

    Raise if all ``places`` of the call are local paths: options are for URLs, unless they are those of all calls.
    """
    ways = settings.ways()
    if storage_options is not around().storage_options:
        check_options(storage_options, places)

    def place(named: Any) -> Any:
        array = named.zarr if isinstance(named, StoredArray) else named
        return store_of(array, storage_options, ways)

    return place


def opened(
    store: StoreLike | zarr.Array[Any] | np.ndarray,
    *,
    mode: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> zarr.Array[Any]:
    """Return the Zarr array at a location; one that is open for writing stays so, except with ``"r"``."""
    array = array_file.open_array(placer(storage_options, store)(store), mode="r" if mode is None else mode)
    return array if mode != "r" or array.read_only else _for_reading(array)


def _for_reading(array: zarr.Array) -> zarr.Array[Any]:
    there = array.store_path
    try:
        store = there.store.with_read_only(True)
    except (NotImplementedError, TypeError):  # zip files, and wrappers of other libraries
        store = _read_only(there.store)
    return at_place(array, StorePath(store, there.path))


def _read_only(store: Any) -> Any:
    wraps = isinstance(store, WrapperStore)
    return twin(store, _store=_read_only(store._store)) if wraps else twin(store, _read_only=True)
