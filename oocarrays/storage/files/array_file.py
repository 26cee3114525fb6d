"""Array files: opening, describing, creating and finishing Zarr arrays.

A target carries an *unfinished* mark in its attributes until its last chunk is written. Whatever opens it before
then, through us, is told so; other Zarr readers see the attribute.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from operator import mul
from pathlib import Path
from typing import Any

import numpy as np
import zarr
from zarr.abc.store import Store
from zarr.codecs import BytesCodec
from zarr.core.sync import sync
from zarr.errors import ContainsArrayError, ContainsGroupError, NodeTypeValidationError
from zarr.storage import LocalStore, StorePath

from oocarrays.errors import NotFoundError, RunError, StoreFailure, TargetError, UnfinishedError, UnsupportedError
from oocarrays.mapping.given import chosen, extents, flag
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.orientation import turned_back
from oocarrays.plan.limits import check_priced
from oocarrays.plan.rechunk.problem import TRAVEL_COPIES
from oocarrays.storage.codecs.codec import (
    DECODE_IN_PLACE,
    Chain,
    chain_of,
    check_codecs,
    most_coded_bytes,
    most_shard_bytes,
)
from oocarrays.storage.codecs.shards import ShardKey, most_indices
from oocarrays.storage.files.chunk_names import PAGE, seems_to_hold_chunks
from oocarrays.storage.files.making_room import put_new, replace_local
from oocarrays.storage.files.presence import Policy, Presence, presence_of
from oocarrays.storage.foreign.filters import Chained
from oocarrays.storage.stores import durable as on_device
from oocarrays.storage.stores.blobs import STAGING_BYTES
from oocarrays.storage.stores.durable import DocumentStore, PreparedStore
from oocarrays.storage.stores.joined import joined_in
from oocarrays.storage.stores.nested import lie_together
from oocarrays.storage.stores.pages import can_map
from oocarrays.storage.stores.refused import write_error
from oocarrays.storage.stores.remote import RemoteStore, is_remote
from oocarrays.storage.stores.underway import answers_ranges
from oocarrays.storage.stores.urls import check_replaces, opened, store_of

WRECKED = (
    ValueError, TypeError, AttributeError, LookupError, ArithmeticError, AssertionError, NotImplementedError,
    RecursionError,
)  # fmt: skip
"""What reading raises at a document that was not written for it, in Zarr as in us: anything but what a system does."""
Place = str | os.PathLike | Store | StorePath
"""What may be the place of an array."""
StoreLike = str | os.PathLike[str] | Store | StorePath
PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")
"""How the names of files end that are being written: ours, and those of Zarr's `LocalStore`."""
PARTIAL_END = ".partial"
"""What all of them end with: seen sooner than the whole of it."""
MARK = "oocarrays:unfinished"
"""The attribute that an unfinished target carries; its value is the id of the run."""
METADATA = "zarr.json"
"""The file that makes a folder a Zarr array."""
BOOT = "oocarrays:boot"
"""The attribute of scratch in the system's cache; its value is the start of the system that it does not outlive."""
ATTRIBUTES = (METADATA, ".zattrs")
"""The documents that hold attributes, in format 3 and in format 2."""
NODES = (METADATA, ".zarray", ".zgroup")
"""The documents by which a folder is an array or a group."""
ZARRS = "zarrs.ZarrsCodecPipeline"
PYTHON_BYTES = 1024
"""Bytes that a process holds for each thing that it keeps by name, beside the thing itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFile:
    """A Zarr array, with how its chunks are read and written."""

    zarr: zarr.Array
    """The array."""
    stored: Stored
    """What a planner may know of it."""
    chain: Chain
    """How its chunks are coded, and who does it."""
    presence: Presence
    """What tells whether it is there still: of the array as it was opened first, in whatever process."""
    axes: tuple[int, ...] | None = None
    """Which axes of the Zarr array its own are, where they stand in another order: see `lying`."""

    def __reduce__(self) -> Any:
        """Pickle it with what is known of it: a scheduler need not see it, and no other array is taken for it."""
        return _carried, (self.zarr, self.stored.shard_chunks is not None, self.presence, self.axes is not None)

    @property
    def lying(self) -> ArrayFile:
        """The same file with its axes in the order in which elements lie in chunks, so that these lie in C order."""
        order = self.stored.order
        return self if order is None else replace(self, stored=self.stored.lying, chain=self.chain.lying, axes=order)

    @property
    def dtype(self) -> np.dtype:
        """The type of an element in memory: format 3 keeps no byte order, whatever the array was made with."""
        dtype: np.dtype = self.zarr.dtype
        return dtype if self.zarr.metadata.zarr_format == 2 else dtype.newbyteorder("=")

    @property
    def fill_value(self) -> Any:
        """The value of what is not stored."""
        return np.zeros((), self.dtype)[()] if self.zarr.fill_value is None else self.zarr.fill_value

    @property
    def name(self) -> str:
        """Where the array is, as a person writes it."""
        return location(self.zarr)

    @property
    def presences(self) -> tuple[Presence, ...]:
        """The records of whether the array is there, for all that is read of it: several files have more than one."""
        return (self.presence,)

    @property
    def folder(self) -> str | None:
        """The local directory that holds it, or None."""
        return local_folder(self.zarr.store_path.store, self.zarr.store_path.path)

    @property
    def in_folder(self) -> bool:
        """Whether a local directory holds it: told without a look at which that is."""
        return isinstance(self.presence.place, str)

    @property
    def disk_of(self) -> Callable[[tuple[int, ...]], int] | None:
        """What tells on which disk a chunk lies, or the shard that it is in; None where there is one disk."""
        joined = joined_in(self.zarr.store_path.store)
        if joined is None or not joined[0].disks:
            return None
        (store, prefix), path = joined, self.zarr.store_path.path
        before = f"{prefix}{path}/" if path else prefix

        def disk(index: tuple[int, ...]) -> int:
            place = self.place_of(index)
            return store.disk_of(before + (place if isinstance(place, str) else place.shard))

        return disk

    def chunk_key(self, index: tuple[int, ...]) -> str:
        """Return the key of a chunk below the array, or of a shard."""
        return self.zarr.metadata.encode_chunk_key(turned_back(index, self.axes))

    def place_of(self, index: tuple[int, ...]) -> str | ShardKey:
        """Where a chunk is: in a file or object of its own, or in a shard."""
        if self.chain.shard is None:
            return self.chunk_key(index)
        shard, number = self.chain.shard.place(index)
        return ShardKey(self.chunk_key(shard), number)


def _carried(array: zarr.Array, written: bool, presence: Presence, lying: bool = False) -> ArrayFile:
    """Return an array file in another process, of an array that has been opened in this one."""
    file = replace(describe(array, written=written), presence=presence)
    return file.lying if lying else file


def local_folder(store: Any, path: str = "") -> str | None:
    """Return the directory behind a path or a `LocalStore`, or None."""
    if isinstance(store, LocalStore):
        return os.path.realpath(os.path.join(str(store.root), path))
    if isinstance(store, str | os.PathLike) and "://" not in str(store):
        return os.path.realpath(store)
    return None


def folders_of(store: Any, path: str = "") -> tuple[str, ...]:
    """Return the local directories in which an array, or what is in it, lies: one, or one a disk; none elsewhere."""
    folder = local_folder(store, path)
    if folder is not None:
        return (folder,)
    store = store.store if isinstance(store, StorePath) else store
    joined = joined_in(store)
    return tuple(map(os.path.realpath, joined[0].folders)) if joined else ()


def parts_of(store: Any, path: str = "") -> tuple[str, ...]:
    """Return the places in which an array lies: its own, or one on each disk."""
    if isinstance(store, StorePath):
        return parts_of(store.store, store.path)
    joined, name = joined_in(store), place_name(store, path)
    if joined is None:
        return (name,) if name else ()
    below = f"{joined[1]}{path}".strip("/")
    places = (os.path.realpath(disk) if os.path.isabs(disk) else disk for disk in joined[0].disks)
    return tuple(f"{place.rstrip('/')}/{below}".rstrip("/") for place in places)


def in_files(store: Any) -> bool:
    """Return whether each chunk is a local file, or a range of one, of which we read and write what we want."""
    path = store.path if isinstance(store, StorePath) else ""
    store = store.store if isinstance(store, StorePath) else store
    if local_folder(store) is not None:
        return True
    joined = joined_in(store)
    return joined is not None and joined[0].files(joined[1] + path) is not None


def place_name(store: Any, path: str = "") -> str | None:
    """Return the folder of a local store, or the URL of one that is not on this machine; None for others."""
    if isinstance(store, RemoteStore):
        return f"{store.name}/{path}".rstrip("/")
    return local_folder(store, path)


def name_of(store: StoreLike) -> str:
    """Return a name that tells one place from another."""
    place = store_path(store)
    return place_name(place.store, place.path) or str(place)


def location(array: zarr.Array) -> str:
    """Where an array is: its directory, or its store and path."""
    path = array.store_path
    return local_folder(path.store, path.path) or str(path)


def open_array(store: StoreLike | zarr.Array, *, mode: str = "r", unfinished: bool = False) -> zarr.Array:
    """Open a Zarr array.

    Raises
    ------
    NotFoundError
        Where there is no store, or no array in it.
    UnfinishedError
        Where a run that died left it, unless ``unfinished``.
    """
    array = store if isinstance(store, zarr.Array) else _open(store, mode)
    if MARK in array.attrs and not unfinished:
        raise UnfinishedError(
            f"{location(array)} is unfinished: run {array.attrs[MARK]} did not write all of it; "
            "resume that run, or write the array again with overwrite"
        )
    return array


def unfinished_run(store: StoreLike) -> str | None:
    """The id of the run that has not finished the array or group in ``store``; None where there is no such one."""
    try:
        in_format_3, in_format_2 = documents(store, ATTRIBUTES)
    except (OSError, StoreFailure):
        if is_remote(store):
            raise
        return None
    return mark_of(in_format_2 if in_format_3 is None else in_format_3.get("attributes"))


def mark_of(attributes: Any) -> str | None:
    """The mark in the attributes of an array or a group, as text whatever it is: that it is there is what counts.

    >>> mark_of({MARK: "c0ffee"}), mark_of({MARK: None}), mark_of({})
    ('c0ffee', 'null', None)
    """
    if not isinstance(attributes, dict) or MARK not in attributes:
        return None
    mark = attributes[MARK]
    return mark if isinstance(mark, str) else json.dumps(mark)


def documents(store: StoreLike, names: Sequence[str]) -> list[dict[str, Any] | None]:
    """Read some documents of metadata, asked for together; None stands for one that is not there."""
    folder = local_folder(store)
    if folder is not None:
        return [_document_in(folder, name) for name in names]
    return sync(_documents(store_path(store), names))


async def _documents(place: StorePath, names: Sequence[str]) -> list[dict[str, Any] | None]:
    found = await asyncio.gather(*((place / name).get() for name in names))
    return [_parsed(buffer.to_bytes()) if buffer else None for buffer in found]


def _document_in(folder: str, name: str) -> dict[str, Any] | None:
    try:
        with open(os.path.join(folder, name), "rb") as file:
            return _parsed(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None


def _parsed(text: bytes) -> dict[str, Any] | None:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def said(error: BaseException) -> str:
    """Return the message of an error, with its type where the message says little.

    >>> said(KeyError("shape")), said(ValueError("no such codec"))
    ("KeyError: 'shape'", 'no such codec')
    """
    words = str(error)
    return words if " " in words else f"{type(error).__name__}: {words}"


def is_finished(store: StoreLike) -> bool:
    """Return whether there is an array or a group in ``store``, and no run has left it unfinished."""
    try:
        in_format_3, *in_format_2 = documents(store, (METADATA, ".zarray", ".zgroup"))
        there = in_format_3 is not None or any(document is not None for document in in_format_2)
        return there and unfinished_run(store) is None
    except (OSError, StoreFailure):
        return False


def remove_partials(store: StoreLike, marks: Collection[str] = ()) -> None:
    """Remove what writes that were cut short left below a local array, but for names with one of some ``marks``."""
    folder = local_folder(store)
    for path in Path(folder).rglob("*.partial") if folder else ():
        if path.name.split(".")[-2] not in marks:
            path.unlink(missing_ok=True)


def _open(store: StoreLike, mode: str, path: str = "") -> zarr.Array:
    chosen(mode, "mode", ("r", "r+"))
    folder = local_folder(store, path)
    if folder is not None and not os.path.exists(folder):
        raise NotFoundError(f"no such store: {store}{path and '/'}{path}")
    try:
        array = zarr.open_array(store, path=path, mode=mode)  # type: ignore[arg-type]
        extents(array.shape)  # Zarr takes those that no index can count
        return array
    except (ContainsGroupError, NodeTypeValidationError):
        raise NotFoundError(f"{store} holds a Zarr group, not an array: name one of the arrays in it") from None
    except (FileNotFoundError, KeyError, NotADirectoryError):
        raise NotFoundError(f"no Zarr array in {store}") from None
    except OSError as error:
        raise StoreFailure(f"cannot open {store}: {error}") from error
    except WRECKED as error:
        shown = store if isinstance(store, Place) else f"<{type(store).__name__}>"
        raise NotFoundError(f"{shown} cannot be opened as a Zarr array: {said(error)}") from error


def describe_source(array: zarr.Array, missing: Policy) -> ArrayFile:
    """How an open array is read by a run, which looks at its beginning and end whether it is there with its chunks."""
    file = describe(array, missing=missing)
    check_priced(file.stored, location(array))
    there = file.presence
    if isinstance(there.place, str) or _names_below(file) > PAGE:
        return file
    return replace(file, presence=replace(there, had_chunks=seems_to_hold_chunks(there.place)))


def _names_below(file: ArrayFile) -> int:
    """Names of chunks, or of folders of them, right below an array."""
    in_folder = file.chunk_key((0,) * file.zarr.ndim).startswith("c/")
    return 1 if in_folder else file.presence.chunks


def describe(array: zarr.Array, *, written: bool = False, missing: Policy | None = None) -> ArrayFile:
    """How the chunks of an open array are read, or ``written``: the unit of writing is a shard, where there are any.

    Parameters
    ----------
    missing : str, optional
        What is made of chunks that are missing; None where nobody asks, as of what a run writes itself.

    Raises
    ------
    UnsupportedError
        For chunks that are not regular, and elements of no fixed size.
    """
    if array.dtype.kind in "OT" or array.dtype.itemsize == 0:
        raise UnsupportedError(f"{location(array)} has dtype {array.dtype}: its elements have no fixed size")
    try:
        shards = array.shards
    except NotImplementedError:
        raise UnsupportedError(f"{location(array)} has chunks of unequal length; regular ones are taken") from None
    array, chain = _with_pipeline(array)
    if shards is not None and not written and chain.shard is not None:
        stored = _read_by_chunks(array, chain)
    else:
        stored = _stored(array, tuple(shards or array.chunks), chain)
    presence = presence_of(array, location(array), read=not written, missing=missing)
    return ArrayFile(zarr=array, stored=stored, chain=chain, presence=presence)


def _read_by_chunks(array: zarr.Array, chain: Chain) -> Stored:
    """Return an array whose shards are read chunk by chunk."""
    layout = chain.shard
    assert layout is not None
    stored = _stored(array, layout.chunks, replace(chain, shard=None))
    shards = ChunkGrid.of(stored.grid.shape, tuple(map(mul, layout.chunks, layout.counts))).count
    kept = min(shards, most_indices(layout)) * (layout.index_bytes + PYTHON_BYTES)
    return replace(stored, shards=shards, index_workspace=kept)


def _stored(array: zarr.Array, chunks: tuple[int, ...], chain: Chain, place: StoreLike | None = None) -> Stored:
    """Describe an array in ``chunks`` to planners; these are shards where the chain has any.

    Parameters
    ----------
    place : path or store, optional
        Where the array is to be, if not where it is.
    """
    store = array.store_path if place is None else place
    files = in_files(store)
    local, travels = files and chain.pipeline in ("plain", "numcodecs"), not files and is_remote(_bare(store))
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


def _bare(store: Any) -> Any:
    return store.store if isinstance(store, StorePath) else store


def _travel_bytes(chain: Chain, chunk_bytes: int, itemsize: int) -> int:
    """Bytes that a chunk under way takes, as it is stored; those that go through Zarr travel one by one."""
    if chain.shard is not None:
        return TRAVEL_COPIES * most_shard_bytes(chain, itemsize)
    stored = {"plain": chunk_bytes, "numcodecs": most_coded_bytes(chunk_bytes)}
    return TRAVEL_COPIES * stored.get(chain.pipeline, 0)


def _with_pipeline(array: zarr.Array) -> tuple[zarr.Array, Chain]:
    chain = chain_of(array)
    if chain.pipeline == "plain" and not answers_ranges(array.store_path.store):
        return array, replace(chain, pipeline="numcodecs", compressor=Chained((), "whole keys"))
    simple = array.dtype.kind in "biuf" and array.dtype.isnative and array.metadata.zarr_format == 3
    if chain.pipeline == "zarr" and simple and isinstance(array.store_path.store, LocalStore) and find_spec("zarrs"):
        try:
            return _reopen_with_zarrs(array), Chain(pipeline="zarrs")
        except Exception:  # noqa: BLE001  it refuses codecs and dtypes in ways of its own; zarr-python takes them
            pass
    return array, chain


def _reopen_with_zarrs(array: zarr.Array) -> zarr.Array:
    path = array.store_path
    with zarr.config.set({"codec_pipeline.path": ZARRS, "codec_pipeline.strict": True}), warnings.catch_warnings():
        warnings.simplefilter("error")
        return zarr.open_array(path.store, path=path.path, mode="r" if array.read_only else "r+")


def _workspace(chain: Chain, local: bool, chunk_bytes: int, itemsize: int) -> tuple[int, int, int]:
    """Bytes beside a chunk while it is decoded, while it is encoded, and more where it is written behind."""
    if chain.shard is not None:
        inner = math.prod(chain.shard.chunks) * itemsize
        _, encoding, behind = _workspace(replace(chain, shard=None), True, inner, itemsize)
        shard = most_shard_bytes(chain, itemsize)
        return 0, inner + encoding + behind + shard * (1 if local else 2), shard
    coded = most_coded_bytes(chunk_bytes)
    if chain.pipeline == "plain":
        return (0, STAGING_BYTES, 0) if local else (chunk_bytes, chunk_bytes, 0)
    if chain.pipeline == "numcodecs":
        in_place = local and can_map() and chain.name in DECODE_IN_PLACE
        return 0 if in_place else coded, 2 * coded + STAGING_BYTES if local else 3 * coded, coded
    return 3 * coded, 3 * coded, 0


def preview(settings: dict[str, Any], store: StoreLike) -> Stored:
    """Describe the array that these settings would give, without making it where it is to be.

    Raises
    ------
    UnsupportedError
        Where Zarr does not take the settings.
    ChunksError
        Where a codec does not take chunks of that size.
    """
    try:
        array = zarr.create_array({}, **settings)
    except WRECKED as error:
        raise UnsupportedError(f"Zarr does not take these settings for the target: {said(error)}") from error
    chain = chain_of(array)
    check_codecs(array)
    return _stored(array, tuple(array.shards or array.chunks), chain, store)


def check_target(source: zarr.Array, store: StoreLike, *, overwrite: bool) -> None:
    """Refuse a target that would cost the user data.

    Raises
    ------
    TargetError
        Where the target is the source, or one lies inside the other; where it exists and ``overwrite`` is not asked
        for; and where it is a directory that is no Zarr array, whatever is asked for.
    """
    check_apart(source, store)
    check_place(store, overwrite=overwrite)


def check_apart(source: zarr.Array | zarr.Group, store: StoreLike) -> None:
    """Refuse a target that is the source, and one where the one lies inside the other.

    Raises
    ------
    TargetError
        It names both; or what is given is no place for an array.
    """
    _check_is_place(store)
    check_replaces(store)
    here, there = place_name(source.store_path.store, source.store_path.path), place_name(store)
    if (here and here == there) or (source.store_path.store == store and not source.store_path.path):
        raise TargetError(f"the target {store} is the source itself")
    mine, theirs = parts_of(source.store_path.store, source.store_path.path), parts_of(store)
    if here and there and any(lie_together(a, b) for a in mine for b in theirs):
        raise TargetError(f"the target {there} and the source {here} lie one inside the other")


def _check_is_place(store: Any) -> None:
    if not isinstance(store, Place):
        raise TargetError(f"the target is of type {type(store).__name__}: it takes a path, a URL or a Zarr store")


def check_place(store: StoreLike, *, overwrite: bool) -> None:
    """Refuse a target that is there, as `check_target` does, whatever is written to it."""
    _check_is_place(store)
    opened(store)
    overwrite = flag(overwrite, "overwrite")
    if isinstance(store, Store) and store.read_only:
        raise TargetError(f"the target {store} is opened read-only")
    if is_empty(store):
        return
    if not overwrite:
        raise TargetError(f"the target {store} exists; ask for overwrite to replace it")
    if not _is_array(store) and unfinished_run(store) is None:  # of which the mark alone is there, or no metadata else
        raise TargetError(f"the target {store} exists and is not a Zarr array; it is not overwritten")


def is_empty(store: StoreLike) -> bool:
    """Return whether there is nothing at all."""
    folder = local_folder(store)
    if folder is not None:
        names = os.listdir(folder) if os.path.isdir(folder) else [folder]
        return not os.path.lexists(folder) or all(map(PARTIAL.search, names))
    place = store_path(store)
    return sync(place.store.is_empty(place.path))


def store_path(store: StoreLike) -> StorePath:
    """Return a place as Zarr writes it: a store, and a prefix of it."""
    place = store_of(store)
    if isinstance(place, StorePath):
        return place
    return StorePath(place if isinstance(place, Store) else LocalStore(str(place)))


def _is_array(store: StoreLike) -> bool:
    try:
        open_array(store, unfinished=True)
    except (NotFoundError, StoreFailure):
        return False
    return True


def create_target(
    store: StoreLike, settings: dict[str, Any], run: str, *, overwrite: bool, durable: bool = True
) -> ArrayFile:
    """Make the target, marked unfinished; what syncs all that a run writes names one that is ``durable``, and new.

    Raises
    ------
    TargetError
        Where it has appeared meanwhile.
    RunError
        Where it goes again while it is made.
    StoreFailure
        Where it cannot be made.
    """
    marked = settings | {"attributes": settings["attributes"] | {MARK: run}}
    folder = local_folder(store)
    try:
        if folder is None:
            return describe(zarr.create_array(store, **marked, overwrite=overwrite), written=True)  # type: ignore[arg-type]
        if overwrite and _is_array(folder):
            replace_local(folder, MARK, f"{run}-makes-room", marked, durable=durable)
        else:
            _make_new(folder, marked, durable=durable)
        return describe(open_array(store, mode="r+", unfinished=True), written=True)
    except NotFoundError as error:
        raise RunError(f"the target {store} was taken away while it was made") from error
    except (ContainsArrayError, ContainsGroupError):
        raise TargetError(f"the target {store} exists; ask for overwrite to replace it") from None
    except OSError as error:
        raise write_error(str(store), error) from error


def _make_new(folder: str, settings: dict[str, Any], *, durable: bool) -> None:
    """Make an array where there is none, unless something else has appeared there."""
    if any(os.path.lexists(os.path.join(folder, name)) for name in NODES):
        raise ContainsArrayError("", folder)
    put_new(folder, settings, durable=durable, named=False)


def create_scratch(
    folder: str | RemoteStore, like: ArrayFile, stored: Stored, *, durable: bool = False, boot: str = ""
) -> ArrayFile:
    """Make a plain array for the chunks of ``stored``, with the dtype and fill value of ``like``, or open it.

    Parameters
    ----------
    boot : str
        The start of the system that it does not outlive: it stays in the cache. Empty where it is on a device.
    """
    if not is_scratch(folder):
        remove_scratch(folder)
    with suppress(NotFoundError):
        return describe(open_array(folder, mode="r+"))
    settings: dict[str, Any] = {
        "shape": stored.grid.shape,
        "chunks": stored.grid.chunks,
        "dtype": like.dtype.newbyteorder("="),
        "fill_value": like.fill_value,
        "filters": None,
        "compressors": None,
        "serializer": BytesCodec(endian=sys.byteorder if like.dtype.itemsize > 1 else None),
        "attributes": {BOOT: boot} if boot else {},
    }
    try:
        if isinstance(folder, RemoteStore):
            return describe(zarr.create_array(folder, **settings))
        put_new(folder, settings, durable=durable, named=False)
    except OSError as error:
        raise write_error(str(folder), error) from error
    return describe(open_array(folder, mode="r+"))


def is_scratch(folder: str | RemoteStore) -> bool:
    """Return whether there is a scratch array in a folder, and nothing of it was lost with the system's cache."""
    if isinstance(folder, RemoteStore):
        return sync(folder.exists(METADATA))
    try:
        metadata = json.loads(Path(folder, METADATA).read_bytes())
        return metadata.get("attributes", {}).get(BOOT) in (None, on_device.boot())
    except (OSError, ValueError, AttributeError):
        return False


def remove_scratch(folder: str | RemoteStore) -> None:
    """Remove a scratch array, or a folder of them, their metadata first: what a removal cut short leaves is none."""
    if isinstance(folder, RemoteStore):
        with suppress(StoreFailure):
            sync(folder.delete_dir(""))
        return
    if os.path.islink(folder):
        return
    for array in (Path(folder), *Path(folder).glob("*")):
        if array.is_symlink():  # never out of the folder
            continue
        with suppress(OSError):
            (array / METADATA).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def finish_target(file: ArrayFile, *, durable: bool = True) -> None:
    """Take the unfinished mark away: every chunk is written, and where that is to be ``durable`` on its device.

    Raises
    ------
    RunError
        Where it is not there any more, or is another one.
    """
    documents = document_store(file.folder) if durable and file.folder is not None else None
    take_mark_away(partial(_put_finished, file, documents))


def finishing(file: ArrayFile, *, durable: bool = True) -> Callable[[], None]:
    """Write what has no unfinished mark beside what has it; what is returned puts it in its place.

    Where that is to be ``durable``, all is synced in between, and so the device is asked once less.

    Raises
    ------
    RunError
        As of `finish_target`.
    """
    if file.folder is None or not durable:
        return partial(finish_target, file, durable=durable)
    store = PreparedStore(file.folder)
    _put_finished(file, store)
    return partial(take_mark_away, store.publish)


def take_mark_away(put: Callable[[], None]) -> None:
    """Put the documents of a target that is finished in the place of those that are marked."""
    put()


def _put_finished(file: ArrayFile, store: StoreLike | None) -> None:
    file.presence.check()
    array = file.zarr if store is None else zarr.open_array(store, mode="r+")  # type: ignore[arg-type]
    attributes = dict(array.attrs.asdict())
    attributes.pop(MARK, None)
    array.attrs.put(attributes)


def document_store(store: StoreLike, *, durable: bool = True) -> StoreLike:
    """Return a store through which documents of metadata are written: in a folder, each is whole, and on its device."""
    folder = local_folder(store) if durable else None
    return store if folder is None else DocumentStore(folder)


def free_bytes(folder: str) -> int:
    """Bytes free on the device that holds ``folder``, or will hold it."""
    there = Path(folder)
    while not there.exists():
        there = there.parent
    return shutil.disk_usage(there).free
