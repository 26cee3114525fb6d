"""Stream files: groups with a segment for each mode, and an attribute with the valid size of each.

    group   nb  cb        rows: plain arrays of steps × cells
            ib  directory superblocks
            first  length of each cell, and  level  entries, once the file has been closed
            attribute oocarrays:streams

The attribute is written after all data that it describes are on the device: a reader sees the file as last flushed or
closed.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import zarr
from zarr.core.sync import sync
from zarr.errors import ContainsArrayError, ContainsGroupError, NodeTypeValidationError

from oocarrays.errors import NotFoundError, TargetError
from oocarrays.plan.streams.directory import HEAD, NONE
from oocarrays.plan.streams.meta import KEY, NB_GATHERED, Cells, Independent, Meta, Regular, described, ended, meta_from
from oocarrays.storage.files.array_file import blobs_of
from oocarrays.storage.files.documents import document_store, documents
from oocarrays.storage.files.making_room import already_exists, is_free
from oocarrays.storage.files.places import StoreLike, local_folder, store_path
from oocarrays.storage.journal.lock import Busy, Hold
from oocarrays.storage.local.fs import METADATA, translated
from oocarrays.storage.local.syncing import Syncer
from oocarrays.storage.meter import Meter
from oocarrays.storage.streams.raw import ArraySteps, ChunkCache, RawChunks

LOCK = ".oocarrays-streams"
"""Name of the lock file in the group's folder, held by the writer."""
KEYS: Any = {"name": "default", "separator": "."}
"""Encoding of chunk keys: all chunks of an array are in one folder, without nested folders."""
LARGEST = {"b": 1, "i": 8, "u": 8, "f": 8, "c": 16}
"""Largest item in bytes of each kind that every Zarr reader supports; others are stored as bytes."""


class StreamFile:
    """A Zarr group that holds streams."""

    def __init__(self, store: StoreLike, meta: Meta, *, durable: bool = True) -> None:
        self.store = store
        self.meta = meta
        self.durable = durable
        self.folder = local_folder(store)
        self._arrays: dict[tuple[str, bool], zarr.Array] = {}
        self.is_held = False
        """Whether it is open for writing here."""
        self._hold: Hold | None = None
        self._syncer: Syncer | None = None

    def __reduce__(self) -> Any:
        return partial(StreamFile, durable=self.durable), (self.store, self.meta)

    @property
    def name(self) -> str:
        return self.folder or str(self.store)

    def latest(self) -> StreamFile:
        return open_file(self.store, durable=self.durable)

    def steps(self, meter: Meter, budget: int, cache: ChunkCache) -> RawChunks | None:
        """Return the steps of a file that is a single NB segment; None for a group with segments."""
        return None

    def hold(self) -> None:
        if self.folder is None:
            self.is_held = True
            return
        self._hold = held(os.path.join(self.folder, LOCK), self.name)
        self.is_held = True
        self._syncer = Syncer(lambda: [self.folder or ""], active=self.durable)

    def release(self) -> None:
        if self._hold is not None:
            with suppress(OSError):
                os.unlink(self._hold.path)
            self._hold.close()
        self._hold = self._syncer = None
        self.is_held = False

    def begin_again(self, ranks: int) -> None:
        """Reopen an existing file for writing: discard data beyond its attribute, and mark it open."""
        former = self.meta
        meta = ended(former)
        meta = replace(meta, cells=meta.cells.redealt(ranks))
        known = {"nb": former.nb.block, "cb": former.cb.block}
        known |= dict.fromkeys(("ib", "directory", "first", "length", "level"), former.ib.block)
        with translated("write", self.name):  # arrays unknown to the attribute, created for data never flushed
            for name in (name for name, block in known.items() if not block):
                sync((store_path(self.store) / name).delete_dir())
        if former.ib.block and not former.is_closed:
            self._cut_off(former.ib)
        put_attribute(self.store, meta, durable=self.durable)
        self.meta = meta

    def _cut_off(self, ib: Independent) -> None:
        array, words = self.array("directory", write=True), HEAD + ib.pointers
        chunks = self.chunks("directory", Meter(), write=True)
        for number in stored_numbers(array):
            valid = ib.valid_entries(number)
            if not valid:
                sync((array.store_path / chunks.key(number)).delete())
            elif valid < ib.entries:
                chunk = chunks.get(number).copy()
                chunk.view(np.int64)[valid * words :] = NONE
                chunks.put(number, chunk)

    def array(self, name: str, *, write: bool = False) -> zarr.Array:
        found = self._arrays.get((name, write))
        if found is None:
            try:
                found = zarr.open_array(store_path(self.store) / name, mode="r+" if write else "r", zarr_format=3)
            except (FileNotFoundError, KeyError, NodeTypeValidationError):
                raise NotFoundError(f"{self.name} lacks its array {name}: its streams cannot be read") from None
            self._arrays[name, write] = found
        return found

    def chunks(
        self, name: str, meter: Meter, cache: ChunkCache | None = None, *, write: bool, columns: int = 1
    ) -> RawChunks:
        """Return chunks of an array by number, ``columns`` side by side; a missing one of the directory is empty."""
        array, fill = self.array(name, write=write), NONE & 0xFF if name == "directory" else None

        def key(number: int) -> str:
            index = (*divmod(number, columns), *(0,) * array.ndim)
            return array.metadata.encode_chunk_key(index[: array.ndim])

        nbytes = math.prod(array.chunks) * array.dtype.itemsize
        return RawChunks(blobs_of(array), key, nbytes, meter, name=str(array.store_path), cache=cache, fill=fill)

    def _make(self, name: str, **settings: Any) -> None:
        with suppress(ContainsArrayError), translated("write", f"{self.name}/{name}"):
            self._arrays[name, True] = zarr.create_array(
                store_path(self.store) / name, compressors=None, filters=None, chunk_key_encoding=KEYS, **settings
            )

    def make_rows(self, name: str, block: int, dtype: Any, most: int) -> None:
        """Create the array of NB or CB, unless it exists: rows of one block of each cell, with items of a type."""
        dtype = np.dtype(dtype)
        if dtype.itemsize > LARGEST.get(dtype.kind, -1) or block % dtype.itemsize:
            dtype = np.dtype(np.uint8)
        cells, items = self.meta.cells, block // dtype.itemsize
        within = () if items == 1 else (items,)
        row = cells.chunk_rows * max(cells.inner, 1) * block
        rows = 1 if row >= NB_GATHERED else max(min(4 * NB_GATHERED, most) // row, 1)
        self._make(
            name, shape=(0, *cells.shape, *within), chunks=(rows, *cells.chunk_shape, *within),
            dtype=dtype.newbyteorder("="), fill_value=0,
        )  # fmt: skip

    def make_independent(self, ib: Independent) -> None:
        words = HEAD + ib.pointers
        self._make("ib", shape=(0, ib.superblock), chunks=(1, ib.superblock), dtype="u1", fill_value=0)
        shape, chunks = (0, ib.entries, words), (1, ib.entries, words)
        self._make("directory", shape=shape, chunks=chunks, dtype="i8", fill_value=NONE)

    def keep_cells(self, first: np.ndarray, levels: np.ndarray, lengths: np.ndarray) -> None:
        """Write the first entry and length of each cell, and all level entries."""
        cells = self.meta.cells
        chunks = tuple(max(n, 1) for n in cells.chunk_shape)
        for name, values in (("first", first), ("length", lengths)):
            self._make(name, shape=cells.shape, chunks=chunks, dtype="i8", fill_value=NONE)
            self._fill(name, values.reshape(cells.shape))
        words = levels.shape[1]
        self._make("level", shape=(0, words), chunks=(4096, words), dtype="i8", fill_value=NONE)
        self._fill("level", levels)

    def _fill(self, name: str, values: np.ndarray) -> None:
        with translated("write", f"{self.name}/{name}"):
            array = self.array(name, write=True)
            if array.shape != values.shape:
                array.resize(values.shape)
            array[...] = values

    def kept(self, name: str) -> np.ndarray:
        return np.asarray(self.array(name)[...])

    def commit(self, meta: Meta, *, synced: bool = True) -> None:
        """Sync all written data to the device, and then write the attribute."""
        superblocks = meta.ib.superblocks
        rows = {"nb": meta.nb.rows, "cb": meta.cb.rows, "ib": superblocks[0], "directory": superblocks[1]}
        for name, count in rows.items():  # the extents that other readers of Zarr see
            if count and (array := self.array(name, write=True)).shape[0] != count:
                with translated("write", f"{self.name}/{name}"):
                    array.resize((count, *array.shape[1:]))
        if self._syncer is not None and synced:
            self._syncer.finish()
        put_attribute(self.store, meta, durable=self.durable)
        self.meta = meta


def held(path: str, name: str) -> Hold:
    hold = Hold(path)
    try:
        with translated("write", path):
            hold.claim(0)
    except Busy:
        raise TargetError(f"{name} is open for writing elsewhere: close it there first") from None
    return hold


def put_attribute(store: StoreLike, meta: Meta, *, durable: bool) -> None:
    place = store_path(document_store(store, durable=durable))
    with translated("write", store):
        zarr.open_group(place, mode="r+").attrs[KEY] = meta.as_json()


def stored_numbers(array: zarr.Array) -> list[int]:
    """Return the indexes along the first axis of the stored chunks."""
    place = array.store_path

    async def names() -> list[str]:
        return [key async for key in place.store.list_dir(place.path)]

    found = (re.fullmatch(r"c\.(\d+)(\.\d+)*", name.rpartition("/")[2]) for name in sync(names()))
    return sorted({int(match[1]) for match in found if match})


class ArrayStreams(StreamFile):
    """A Zarr array as streams, with one axis as the steps: a single NB segment."""

    def __init__(self, array: zarr.Array, axis: int) -> None:
        shape = array.shape[:axis] + array.shape[axis + 1 :]
        cells = Cells.of(shape, 1, array.dtype.itemsize)
        nb = Regular(block=array.dtype.itemsize, nbytes=array.shape[axis] * array.dtype.itemsize)
        meta = Meta(cells=cells, dtype=described(array.dtype), nb=nb, is_closed=True)
        super().__init__(array.store_path, meta)
        self.source = array
        self.axis = axis

    def __reduce__(self) -> Any:
        return ArrayStreams, (self.source, self.axis), {"meta": self.meta}

    def latest(self) -> StreamFile:
        """Return the file itself, because this package does not write it."""
        return self

    def steps(self, meter: Meter, budget: int, cache: ChunkCache) -> RawChunks:
        steps = ArraySteps(self.source, self.axis, budget)
        return RawChunks(steps, int, steps.nbytes, meter, name=str(self.source.store_path))


def create_file(store: StoreLike, meta: Meta, *, overwrite: bool, durable: bool) -> StreamFile:
    file = StreamFile(store, meta, durable=durable)
    if not is_free(store):
        if not overwrite:
            raise TargetError(
                f"{file.name} exists; pass overwrite=True (--overwrite) to replace it, or mode 'a' to append"
            )
        if stream_attribute(store) is None:
            raise TargetError(f"{file.name} exists and holds no streams; it is not overwritten")
        file.hold()
        file.release()
    try:
        with translated("write", file.name):
            zarr.create_group(store_path(store), overwrite=overwrite, attributes={KEY: meta.as_json()})
    except (ContainsArrayError, ContainsGroupError):
        raise already_exists(file.name) from None
    return file


def stream_attribute(store: StoreLike) -> Any:
    """Return the stream attribute of a group; None if it is absent. Nothing is created."""
    (document,) = documents(store, (METADATA,))
    attributes = (document or {}).get("attributes")
    return attributes.get(KEY) if isinstance(attributes, dict) else None


def open_file(store: StoreLike, *, durable: bool = True) -> StreamFile:
    found = stream_attribute(store)
    if found is None:
        raise NotFoundError(f"no streams in {store}: it is no group that open_streams has written")
    return StreamFile(store, meta_from(found, str(store)), durable=durable)
