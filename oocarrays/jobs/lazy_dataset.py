"""Lazy datasets of xarray: xarray writes metadata and values in memory, oocarrays writes the lazy variables.

xarray alone decides how a variable is encoded in Zarr (dtype, fill value, attributes, codecs). It writes the dataset's
skeleton, without the data of lazy variables, into memory when a job is planned, and into the target when it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import dask
import numcodecs.abc
import zarr
from dask.base import tokenize
from dask.utils import ensure_dict
from zarr.abc.codec import Codec

from oocarrays.errors import ChunksError, InputError, UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import Cluster
from oocarrays.graphs.lazy.dataset import Dataset, Frame, build_graph
from oocarrays.graphs.run.execution import Graph
from oocarrays.graphs.run.run import Run
from oocarrays.jobs.job import Job
from oocarrays.jobs.lazy import FromDaskJob, described, from_dask, planned, rechunk_lazily
from oocarrays.mapping.given import refuse
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.options.asked import as_list, check_lazy, cluster_of, is_dataset, is_lazy, resources_of, scratch_folder
from oocarrays.options.chunks import block_grid, cuts, regular_chunks
from oocarrays.options.given import NONE, Resources, Target
from oocarrays.plan.documents import Settings
from oocarrays.plan.lazy.blocks import DatasetPlan
from oocarrays.plan.machine import within_budget
from oocarrays.requests import checked, form, requested
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.formats import target_settings
from oocarrays.storage.files.group_file import check_group_place
from oocarrays.storage.files.making_room import is_empty
from oocarrays.storage.files.places import member_store, store_path
from oocarrays.storage.journal.sources import trust_of
from oocarrays.storage.journal.texts import REQUEST
from oocarrays.storage.stores.joined import with_drafts
from oocarrays.stored.array import placer

NUMBERS = "biufcmM"
"""Kinds of dtypes with elements of a fixed size, including times."""

if TYPE_CHECKING:
    import dask.array as da
    import xarray as xr

CODECS = ("compressors", "compressor", "filters", "serializer")
"""Keys of an encoding for codecs, which are specific to a Zarr format."""


class DatasetJob(Job[Run[Dataset], Any, DatasetPlan]):
    """Planned write of a dataset: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``.

    The result is that of ``xarray.open_zarr(target)``, or a DataArray if the source is one.
    """

    def __init__(
        self, arrays: Mapping[str, da.Array], run: Run[Dataset], single: bool, cluster: Cluster | None
    ) -> None:
        self._arrays = arrays
        super().__init__(run, partial(_opened, single, run.destination.store), cluster)

    def _noticed(self) -> tuple[str, ...]:
        names = (name for name, _ in self.plan.arrays)
        targets = (part.program.target for part in self._run.parts)
        return tuple(f"{n}: {each}" for n, target in zip(names, targets, strict=True) for each in target.said)

    def again(self, resume: Any, *, overwrite: bool = False, **how: Any) -> Self:
        """Return the job for a call with ``resume``: a stopped run is not continued, it starts over."""
        target = self._run.destination.store
        if trust_of(resume) is None or is_empty(target) or unfinished_run(target) is not None:
            return self
        return self._made_before(self._run.state.content[REQUEST], overwrite)

    def _build(self) -> Graph:
        from dask.array.optimization import optimize
        from dask.highlevelgraph import HighLevelGraph

        keys = [x.__dask_keys__() for x in self._arrays.values()]
        graphs = [x.__dask_graph__() for x in self._arrays.values()]
        tasks = ensure_dict(optimize(HighLevelGraph.merge(*graphs), keys)) if graphs else {}
        graph, last, self._pinned = build_graph(self._run, self._addresses, tasks, keys)
        return graph, last

    def _threads(self) -> int:
        return self.plan.threads

    def _title(self) -> str:
        return f"oocarrays.DatasetJob {', '.join(self._arrays)} → {self._run.destination.store}"


def _opened(single: bool, store: Any, name: str) -> Any:
    import xarray as xr

    if single:
        return xr.open_dataarray(store, engine="zarr", chunks={})
    return xr.open_zarr(store)


def dataset_job(
    source: xr.Dataset | xr.DataArray,
    to: Target,
    means: Resources = NONE,
    *,
    overwrite: bool = False,
    resume: Any = False,
) -> DatasetJob:
    settings.refuse_array_expressions()
    for name in ("shards", "compressors", "filters", "fill_value", "attributes", "dimension_names"):
        if getattr(to, name) is not None:
            raise UnsupportedError(f"{name}= of a dataset comes from its variables' encoding: set it there")
    chunks, store = to.chunks, placer(means.storage_options, to.store)(to.store)
    checked(check_group_place, store, overwrite=overwrite, resume=resume)
    new, token = is_empty(store), _token(source)
    single = not hasattr(source, "data_vars")
    zarr_format = to.zarr_format or 3
    whole: Any = _as_dataset(source) if single else source
    ds: Any = _without_foreign_codecs(_in_blocks(whole), zarr_format)
    if not new:  # the target to be replaced may store what Dask does not compute, such as coordinates
        for variable in ds.variables.values():
            if variable.chunks is None:
                variable.load()
    lazy = [str(name) for name, v in ds.variables.items() if v.chunks is not None and v.size]
    encoded = _encoded(ds, lazy, zarr_format)
    ds, said = _with_chunks(ds, encoded, chunks)
    made = _settings(ds, lazy, zarr_format)
    cluster = cluster_of(means.scheduler, means.workers)
    resources = resources_of(cluster, means.memory)
    makers = [
        partial(
            planned, encoded[name].chunks, described(encoded[name], fill_value=made[name]["fill_value"]),
            member_store(store, name), made[name], resources,
            overwrite=True, straight=new, scratch=scratch_folder(means.scratch, store), said=said[name],
        )
        for name in lazy
    ]  # fmt: skip
    runs = dict(zip(lazy, within_budget(makers), strict=True))
    plan = DatasetPlan(
        arrays=tuple((name, run.program.blocks.plan) for name, run in runs.items()),
        budget=resources.budget,
        processes=resources.workers,
    )
    frame = partial(write_frame, _skeleton(ds, lazy), with_drafts(store_path(store)), zarr_format)
    program = Dataset(plan=plan, target=Frame(store=store, overwrite=not new, write=frame))
    run = Run(program, parts=tuple(runs.values()))
    counts = {name: blocks.rechunk.target.grid.count for name, blocks in plan.arrays}
    request = requested(
        "rechunk", [token], [], [], count=sum(counts.values()), zarr_format=zarr_format,
        chunks={name: form(settings) for name, settings in made.items()}, arrays=counts,
    )  # fmt: skip
    return DatasetJob(encoded, run, single, cluster).asked_for(request).again(resume, overwrite=overwrite)


def _token(source: Any) -> str:
    """Return the identity of a dataset or array, without loading variables that are not in memory."""
    variables = source.variables if hasattr(source, "data_vars") else {"": source.variable, **source._coords}
    return tokenize(
        [
            (str(name), v.dims, v.dtype.str, v.attrs, v.data if v.chunks is not None or v._in_memory else v.encoding)
            for name, v in variables.items()
        ]
    )


def _as_dataset(array: Any) -> xr.Dataset:
    """Return the dataset that xarray's own ``DataArray.to_zarr`` would write."""
    name: Any = "__xarray_dataarray_variable__" if array.name is None else array.name
    if name in array.coords:
        raise UnsupportedError(f"the array and one of its coordinates are both named {name!r}: rename one")
    return array.to_dataset(name=name)


def _in_blocks(ds: xr.Dataset) -> xr.Dataset:
    """Return the dataset with variables in memory as Dask arrays, too: they get the requested chunks."""
    found = ds.copy()
    with dask.config.set({"array.chunk-size": "16MiB"}):
        for name, variable in ds.data_vars.items():
            if variable.chunks is None and variable.size and variable.ndim and variable.dtype.kind in NUMBERS:
                found[name] = variable.chunk("auto")
    return found


def _without_foreign_codecs(ds: xr.Dataset, zarr_format: int) -> xr.Dataset:
    """Return the dataset without codecs of Zarr's other format, so that those variables get the default codecs."""
    kinds, others = (Codec, numcodecs.abc.Codec) if zarr_format == 3 else (numcodecs.abc.Codec, Codec)
    found = ds.copy()
    for variable in found.variables.values():
        said = variable.encoding
        listed = [each for name in CODECS for each in as_list(said.get(name))]
        if any(isinstance(each, others) and not isinstance(each, kinds) for each in listed):
            variable.encoding = {name: value for name, value in said.items() if name not in CODECS}
    return found


def _encoded(ds: xr.Dataset, lazy: Iterable[str], zarr_format: int) -> dict[str, da.Array]:
    """Return the lazy variables as xarray stores them: times as numbers, packed ones packed; still lazy."""
    import dask.array
    from xarray.backends.zarr import encode_zarr_variable

    encode: Callable = encode_zarr_variable
    has_format = "zarr_format" in inspect.signature(encode).parameters  # before 2026.9 it had no such argument
    as_stored = partial(encode, zarr_format=zarr_format) if has_format else encode
    found = {}
    for name in lazy:
        variable = ds.variables[name]
        if variable.dtype.hasobject:
            raise UnsupportedError(f"variable {name!r} has dtype {variable.dtype}: its elements have no fixed size")
        data = as_stored(variable, name=name).data
        found[str(name)] = dask.array.asarray(data)
        check_lazy(found[str(name)])
    return found


def _with_chunks(
    ds: xr.Dataset, encoded: Mapping[str, da.Array], chunks: Any
) -> tuple[xr.Dataset, dict[str, tuple[str, ...]]]:
    """Return the dataset with the chunks of lazy and of named variables in its encoding, and notices of cut ones."""
    for name in chunks if isinstance(chunks, Mapping) else ():
        if name not in ds.variables and name not in ds.dims:
            raise ChunksError(
                f"chunks={chunks!r}: {name!r} is neither a variable nor a dimension; there are variables "
                f"{', '.join(map(str, ds.data_vars))} and dimensions {', '.join(map(str, ds.dims))}"
            )
    ds, said = ds.copy(), {}
    for name, variable in ds.variables.items():
        asked, names = _asked(chunks, name, variable.dims), tuple(map(str, variable.dims))
        if name in encoded:
            x = encoded[str(name)]
            grid, dtype = block_grid(x), x.dtype
        elif isinstance(chunks, Mapping) and name in chunks and name not in ds.dims:
            grid, dtype = ChunkGrid.of(variable.shape, tuple(max(n, 1) for n in variable.shape)), variable.dtype
        else:
            continue
        lengths = regular_chunks(asked, grid, dtype, names)
        said[str(name)] = cuts(asked, None, grid, names)
        stale = ("preferred_chunks", "shards")  # of the chunks that it was read from
        variable.encoding = {k: v for k, v in variable.encoding.items() if k not in stale} | {"chunks": lengths}
    return ds, said


def _asked(chunks: Any, name: Any, dims: Sequence[Any]) -> Any:
    """Return the request for one variable: by its own name, by dimensions, or common to all."""
    if chunks is None:
        return (None,) * len(dims)
    if not isinstance(chunks, Mapping):
        return chunks
    if name in chunks and name not in dims:
        return chunks[name]
    return {dim: length for dim, length in chunks.items() if dim in dims}


def _skeleton(ds: xr.Dataset, names: Iterable[Any]) -> xr.Dataset:
    import dask.array

    empty = {
        name: ds.variables[name].copy(data=dask.array.empty(ds.variables[name].shape, dtype=ds.variables[name].dtype))
        for name in names
    }
    coords = {name: variable for name, variable in empty.items() if name in ds.coords}
    return ds.assign({name: v for name, v in empty.items() if name not in coords}).assign_coords(coords)


def _settings(ds: xr.Dataset, lazy: Iterable[Any], zarr_format: int) -> dict[str, Settings]:
    """Return the arguments of ``zarr.create_array`` that xarray uses for the lazy variables."""
    numbers = [n for n, v in ds.variables.items() if n not in ds.xindexes and v.size and v.dtype.kind in NUMBERS]
    memory = zarr.storage.MemoryStore()
    write_frame(_skeleton(ds, {*numbers, *lazy}), memory, zarr_format, {})
    group = zarr.open_group(memory, mode="r", use_consolidated=False)
    arrays: dict[str, Any] = {str(name): group[str(name)] for name in lazy}
    return {name: target_settings(each, tuple(each.chunks), zarr_format=zarr_format) for name, each in arrays.items()}


def write_frame(
    skeleton: xr.Dataset, store: Any, zarr_format: int, attributes: Mapping[str, Any], replace: bool = False
) -> None:
    """Write a dataset by xarray without its lazy data, with additional attributes."""
    mode: Any = "w" if replace else "w-"
    skeleton.assign_attrs(attributes).to_zarr(
        store, mode=mode, compute=False, consolidated=False, safe_chunks=False, zarr_format=zarr_format
    )  # type: ignore[call-overload]


def rechunked(source: Any, chunks: Any, means: Resources, *, others: Mapping[str, Any]) -> Any:
    """Return the result of `rechunk` for a lazy source without a target."""
    refuse(
        "is for a target, and none is given",
        **{name: value for name, value in others.items() if value is not False and value != "auto"},
    )
    if not is_lazy(source):
        raise InputError(
            "without a target, only lazy arrays are rechunked; of a stored one open_array(…).to_dask(chunks=…) reads "
            "each byte once"
        )
    if chunks is None:
        return source  # in the chunks that it has
    if is_dataset(source):
        return _dataset_rechunked(source, chunks, means)
    return rechunk_lazily(source, chunks, means)


def _dataset_rechunked(source: Any, chunks: Any, means: Resources) -> Any:
    if isinstance(chunks, Mapping) and (unknown := [dim for dim in chunks if dim not in source.dims]):
        raise ChunksError(
            f"chunks={chunks!r}: {unknown[0]!r} is not a dimension; the dimensions are {', '.join(source.dims)}"
        )
    if not hasattr(source, "data_vars"):
        return source.copy(data=_relaid(source.variable, chunks, means).data)
    found, names = source.copy(), [name for name in source.variables if name not in source.xindexes]
    made = within_budget([partial(_relaid, source.variables[name], chunks, means) for name in names])
    for name, variable in zip(names, made, strict=True):
        found[name] = variable
    return found


def _relaid(variable: Any, chunks: Any, means: Resources) -> Any:
    """Return a variable in other chunks if it is lazy and has any of the dimensions."""
    mine = {d: n for d, n in chunks.items() if d in variable.dims} if isinstance(chunks, Mapping) else chunks
    if variable.chunks is None or mine == {}:
        return variable
    made = variable.copy(data=rechunk_lazily(variable.data, mine, means, names=variable.dims))
    made.encoding = {name: each for name, each in made.encoding.items() if "chunks" not in name}
    return made


def lazy_job(
    source: Any, to: Target, means: Resources, *, overwrite: bool, resume: Any, others: Mapping[str, Any]
) -> FromDaskJob | DatasetJob:
    """Plan to write a lazy array or a dataset; raise for arguments that apply to stored arrays only."""
    others = {"orientation": to.orientation, **others}
    refuse("is for stored arrays: of a lazy one, leave it out", error=UnsupportedError, **others)
    if is_dataset(source):
        return dataset_job(source, to, means, overwrite=overwrite, resume=resume)
    return from_dask(source, to, means, overwrite=overwrite, resume=resume)
