"""Array files: opened Zarr arrays, described for readers, writers and planners.

open_array ─► describe ─► ArrayFile   the array, its storage, its codec chain, and its presence
              preview  ─► Stored      of an array that is not created yet
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from operator import mul
from typing import Any

import numpy as np
import zarr
from zarr.errors import ContainsGroupError, NodeTypeValidationError
from zarr.storage import LocalStore, StorePath

from oocarrays.errors import NotFoundError, UnsupportedError
from oocarrays.limits import COPIED_BYTES, TRAVEL_COPIES
from oocarrays.mapping.casting import TIMES, lost_value
from oocarrays.mapping.given import Policy, chosen, extents
from oocarrays.mapping.grid import ChunkGrid, Stored, check_priced, turned_back
from oocarrays.plan.documents import Settings
from oocarrays.storage.codecs.codec import (
    DECODE_IN_PLACE,
    Chain,
    chain_of,
    check_codecs,
    check_filters,
    context_bytes,
    most_coded_bytes,
    most_shard_bytes,
)
from oocarrays.storage.codecs.shards import ShardKey, most_indices
from oocarrays.storage.files.documents import (
    WRECKED,
    check_documents,
    document_or_draft,
    node_documents,
    said,
    unfinished_error,
)
from oocarrays.storage.files.places import (
    Place,
    StoreLike,
    check_is_place,
    in_files,
    is_remote,
    local_folder,
    location,
    name_of,
    store_path,
)
from oocarrays.storage.files.presence import Presence, presence_of
from oocarrays.storage.foreign.filters import Chained
from oocarrays.storage.local.blobs import LocalBlobs
from oocarrays.storage.local.fs import ABSENT, ATTRIBUTES, DESCRIPTOR, MARK, METADATA, failure
from oocarrays.storage.local.pages import STAGING_BYTES, can_map
from oocarrays.storage.stores.joined import at_place, joined_in
from oocarrays.storage.stores.underway import Blobs, StoreBlobs, answers_ranges
from oocarrays.storage.stores.uneven import GRID, allowing, as_regular, check_known, says_uneven


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFile:
    """A Zarr array, with a description of its chunks and codecs."""

    zarr: zarr.Array
    """The array."""
    stored: Stored
    """Properties of the array for planners."""
    chain: Chain
    """Codec chain of its chunks, and the library that runs it."""
    presence: Presence
    """Record that detects whether the array still exists; made when it was first opened, in any process."""
    axes: tuple[int, ...] | None = None
    """Axes of the Zarr array, by own axis, if they are permuted: see `lying`."""

    def __reduce__(self) -> Any:
        """Pickle the array with its description; a process that unpickles it checks for the same array."""
        return _carried, (self.zarr, self.stored.shard_chunks is not None, self.presence, self.axes is not None)

    @property
    def lying(self) -> ArrayFile:
        """The same file with axes in storage order, in which the elements of its chunks are in C order."""
        order = self.stored.order
        return self if order is None else replace(self, stored=self.stored.lying, chain=self.chain.lying, axes=order)

    @property
    def dtype(self) -> np.dtype:
        """Data type of an element in memory, in native byte order for format 3, which records none."""
        dtype: np.dtype = self.zarr.dtype
        return dtype if self.zarr.metadata.zarr_format == 2 else dtype.newbyteorder("=")

    @property
    def fill_value(self) -> Any:
        if self.zarr.fill_value is not None:
            return self.zarr.fill_value
        return np.array("NaT", self.dtype)[()] if self.dtype.kind in TIMES else np.zeros((), self.dtype)[()]

    @property
    def name(self) -> str:
        """Name of its location for messages."""
        return self.presence.name

    @property
    def shared(self) -> tuple[ArrayFile, ...]:
        """The array itself: see `RankFiles.shared`."""
        return (self,)

    @property
    def presences(self) -> tuple[Presence, ...]:
        """Presence records of all files it reads: several for arrays in several files."""
        return (self.presence,)

    @property
    def folder(self) -> str | None:
        """The local directory that holds it, or None."""
        return local_folder(self.zarr.store_path)

    @property
    def disks(self) -> tuple[str, ...]:
        """The disks that it is striped over; empty for one disk."""
        joined = joined_in(self.zarr.store_path)
        return joined[0].disks if joined else ()

    @property
    def disk_of(self) -> Callable[[tuple[int, ...]], int] | None:
        """Function from a chunk's index to the number of the disk that holds it or its shard; None for one disk."""
        joined = joined_in(self.zarr.store_path)
        if joined is None or not joined[0].disks:
            return None
        store, path = joined
        before = f"{path.rstrip('/')}/" if path else ""

        def disk(index: tuple[int, ...]) -> int:
            place = self.place_of(index)
            return store.disk_of(before + (place if isinstance(place, str) else place.shard))

        return disk

    def chunk_key(self, index: tuple[int, ...]) -> str:
        """Return the key of a chunk, or of a shard, below the array."""
        return self.zarr.metadata.encode_chunk_key(turned_back(index, self.axes))

    def place_of(self, index: tuple[int, ...]) -> str | ShardKey:
        """Return the key of a chunk in its own file or object, or its shard key and number."""
        if self.chain.shard is None:
            return self.chunk_key(index)
        shard, number = self.chain.shard.place(index)
        return ShardKey(self.chunk_key(shard), number)


def _carried(array: zarr.Array, written: bool, presence: Presence, lying: bool = False) -> ArrayFile:
    """Return the array file of an unpickled array, with the presence record of the process that opened it."""
    file = replace(describe(array, written=written), presence=presence)
    return file.lying if lying else file


def open_array(store: StoreLike | zarr.Array, *, mode: str = "r", unfinished: bool = False) -> zarr.Array:
    array = store if isinstance(store, zarr.Array) else _open(store, mode)
    array = as_regular(array, location(array)) if is_uneven(array) else array
    if MARK in array.attrs and not unfinished:
        raise unfinished_error(array, "array")
    return array


def _open(store: StoreLike, mode: str) -> zarr.Array:
    chosen(mode, "mode", ("r", "r+"))
    if isinstance(store, zarr.Group):
        raise _is_group(store.store_path)
    check_is_place(store)
    folder = local_folder(store)
    if folder is not None:
        check_documents(folder)
        if not os.path.exists(folder):
            raise NotFoundError(f"no such store: {store}")
    opening: Callable[..., zarr.Array] = partial(zarr.open_array, mode=mode)  # type: ignore[arg-type]
    try:
        array = document_or_draft(opening, store)
        extents(array.shape)  # Zarr accepts extents that no index can count
        return array
    except (ContainsGroupError, NodeTypeValidationError):
        raise _is_group(store_path(store)) from None
    except (KeyError, *ABSENT):
        raise NotFoundError(f"no Zarr array in {store}") from None
    except OSError as error:
        raise failure("open", store, error, full=True) from error
    except WRECKED as error:
        if says_uneven(node_documents(store_path(store), [METADATA])[0]):
            check_known(name_of(store))
            with allowing():
                return as_regular(document_or_draft(opening, store), name_of(store))
        shown = store if isinstance(store, Place) else f"<{type(store).__name__}>"
        raise NotFoundError(f"{shown} cannot be opened as a Zarr array: {said(error)}") from error


def _is_group(place: StorePath) -> NotFoundError:
    """Return the error for a group where an array is expected, with advice."""
    in_format_3, in_format_2 = node_documents(place, ATTRIBUTES)
    attributes = in_format_2 if in_format_3 is None else in_format_3.get("attributes")
    descriptor = attributes.get(DESCRIPTOR) if isinstance(attributes, dict) else None
    if isinstance(descriptor, dict) and descriptor.get("placement") == "local":
        held, advice = "local array files, one a rank", "gather_files(…, target) makes one array of them"
    else:
        held, advice = "a Zarr group, not an array", "name one of the arrays in it"
    return NotFoundError(f"{name_of(place)} holds {held}: {advice}")


def describe_source(array: zarr.Array, missing: Policy) -> ArrayFile:
    """Describe an open array that a run reads; the run checks at start and end that it and its chunks still exist."""
    file = describe(array, missing=missing)
    check_priced(file.stored, location(array))
    return as_planned(file)


def as_planned(file: ArrayFile) -> ArrayFile:
    """Return the array file with its number of chunks, or whether it has any, if one request suffices."""
    return replace(file, presence=file.presence.at_planning(file.chunk_key((0,) * file.zarr.ndim)))


def describe(array: zarr.Array, *, written: bool = False, missing: Policy | None = None) -> ArrayFile:
    """Describe an open array for reading, or for writing if ``written``: shards, if any, are the unit of writing."""
    if array.dtype.kind in "OT" or array.dtype.itemsize == 0:
        raise UnsupportedError(f"{location(array)} has dtype {array.dtype}: its elements have no fixed size")
    try:
        shards = array.shards
    except NotImplementedError:
        raise UnsupportedError(f"{location(array)} has chunks of unequal length; regular chunks are required") from None
    array, chain = _with_pipeline(array)
    if shards is not None and not written and chain.shard is not None:
        stored = _read_by_chunks(array, chain)
    else:
        stored = _stored(array, tuple(shards or array.chunks), chain)
    presence = presence_of(array, location(array), read=not written, missing=missing)
    return ArrayFile(zarr=array, stored=stored, chain=chain, presence=presence)


def _read_by_chunks(array: zarr.Array, chain: Chain) -> Stored:
    layout = chain.shard
    assert layout is not None
    stored = _stored(array, layout.chunks, replace(chain, shard=None))
    shards = ChunkGrid.of(stored.grid.shape, tuple(map(mul, layout.chunks, layout.counts))).count
    kept = min(shards, most_indices(layout)) * (layout.index_bytes + 1024)  # with the entry of a dictionary
    return replace(stored, shards=shards, index_workspace=kept)


def _stored(array: zarr.Array, chunks: tuple[int, ...], chain: Chain, place: StoreLike | None = None) -> Stored:
    """Describe an array in ``chunks`` for planners; these are shards if the chain has any."""
    store = array.store_path if place is None else place
    files = in_files(store)
    local = files and chain.pipeline in ("plain", "numcodecs")
    travels = not files and is_remote(getattr(store, "store", store))
    grid, itemsize = ChunkGrid.of(tuple(array.shape), chunks), array.dtype.itemsize
    decoding, encoding, behind = _workspace(chain, local, grid.chunk_size * itemsize, itemsize)
    return Stored(
        grid=grid,
        itemsize=itemsize,
        local=local,
        codec=chain.name,
        decode_workspace=decoding,
        encode_workspace=encoding,
        behind_workspace=behind,
        remote=travels,
        travel_bytes=_travel_bytes(chain, grid.chunk_size * itemsize, itemsize) if travels else 0,
        shard_chunks=chain.shard.chunks if chain.shard else None,
        index_bytes=chain.shard.index_bytes if chain.shard else 0,
        order=chain.order,
    )


def _travel_bytes(chain: Chain, chunk_bytes: int, itemsize: int) -> int:
    """Return the memory in bytes of a stored chunk in transfer; 0 for those that Zarr transfers one by one."""
    if chain.shard is not None:
        return TRAVEL_COPIES * most_shard_bytes(chain, itemsize)
    stored = {"plain": chunk_bytes, "numcodecs": most_coded_bytes(chunk_bytes)}
    return TRAVEL_COPIES * stored.get(chain.pipeline, 0)


def _with_pipeline(array: zarr.Array) -> tuple[zarr.Array, Chain]:
    chain, store = chain_of(array), array.store_path.store
    if chain.pipeline == "plain" and not (isinstance(store, LocalStore) or answers_ranges(store)):
        return array, replace(chain, pipeline="numcodecs", compressor=Chained((), "whole keys"))
    simple = array.dtype.kind in "biuf" and array.dtype.isnative and array.metadata.zarr_format == 3
    if chain.pipeline == "zarr" and simple and isinstance(store, LocalStore) and find_spec("zarrs"):
        try:
            return _with_zarrs(array), Chain(pipeline="zarrs")
        except Exception:  # noqa: BLE001  various errors for unsupported codecs and dtypes: use zarr-python
            pass
    return array, chain


def _with_zarrs(array: zarr.Array) -> zarr.Array:
    pipeline = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "codec_pipeline.strict": True}
    with zarr.config.set(pipeline), warnings.catch_warnings():
        warnings.simplefilter("error")
        return at_place(array, array.store_path)


def _workspace(chain: Chain, local: bool, chunk_bytes: int, itemsize: int) -> tuple[int, int, int]:
    """Return bytes needed besides a chunk to decode it, to encode it, and additionally to write it behind."""
    if chain.shard is not None:
        inner = math.prod(chain.shard.chunks) * itemsize
        _, encoding, behind = _workspace(replace(chain, shard=None), True, inner, itemsize)
        shard = most_shard_bytes(chain, itemsize)
        old = min(shard, COPIED_BYTES) if local else shard
        return 0, inner + encoding + behind + shard + old, shard
    coded = most_coded_bytes(chunk_bytes)
    if chain.pipeline == "plain":
        return (0, STAGING_BYTES, 0) if local else (chunk_bytes, chunk_bytes, 0)
    if chain.pipeline == "numcodecs":
        in_place = local and can_map() and chain.name in DECODE_IN_PLACE
        to_decode, to_encode = context_bytes(chain.compressor, chunk_bytes)
        encoding = 2 * coded + STAGING_BYTES if local else 3 * coded
        return to_decode + (0 if in_place else coded), to_encode + encoding, coded
    return 3 * coded, 3 * coded, 0


def preview(settings: Settings, store: StoreLike) -> Stored:
    """Describe the array that these settings would create, without creating it."""
    try:
        with np.errstate(over="ignore"):  # for the fill value, which is checked below
            array = zarr.create_array({}, **settings)
    except WRECKED as error:
        raise UnsupportedError(f"Zarr does not accept these settings for the target: {said(error)}") from error
    chain = chain_of(array)
    check_codecs(array)
    fill = settings.get("fill_value")
    given = np.asarray(fill)
    if fill is not None and given.dtype != array.dtype and lost_value(given, array.dtype) is not None:  # 1.5 becomes 1
        raise UnsupportedError(f"fill_value={fill!r} is not a value of dtype {array.dtype}")
    check_filters(settings, array)
    return _stored(array, tuple(array.shards or array.chunks), chain, store)


def blobs_of(array: zarr.Array, *, past_cache: bool = False, requests: int = 1) -> Blobs:
    """Return the chunks of ``array``, as local files if possible."""
    place = array.store_path
    if isinstance(place.store, LocalStore):
        return LocalBlobs(os.path.join(str(place.store.root), place.path), past_cache=past_cache)
    joined = joined_in(place)
    files: LocalBlobs | None = joined[0].files(joined[1], past_cache=past_cache) if joined else None
    return StoreBlobs(place.store, place.path, requests) if files is None else files


def is_uneven(array: zarr.Array) -> bool:
    """Return whether an open array has chunks of unequal lengths."""
    if array.metadata.zarr_format == 2:  # no other grids exist, and newer versions of Zarr warn on access
        return False
    return type(array.metadata.chunk_grid).__name__.lower().startswith(GRID)
