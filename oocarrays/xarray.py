"""xarray integration: ``import oocarrays.xarray`` adds ``.ooc`` to datasets, and an engine to ``open_dataset``.

    xr.open_dataset("maps.nc", engine="oocarrays")             every store of `open_group`; read by sections
    oocarrays.xarray.open_dataset("maps.nc", {"time": 100})    lazy arrays in blocks, each stored byte read once
    ds.ooc.rechunk({"time": -1, "lat": 20}, "series.zarr")
    ds.air.ooc.map_slabs(kernel, "smooth.zarr", depth={"lat": 1, "lon": 1})

xarray's own coders decode and encode packed values; axes are named by their dimensions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

try:
    import xarray as xr
except ModuleNotFoundError as error:
    if error.name != "xarray":
        raise
    raise ModuleNotFoundError("xarray is not installed: pip install 'oocarrays[xarray]'", name="xarray") from None
from xarray.backends import BackendArray, BackendEntrypoint
from xarray.backends.zarr import ZarrArrayWrapper, ZarrBackendEntrypoint, ZarrStore
from xarray.coding.strings import create_vlen_dtype
from xarray.core import indexing

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.groups import OutOfCoreGroup, open_group
from oocarrays.distributed.collective import read_sections
from oocarrays.errors import BudgetError, InputError, NotFoundError, UnsupportedError
from oocarrays.jobs.passes import SlabJob
from oocarrays.jobs.rechunking import rechunk
from oocarrays.jobs.slabs import map_slabs
from oocarrays.mapping.given import refuse
from oocarrays.options.asked import cluster_of
from oocarrays.options.given import Target, means_of, own_of, verb
from oocarrays.options.packing import PACKED, TIMED, Unpacked
from oocarrays.options.shapes import Results
from oocarrays.plan.machine import check_budgets
from oocarrays.reductions.asked import Asked, How
from oocarrays.reductions.reducing import reduced
from oocarrays.storage.files import array_file
from oocarrays.storage.foreign.facts import Facts
from oocarrays.storage.stores.joined import foreign_at
from oocarrays.stored.lazy_array import LazyArray

MASKS = "use_zarr_fill_value_as_mask"
"""Option that takes the fill value of an array of format 3 as missing, as format 2 always does."""
DECODING = (
    "mask_and_scale", "decode_times", "concat_characters", "decode_coords", "drop_variables", "use_cftime",
    "decode_timedelta", MASKS,
)  # fmt: skip
"""Options of ``xarray.open_dataset`` for decoding."""
NUMBERS = "biufc"
"""Kinds of elements that oocarrays reads; xarray reads texts."""
NOT_SAID: dict[str, Any] = {"depth": 0, "boundary": "none", "window": None, "chunks": -1}
"""Options of `map_slabs`, and chunks, that may be mappings of dimensions, with values for those left out."""


# ---------------------------------------------------------------------- the engine


class StoredBackendArray(BackendArray):
    """Stored array, as xarray indexes it."""

    def __init__(self, stored: OutOfCoreArray) -> None:
        self.stored = stored
        self.shape, self.dtype = stored.shape, stored.dtype.newbyteorder("=")

    def __getitem__(self, key: Any) -> Any:
        paired = isinstance(key, indexing.VectorizedIndexer)
        read: Callable[[Any], Any] = self.stored.vindex.read if paired else self.stored.load
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.VECTORIZED, read)

    async def async_getitem(self, key: Any) -> Any:
        """Read a part in a thread, for ``load_async``."""
        return await asyncio.to_thread(self.__getitem__, key)


class ForeignText(ZarrArrayWrapper):
    """Texts of a file other than Zarr, as objects: xarray writes these to NetCDF, but not numpy's own texts."""

    __slots__ = ()

    def __init__(self, array: Any) -> None:
        super().__init__(array)  # type: ignore[no-untyped-call]
        self.dtype = create_vlen_dtype(str)  # type: ignore[no-untyped-call]

    def __getitem__(self, key: Any) -> Any:
        return np.asarray(super().__getitem__(key), object)  # type: ignore[no-untyped-call]


class GroupStore(ZarrStore):
    """Zarr group with arrays read by oocarrays: lazily, or as Dask arrays of any blocks."""

    __slots__ = ("_blocks", "_memory", "_opened", "refused")

    def __init__(
        self,
        group: OutOfCoreGroup,
        blocks: Mapping[str, Any] | None = None,
        memory: Any = None,
        masks: bool | None = None,
    ) -> None:
        masks = bool(masks) or group.zarr.metadata.zarr_format == 2
        super().__init__(group.zarr, mode="r", use_zarr_fill_value_as_mask=masks)
        self._opened, self._blocks, self._memory = group, blocks, memory
        self.refused: list[BudgetError] = []

    def open_store_variable(self, name: str) -> xr.Variable:
        stored, facts = self._opened.get(name), self._facts(name)
        made: xr.Variable
        made = _foreign_variable(self.members[name], facts) if facts else super().open_store_variable(name)  # type: ignore[no-untyped-call]
        if stored is None or stored.dtype.kind not in NUMBERS:
            return made
        data: Any = indexing.LazilyIndexedArray(StoredBackendArray(stored))
        if self._blocks is not None and stored.ndim and made.dims != (name,):
            stale = ("chunks", "shards", "preferred_chunks")  # other than the blocks: `to_zarr` would refuse them
            made.encoding = {name: said for name, said in made.encoding.items() if name not in stale}
            chunks = {axis: self._blocks[str(dim)] for axis, dim in enumerate(made.dims) if dim in self._blocks}
            try:
                data = _plain(stored.to_dask(chunks, memory=self._memory))
            except BudgetError as error:  # raised when all variables are known
                self.refused.append(error)
        return xr.Variable(made.dims, data, made.attrs, made.encoding)

    def get_encoding(self) -> dict[str, Any]:
        """Return the encoding of the dataset: the names of its unlimited dimensions, if the file records them."""
        endless = [facts.endless for name in self.array_keys() if (facts := self._facts(name)) is not None]
        return {"unlimited_dims": set().union(*endless)} if endless else {}

    def _facts(self, name: str) -> Facts | None:
        """Return the facts of a variable in a file other than Zarr; None for a Zarr store."""
        found = foreign_at(self._opened.zarr.store_path / name)
        return found[0].facts(found[1]) if found else None


def _foreign_variable(array: Any, facts: Facts) -> xr.Variable:
    """Return a variable of a file other than Zarr, with the attributes and encoding of its usual readers."""
    dims: list[str] = []
    for name, length in zip(facts.names or (None,) * array.ndim, array.shape, strict=True):
        dims.append(name or f"phony_dim_{length}{'_' * sum(each.startswith(f'phony_dim_{length}') for each in dims)}")
    encoding = dict(facts.encoding)
    if encoding.get("chunksizes"):
        encoding["preferred_chunks"] = dict(zip(dims, facts.chunks, strict=True))
    if encoding:
        encoding["original_shape"] = array.shape  # of a part of it, xarray writes other chunks
    is_text = facts.dtype == "O"
    if is_text:
        encoding["dtype"] = str
    wrapped: Any = ForeignText(array) if is_text else ZarrArrayWrapper(array)  # type: ignore[no-untyped-call]
    data: Any = indexing.LazilyIndexedArray(wrapped)
    return xr.Variable(dims, data, facts.attributes | facts.native, encoding)


class Engine(BackendEntrypoint):
    """Engine ``xr.open_dataset(place, engine="oocarrays")``: opens all stores of `open_group`, NetCDF-4 and HDF5
    included."""

    description = "Zarr, and what oocarrays reads as Zarr: NetCDF, HDF5, TIFF, FITS"
    open_dataset_parameters = ("filename_or_obj", *DECODING, "group", "storage_options")
    supports_groups = True

    def guess_can_open(self, filename_or_obj: Any) -> bool:
        """Return False: the engine must be named."""
        return False

    def open_dataset(  # type: ignore[override]
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **decoding: Any,
    ) -> xr.Dataset:
        """Open a group as a dataset; ``decoding`` as ``xarray.open_dataset`` takes it."""
        opened = _group(filename_or_obj, group, storage_options)
        return _decoded(GroupStore(opened, masks=decoding.get(MASKS)), decoding)

    def open_groups_as_dict(  # type: ignore[override]
        self,
        filename_or_obj: Any,
        *,
        group: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
        **decoding: Any,
    ) -> dict[str, xr.Dataset]:
        """Open a group and all groups below it, each as a dataset, by their paths."""
        top = _group(filename_or_obj, group, storage_options)
        named = {path or "." if group else f"/{path}": each for path, each in _groups(top)}
        stores = {path: GroupStore(each, masks=decoding.get(MASKS)) for path, each in named.items()}
        return {path: _decoded(each, decoding) for path, each in stores.items()}

    def open_datatree(self, filename_or_obj: Any, **how: Any) -> xr.DataTree:  # type: ignore[override]
        """Open a group and all groups below it as a tree."""
        return xr.DataTree.from_dict(self.open_groups_as_dict(filename_or_obj, **how))


def _group(place: Any, path: str | None, storage_options: Mapping[str, Any] | None) -> OutOfCoreGroup:
    top = open_group(place, storage_options=storage_options)
    inner = "" if path is None else str(path).strip("/")
    if not inner:
        return top
    below = dict(_groups(top))
    if inner not in below:
        listed = ", ".join(map(repr, filter(None, below))) or "none"
        raise NotFoundError(f"no group {path!r} in {top.store}; its groups: {listed}")
    return below[inner]


def _groups(top: OutOfCoreGroup, path: str = "") -> Iterator[tuple[str, OutOfCoreGroup]]:
    yield path, top
    for name, each in top.zarr.groups():
        yield from _groups(open_group(each), f"{path}/{name}".lstrip("/"))


def open_dataset(
    place: Any,
    chunks: Mapping[str, Any],
    *,
    memory: int | float | str | None = None,
    group: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    **decoding: Any,
) -> xr.Dataset:
    """Open a group as a dataset of lazy arrays of any blocks, each stored byte read once if memory allows it.

    ``xr.open_dataset(..., engine="oocarrays", chunks=...)`` reads block by block instead, and a chunk again for each
    block that overlaps it.

    Parameters
    ----------
    place : path, URL or Zarr store
        A store that `open_group` opens.
    chunks : mapping
        Lengths of blocks by dimension; other dimensions use the stored chunks.
    memory : int or str
        Budget of all tasks of a process together, in bytes, as in `OutOfCoreArray.to_dask`.
    group : str, optional
        Path of a group below the place.
    decoding
        As ``xarray.open_dataset`` takes it: ``mask_and_scale``, ``decode_times``, ``drop_variables`` and others.

    Raises
    ------
    NotFoundError
        If there is no such group; `BudgetError` if the blocks of some variable do not fit.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> _ = xr.Dataset({"a": ("x", np.arange(4))}).to_zarr(f"{folder}/a.zarr", consolidated=False)
    >>> open_dataset(f"{folder}/a.zarr", {"x": 2}).a.chunks
    ((2, 2),)
    """
    store = GroupStore(_group(place, group, storage_options), chunks, memory, decoding.get(MASKS))
    decoded = _decoded(store, decoding)
    check_budgets(store.refused)
    for name in decoded.dims:  # an index for each dimension coordinate, as ``xarray.open_dataset`` has
        if name in decoded.coords and decoded[name].dims == (name,) and name not in decoded.xindexes:
            decoded = decoded.set_xindex([name])
    return decoded


def _plain(lazy: LazyArray) -> Any:
    """Return the array as a plain Dask array with its plan: xarray does not compute two types together."""
    import dask.array as da

    made: Any = da.Array(lazy.dask, lazy.name, lazy.chunks, meta=lazy._meta, dtype=lazy.dtype)
    made.plan, made.meter, made.explain = lazy.plan, lazy.meter, lazy.explain
    return made


def _decoded(store: GroupStore, decoding: Mapping[str, Any]) -> xr.Dataset:
    unknown = sorted(decoding.keys() - set(DECODING))
    if unknown:
        raise InputError(f"{unknown[0]}= is not an option of engine='oocarrays'; its options are {', '.join(DECODING)}")
    return ZarrBackendEntrypoint().open_dataset("", store=store, **decoding)


def stored_in(variable: xr.Variable) -> OutOfCoreArray | None:
    """Return the stored array of a variable opened by the engine, decoded or not; None for other variables."""
    data: Any = variable._data
    while not isinstance(data, StoredBackendArray):
        if isinstance(data, indexing.LazilyIndexedArray) and data.shape != data.array.shape:
            return None
        data = getattr(data, "array", None)
        if data is None:
            return None
    return data.stored if data.shape == variable.shape else None


# ---------------------------------------------------------------------- accessors


@xr.register_dataset_accessor("ooc")  # type: ignore[no-untyped-call]
class DatasetMethods:
    """Methods of datasets under ``.ooc``."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self._dataset = dataset

    def __repr__(self) -> str:
        return "oocarrays of a dataset: rechunk, sections"

    def rechunk(self, chunks: Any, target: Any, **how: Any) -> Any:
        """Plan to write the dataset in other chunks, by dimension, with the options of `oocarrays.rechunk`."""
        return rechunk(self._dataset, target, chunks=chunks, **how)

    def sections(self, sections: Sequence[Mapping[str, Any] | None], **how: Any) -> dict[str, Any]:
        """Read sections of each numeric variable that the engine opened, one a rank; returns them by name.

        Parameters
        ----------
        sections : sequence of mappings
            A section by dimension for each rank, ``{"time": slice(0, 10)}``; it applies to variables with that
            dimension.

        Raises
        ------
        InputError
            If a dimension is not one of the dataset.
        """
        unknown = [name for each in sections if each for name in each if name not in self._dataset.dims]
        if unknown:
            dims = ", ".join(map(str, self._dataset.dims))
            raise InputError(f"{unknown[0]!r} is not a dimension of the dataset, which has {dims}")
        arrays = {name: array for name, array in self._dataset.data_vars.items() if stored_in(array.variable)}
        return {
            str(name): DataArrayMethods(array).sections(
                [each and {dim: key for dim, key in each.items() if dim in array.dims} for each in sections], **how
            )
            for name, array in arrays.items()
        }


@xr.register_dataarray_accessor("ooc")  # type: ignore[no-untyped-call]
class DataArrayMethods:
    """Methods of data arrays under ``.ooc``."""

    def __init__(self, array: xr.DataArray) -> None:
        self._array = array

    def __repr__(self) -> str:
        return "oocarrays of a data array: rechunk, map_slabs, reduce, sections, stored"

    def rechunk(self, chunks: Any, target: Any, **how: Any) -> Any:
        """Plan to write the array in other chunks, by dimension, with the options of `oocarrays.rechunk`."""
        return rechunk(self._array, target, chunks=chunks, **how)

    @property
    def stored(self) -> OutOfCoreArray:
        """Stored array behind this one.

        Raises
        ------
        UnsupportedError
            If it was not opened by ``engine="oocarrays"``, or is only a part of such an array, or computed.
        """
        found = stored_in(self._array.variable)
        if found is None:
            raise UnsupportedError(
                f"{self._array.name!r} is not a stored array: open it by xarray.open_dataset(…, "
                'engine="oocarrays"), or write it first'
            )
        return found

    def map_slabs(
        self, kernel: Callable[[np.ndarray], np.ndarray], target: Any, *, decode: bool = True, **how: Any
    ) -> SlabJob[Any]:
        """Plan to write a kernel's results for the array, as `oocarrays.map_slabs`, with dimensions in place of axes.

        Parameters
        ----------
        kernel : callable
            Takes and returns values as xarray shows them; with ``decode=False``, as they are stored.
        target : path, URL, Zarr store or Target
            Location of the result, packed as its source is.
        how
            As in `oocarrays.map_slabs`: ``depth``, ``boundary``, ``window`` and chunks of the target may be mappings of
            dimensions, and ``drop_axis`` of the results one or several of them.

        Raises
        ------
        UnsupportedError
            If the array is not as it is stored.
        KernelError
            During a run, if a value cannot be packed.
        """
        stored = self.stored
        results = how.get("results") or Results()
        how |= {name: self._each(name, how[name]) for name in NOT_SAID if name in how}
        if isinstance(target, Target) and results.drop_axis is results.new_axis is None:
            target = replace(target, chunks=self._each("chunks", target.chunks))
        how["results"] = replace(results, drop_axis=self._numbers(results.drop_axis))
        unpacked = self._unpacked(kernel) if decode else None
        if unpacked and isinstance(target, Target):
            refuse("of packed values is carried over: leave it out, or pass decode=False", **own_of(target))
        return map_slabs(unpacked or kernel, stored, target, **how)

    def _each(self, name: str, said: Any) -> Any:
        """Return a mapping of dimensions as one value for each."""
        if not isinstance(said, Mapping):
            return said
        known = self._known(said)
        return tuple(known.get(dim, NOT_SAID[name]) for dim in self._dims())

    @verb(old={"ddof": 'how=("std", {"ddof": 1})'})
    def reduce(
        self,
        how: How,
        dim: str | Sequence[str] | None = None,
        *,
        by: Any = None,
        where: Any = None,
        skipna: bool = True,
        memory: int | float | str | None = None,
    ) -> xr.DataArray:
        """Reduce decoded values along dimensions out of core, as `oocarrays.reduce`.

        Parameters
        ----------
        by : str, DataArray or sequence
            Labels along ``dim``, or the name of a coordinate or of a part of a time, such as ``"time.month"``.
        where : DataArray or array of bool
            Mask of the elements to count, of any of its dimensions.

        Raises
        ------
        UnsupportedError
            If the array is not as it is stored.

        Examples
        --------
        >>> import tempfile
        >>> place = f"{tempfile.mkdtemp()}/a.zarr"
        >>> made = xr.Dataset({"a": (("t", "x"), np.arange(6.0).reshape(3, 2))})
        >>> _ = made.to_zarr(place, consolidated=False)
        >>> xr.open_dataset(place, engine="oocarrays").a.ooc.reduce("mean", "t").values
        array([2., 3.])
        """
        stored, dims = self.stored, self._dims()
        named = dims if dim is None else (dim,) if isinstance(dim, str) else tuple(dim)
        self._known(dict.fromkeys(named))
        labels = self._labels(by) if isinstance(by, str) else by
        mask = where.broadcast_like(self._array).transpose(*dims).values if isinstance(where, xr.DataArray) else where
        work = self._unpacked(lambda block: block, (*PACKED, *TIMED) if self._array.dtype.kind in "mM" else PACKED)
        axes, groups = [dims.index(name) for name in named], None if by is None else np.asarray(labels)
        asked = Asked.of(how, axis=axes, by=groups, where=mask, skipna=skipna)
        file = array_file.describe_source(stored.zarr, stored.missing)
        means = means_of(None, reduced, memory=memory)
        cluster = cluster_of(means.scheduler, means.workers)
        made = reduced(file, asked, means.memory, None if work is None else work.decoded, cluster)
        kept = [name for name in dims if name not in named or by is not None]
        coords = {name: self._array[name] for name in kept if name in self._array.coords and name not in named}
        if by is not None:
            group = str(getattr(labels, "name", None) or "group")
            kept[kept.index(named[0])] = group
            values = np.unique(np.asarray(labels))
            coords[group] = values[values == values]  # neither NaN nor NaT
        return xr.DataArray(made, coords, kept, name=self._array.name)

    def _labels(self, by: str) -> xr.DataArray:
        try:
            return self._array[by]
        except (KeyError, AttributeError):
            names = ", ".join(map(str, self._array.coords))
            raise InputError(
                f"by={by!r} is no coordinate ({names}) and no part of a time, such as 'time.month'; "
                "labels of other periods: by=array.time.dt.strftime('%Y-%m')"
            ) from None

    def _unpacked(self, kernel: Callable[[np.ndarray], np.ndarray], names: Sequence[str] = PACKED) -> Unpacked | None:
        """Return the kernel for stored blocks; None if stored values need no decoding."""
        packing = {name: self._array.encoding[name] for name in names if name in self._array.encoding}
        dtype = self.stored.dtype
        return Unpacked(kernel=kernel, dims=self._dims(), packing=packing, dtype=dtype) if packing else None

    def sections(self, sections: str | Sequence[Mapping[str, Any] | None], **how: Any) -> Any:
        """Read a section for each rank, each chunk once for all, as `oocarrays.ranks.read_sections`: stored values.

        Parameters
        ----------
        sections : str or sequence of mappings
            A layout, or a section by dimension for each rank: ``{"time": slice(0, 10)}``.
        """
        if isinstance(sections, str):
            return read_sections(self.stored, sections, **how)
        dims = self._dims()
        wanted = [
            None if each is None else tuple(self._known(each).get(dim, slice(None)) for dim in dims)
            for each in sections
        ]
        return read_sections(self.stored, wanted, **how)

    def _dims(self) -> tuple[str, ...]:
        return tuple(map(str, self._array.dims))

    def _numbers(self, said: Any) -> Any:
        if isinstance(said, str):
            return self._dims().index(next(iter(self._known({said: None}))))
        return list(map(self._numbers, said)) if isinstance(said, list | tuple) else said

    def _known(self, said: Mapping[str, Any]) -> Mapping[str, Any]:
        unknown = [name for name in said if name not in self._dims()]
        if unknown:
            raise InputError(
                f"{unknown[0]!r} is not a dimension of {self._array.name!r}, which has {', '.join(self._dims())}"
            )
        return said
