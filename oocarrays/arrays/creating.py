"""Creation and opening of array files: one Zarr array for all ranks, or one for each."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import zarr

from oocarrays.arrays import array
from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.local_array import LocalArrays, open_local, own_disks
from oocarrays.errors import ChunksError, LayoutError, NotFoundError, UnsupportedError
from oocarrays.graphs import settings
from oocarrays.mapping.given import chosen, element_type, extents, named, names_of_axes
from oocarrays.mapping.grid import ChunkGrid, chunks_along, runs_along
from oocarrays.mapping.layouts.distribution import is_block
from oocarrays.mapping.layouts.layout import LayoutLike, layout_for
from oocarrays.mapping.layouts.local import LocalPart, check_depth, depths, largest_rank
from oocarrays.mapping.section import axis_order
from oocarrays.options.chunks import ChunksLike, cuts, regular_chunks, regular_shards, uneven_lengths
from oocarrays.options.given import Resources, Target, around, chunked, means_of, stored_as, verb
from oocarrays.plan.documents import Settings
from oocarrays.storage.files import array_file, local_files
from oocarrays.storage.files.creating import check_place, create_target, finish_target
from oocarrays.storage.files.descriptor import Descriptor, Placement, check_array, descriptor_of
from oocarrays.storage.files.documents import holds_group
from oocarrays.storage.files.formats import compressors_in, in_order
from oocarrays.storage.files.group_file import finish_group
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import uneven_target
from oocarrays.storage.local.fs import DESCRIPTOR
from oocarrays.stored.array import placer

if TYPE_CHECKING:
    from distributed import Client

LOG = logging.getLogger("oocarrays")
CHUNK_BYTES = 2**24
"""Default size of a chunk in bytes, without given chunks or memory."""


def open_array(
    store: StoreLike | zarr.Array[Any] | zarr.Group | np.ndarray,
    *,
    mode: Literal["r", "r+"] | None = None,
    missing: Literal["fill", "warn", "error"] | None = None,
    scheduler: Client | str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> OutOfCoreArray | LocalArrays:
    """Open an array file: a Zarr array, or the local array files in a Zarr group.

    Parameters
    ----------
    store : path, URL, Zarr store, zarr.Array, zarr.Group or numpy.ndarray
        Location of the array. An array in memory is read in place.
    mode : str
        As in Zarr: ``"r"`` reads, ``"r+"`` reads and writes; by default ``"r"``, and for a Zarr array its own mode.
    storage_options : mapping
        Options for opening a URL, by their names in fsspec.
    scheduler : Client, address or "threads"
        The cluster with local array files on its workers' own disks; by default that of the active client.
    missing : str
        Treatment of a missing chunk in every read of this array: ``"fill"`` reads the fill value, as Zarr does;
        ``"warn"`` does so, and warns once a run, with their number; ``"error"`` raises a `RunError` that names the
        first. Zarr itself does not store chunks of only the fill value by default. By default the setting
        ``oocarrays.missing``, which is ``"fill"``.

    Raises
    ------
    NotFoundError
        If the store does not exist, or has no array.
    DescriptorError
        If its descriptor does not fit the stored array.
    UnfinishedError
        If an interrupted run left it unfinished.

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
    means = Resources(scheduler=scheduler, missing=missing, storage_options=storage_options)._over(around())
    place, missing, scheduler = placer(means.storage_options, store)(store), means.missing, means.scheduler
    try:
        opened = array.open_array(place, mode=mode, missing=missing)
    except NotFoundError:
        local = (
            open_local(place, mode="r" if mode is None else mode, scheduler=scheduler, missing=missing)
            if holds_group(place)
            else None
        )
        if local is None:
            raise
        return local
    said = descriptor_of(opened.zarr.attrs.asdict(), opened.store)
    if said is not None:
        check_array(said, opened.zarr, opened.store)
    return opened


@verb(
    target=(
        "chunks", "shards", "orientation", "compressors", "filters", "zarr_format", "fill_value", "attributes",
        "dimension_names", "folders",
    ),
    run=("memory", "scheduler", "storage_options"),
)  # fmt: skip
def create_array(
    store: Target | StoreLike,
    *,
    shape: int | Sequence[int],
    dtype: Any,
    chunks: ChunksLike | None = None,
    layout: LayoutLike | None = None,
    ranks: int | None = None,
    grid: Sequence[int] | None = None,
    placement: Placement = "global",
    depth: int | Sequence[int] | Mapping[Any, int] = 0,
    overwrite: bool = False,
    resources: Resources | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> OutOfCoreArray | LocalArrays:
    """Create an array file without data: every element has the fill value.

    Parameters
    ----------
    store : path, URL, Zarr store or Target
        Location of the new array file; a `Target` also states its shards, orientation, codecs, format, fill value,
        attributes, dimension names and ``folders``. Chunks run along the fastest axes of an orientation as far as they
        go; by default it is "row", if chunks are not given either.
    shape, dtype
        Extent of each axis of the whole array in elements, and the type of its elements.
    chunks : int, str, tuple or dict
        Chunk lengths as `rechunk` takes them, instead of an orientation, or together with a matching one. Chunks may be
        of unequal lengths with zarr-python 3.3 and later: listed as Dask lists blocks, ``x.chunks``, or ``"layout"``
        for the part of each rank of a global array. One process writes them.
    layout, ranks, grid
        The layout of the array over ranks, as `Layout.of` takes them. Required for local array files.
    placement : "global" or "local"
        One Zarr array for all ranks, or a group with one for each, ``rank-0000`` and so on.
    depth : int, sequence of int or mapping
        Halo width along each axis in elements. Local array files reserve it on both sides.
    overwrite : bool
        Whether an array file at ``store`` may be replaced.
    resources : Resources
        ``memory``, the budget of a rank: chunks without given lengths are at most an eighth of it, and at most 16 MiB;
        ``scheduler``, to find the workers of ``folders``.
    storage_options : mapping
        As in `rechunk`.

    Returns
    -------
    OutOfCoreArray or LocalArrays
        The array file, open for reading and writing.

    Raises
    ------
    InputError
        Before anything is created: see `oocarrays.errors`.

    Examples
    --------
    >>> store = zarr.storage.MemoryStore()
    >>> columns = Target(store, orientation="column")
    >>> a = create_array(columns, shape=(8, 6), dtype="f4", layout="(block, *)", ranks=2)
    >>> a.chunks, a.orientation, a.layout.ranks
    ((8, 6), (1, 0), 2)
    """
    means = means_of(resources, create_array, storage_options=storage_options)
    to, shape = chunked(stored_as(store, create_array), chunks), extents(shape)
    names = names_of_axes(to.dimension_names, len(shape))
    place = placer(means.storage_options, to.store)(to.store)
    descriptor = described(shape, layout, ranks, grid, placement, depth, names)
    known = element_type(dtype, error=UnsupportedError)
    blocks = uneven_blocks(to.chunks, descriptor, known, names)
    asked = to.chunks if blocks is None else tuple(max(each) for each in blocks)
    memory = 8 * CHUNK_BYTES if means.memory is None else settings.size_in_bytes(means.memory, "memory")
    nbytes = min(CHUNK_BYTES, memory // 8)
    lengths, order = chunks_and_order(descriptor, known, to.orientation, asked, names, nbytes)
    shard = regular_shards(to.shards, lengths, largest_shape(descriptor), known, names)
    for cut in cuts(asked, to.shards, ChunkGrid.of(largest_shape(descriptor), lengths), names):
        LOG.warning("%s: %s", place, cut)
    form = chosen(3 if to.zarr_format is None else to.zarr_format, "zarr_format", (2, 3), error=UnsupportedError)
    filters: Any = "auto" if to.filters is None else to.filters
    made = {
        "dtype": known,
        "chunks": lengths,
        "shards": shard,
        "fill_value": to.fill_value,
        "compressors": compressors_in(form, "auto" if to.compressors is None else to.compressors, known.itemsize),
        "filters": None if isinstance(filters, list | tuple) and not filters else filters,
        "zarr_format": form,
        "attributes": {} if to.attributes is None else named(to.attributes, "attributes"),
        "dimension_names": names,
    }
    made = in_order(made, order)
    if blocks is not None:
        return _global(place, made | {"shape": shape}, overwrite, blocks)
    wanted = replace(descriptor, orientation=order)
    if placement == "local":
        return _local(place, wanted, made, to.folders, overwrite, means.scheduler)
    if to.folders is not None:
        raise LayoutError(f"folders={to.folders!r} apply to local array files: pass placement='local'")
    attributes = {**made["attributes"], DESCRIPTOR: wanted.as_json()}
    return _global(place, made | {"shape": shape, "attributes": attributes}, overwrite)


def described(
    shape: tuple[int, ...],
    layout: Any,
    ranks: Any,
    grid: Any,
    placement: Placement,
    depth: Any,
    names: Sequence[str | None] | None = None,
) -> Descriptor:
    chosen(placement, "placement", ("global", "local"), error=LayoutError)
    if layout is None and (placement == "local" or ranks is not None or grid is not None):
        raise LayoutError(f"placement={placement!r} over ranks needs a layout, such as layout='(block, *)'")
    about = None  # files must not depend on this machine's cores
    wanted = None if layout is None else layout_for(shape, layout, ranks=ranks, grid=grid, about=about)
    each = depths(depth, len(shape), names)
    if wanted is not None:
        check_depth(wanted, each)
    return Descriptor(placement=placement, shape=shape, layout=wanted, depth=each)


def uneven_blocks(
    chunks: Any, descriptor: Descriptor, dtype: np.dtype, names: Sequence[str | None] | None
) -> tuple[tuple[int, ...], ...] | None:
    """Return the chunk lengths along each axis if they are unequal; None otherwise, or if one is to be chosen."""
    layout = None if descriptor.placement == "local" else descriptor.layout
    if not (isinstance(chunks, str) and chunks == "layout"):
        whole = ChunkGrid.of(descriptor.shape, tuple(max(n, 1) for n in descriptor.shape))
        return uneven_lengths(chunks, whole, dtype, names) if descriptor.placement == "global" else None
    if layout is None:
        raise LayoutError("chunks='layout' takes the chunks from a layout of one global array: pass layout=")
    if not all(map(is_block, layout.axes)):
        raise LayoutError(f"{layout}: chunks='layout' needs block, gen_block or * along each axis")
    lengths = (tuple(filter(None, map(axis.size, range(axis.ranks)))) for axis in layout.axes)
    return tuple(each or (1,) for each in lengths)  # without empty blocks


def largest_shape(descriptor: Descriptor) -> tuple[int, ...]:
    """Return the shape of the array file, or of the largest one, with its halo."""
    layout = descriptor.layout
    if descriptor.placement == "global" or layout is None:
        return descriptor.shape
    return LocalPart.of(layout, largest_rank(layout), descriptor.depth).shape


def chunks_and_order(
    descriptor: Descriptor, dtype: np.dtype, orientation: Any, chunks: Any, names: Any, nbytes: int
) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    shape = largest_shape(descriptor)
    order = None if orientation is None else axis_order(orientation, len(shape), names)
    known = axis_order("row", len(shape)) if order is None else order
    chosen = chunks_along(known, shape, max(nbytes // dtype.itemsize, 1))
    if chunks is None:
        return chosen, known
    given = regular_chunks(chunks, ChunkGrid.of(shape, chosen), dtype, names)
    if order is not None and not runs_along(order, shape, given):
        raise ChunksError(f"chunks={chunks!r} of shape {shape} do not run along orientation={orientation!r}")
    return given, order


def _global(store: Any, made: Settings, overwrite: bool, blocks: Any = None) -> OutOfCoreArray:
    """Create one Zarr array, of regular chunks or of these lengths along each axis."""
    target, seen = uneven_target(store, made, blocks, durable=False)
    array_file.preview(seen, store)
    check_place(store, overwrite=overwrite)
    finish_target(create_target(target, seen, uuid.uuid4().hex[:12], overwrite=overwrite))
    return OutOfCoreArray(array_file.open_array(store, mode="r+"))


def _local(
    store: Any, descriptor: Descriptor, made: Settings, folders: str | None, overwrite: bool, scheduler: Any
) -> LocalArrays:
    array_file.preview(local_files.largest_settings(descriptor, made), store)
    described, disks = own_disks(descriptor, folders, scheduler)
    local_files.check_group_place(store, overwrite=overwrite)
    local_files.create_group(store, described, made, uuid.uuid4().hex[:12], overwrite=overwrite)
    files = local_files.LocalFiles(store=store, descriptor=described, name=str(store))
    for rank in range(files.ranks):
        own = local_files.rank_settings(described, made, rank)
        disks.call(rank, partial(local_files.create_file, overwrite=overwrite), files.place(rank), own, None)
    finish_group(store)
    opened = local_files.open_local_files(store)
    assert opened is not None, "it has just been made"
    return LocalArrays(opened, mode="r+", disks=disks)
