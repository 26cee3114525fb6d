"""Contents of a store, as plain data.

Only metadata is read, and on request the sizes of stored chunks.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import zarr
from zarr.errors import GroupNotFoundError, ZarrUserWarning

from oocarrays.errors import NotFoundError
from oocarrays.show.report import shape_text
from oocarrays.storage.files import array_file
from oocarrays.storage.files.documents import WRECKED, mark_of, said
from oocarrays.storage.files.formats import DIMENSIONS, dimension_names
from oocarrays.storage.files.group_file import is_consolidated, skipped_in
from oocarrays.storage.files.places import StoreLike, local_folder, name_of, store_path
from oocarrays.storage.files.presence import presence_of
from oocarrays.storage.local.fs import MARK, translated
from oocarrays.storage.stores.joined import foreign_at, with_drafts, without_drafts


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayFacts:
    """Facts in an array's metadata."""

    store: str
    zarr_format: int
    shape: tuple[int, ...]
    dimension_names: tuple[str | None, ...] | None
    dtype: str
    itemsize: int
    chunks: tuple[int, ...] | None
    """Chunk length in each axis, in elements; None for chunks of unequal lengths."""
    shards: tuple[int, ...] | None
    """Shard length in each axis, in elements; None without shards."""
    codecs: tuple[str, ...]
    """Codecs of a chunk, in the order of encoding."""
    fill_value: Any
    """Value of elements that are not stored: a number, or text."""
    nbytes: int
    stored_bytes: int | None
    """Bytes in the store; None unless requested."""
    all_chunks: int
    """Number of chunks of the complete array, or of shards, if any."""
    missing_chunks: int | None
    """Number of chunks that are not stored; None unless requested, or if counting them takes long."""
    attributes: Mapping[str, Any]
    """The user's attributes, without those that other fields show."""
    unfinished: str | None
    """Id of the run that has not finished it; None if it is finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """Facts in a group's metadata, and its members."""

    store: str
    zarr_format: int
    consolidated: bool
    """Whether its metadata includes that of its members."""
    attributes: Mapping[str, Any]
    members: Mapping[str, ArrayFacts | GroupFacts]
    unfinished: str | None
    """Id of the run that has not finished it; None if it is finished."""
    skipped: Mapping[str, str]
    """Reasons that arrays of a file other than Zarr are left out, by name."""

    @property
    def arrays(self) -> tuple[ArrayFacts, ...]:
        below = (m.arrays if isinstance(m, GroupFacts) else (m,) for m in self.members.values())
        return tuple(array for arrays in below for array in arrays)


def array_facts(array: zarr.Array, *, stored: bool = False) -> ArrayFacts:
    attributes = dict(array.attrs.asdict())
    unfinished = mark_of(attributes)
    attributes.pop(MARK, None)
    names = dimension_names(array)
    if array.metadata.zarr_format == 2 and names:
        del attributes[DIMENSIONS]
    chunks, shards = _pieces(array)
    there = presence_of(array, name_of(array.store_path), read=False)
    foreign = foreign_at(array.store_path) if stored else None  # of another file, the bytes of the array in it
    held = array.nbytes_stored() if stored and not foreign else None
    return ArrayFacts(
        store=name_of(array.store_path),
        zarr_format=array.metadata.zarr_format,
        shape=tuple(array.shape),
        dimension_names=names or None,
        dtype=str(array.dtype),
        itemsize=array.dtype.itemsize,
        chunks=chunks,
        shards=shards,
        codecs=codec_names(array),
        fill_value=_number_or_text(array.fill_value),
        nbytes=int(array.size) * array.dtype.itemsize,
        stored_bytes=int(foreign[0].stored_bytes(foreign[1])) if foreign else held,
        all_chunks=there.chunks,
        missing_chunks=there.count_missing() if stored else None,
        attributes=attributes,
        unfinished=unfinished,
    )


def _pieces(array: zarr.Array) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return chunks and shards, if they have one length each."""
    try:
        return tuple(array.chunks), tuple(array.shards) if array.shards else None
    except NotImplementedError:
        return None, None


def codec_names(array: zarr.Array) -> tuple[str, ...]:
    """Return the names of an array's codecs, in the order of encoding."""
    codecs: list[Any] = [*array.filters, array.serializer, *array.compressors]
    known = [codec for codec in codecs if codec is not None]  # of Zarr, or of numcodecs, as in format 2
    configs = [codec.to_dict() if hasattr(codec, "to_dict") else codec.get_config() for codec in known]
    return tuple(str(config.get("name", config.get("id", codec))) for config, codec in zip(configs, known, strict=True))


def contents(store: StoreLike, *, stored: bool = True) -> ArrayFacts | GroupFacts:
    """Return the facts of a store: of its array, or of its group with all members."""
    try:
        return array_facts(array_file.open_array(store, unfinished=True), stored=stored)
    except NotFoundError as no_array:
        group = _open_group(store, no_array)
    try:
        with warnings.catch_warnings(), translated("read", store, full=True):
            warnings.simplefilter("ignore", ZarrUserWarning)  # of folders that are neither: they are passed over
            members: Any = sorted(group.members(max_depth=None))
            found = {name: without_drafts(node) for name, node in members}
            return _group_facts(without_drafts(group), "", found, stored)
    except WRECKED as error:
        raise NotFoundError(f"{store} cannot be read as a Zarr group: {said(error)}") from error


def _open_group(store: StoreLike, no_array: NotFoundError) -> zarr.Group:
    """Open the group; of a local one the members' own metadata is read, which is cheap and never out of date.

    Unfinished members are read from their drafts.
    """
    folder = local_folder(store)
    local = folder is not None
    if folder is not None and not os.path.exists(folder):  # Zarr makes the folder of a store opened for writing
        raise no_array
    try:
        return zarr.open_group(with_drafts(store_path(store)), mode="r", use_consolidated=False if local else None)
    except GroupNotFoundError:
        raise NotFoundError(str(no_array).replace("no Zarr array in", "no Zarr array or group in")) from None
    except (OSError, *WRECKED):
        raise no_array from None


def _group_facts(group: zarr.Group, path: str, found: Mapping[str, Any], stored: bool) -> GroupFacts:
    """Return a group and its members, from all nodes by their path from the outermost group."""
    attributes = dict(group.attrs.asdict())
    unfinished = mark_of(attributes)
    attributes.pop(MARK, None)
    here = {p.rpartition("/")[2]: (p, node) for p, node in found.items() if p.rpartition("/")[0] == path}
    return GroupFacts(
        store=name_of(group.store_path),
        zarr_format=group.metadata.zarr_format,
        consolidated=is_consolidated(group),
        attributes=attributes,
        unfinished=unfinished,
        skipped=skipped_in(group),
        members={
            name: _group_facts(node, p, found, stored)
            if isinstance(node, zarr.Group)
            else array_facts(node, stored=stored)
            for name, (p, node) in here.items()
        },
    )


def chunks_text(array: ArrayFacts) -> str:
    return "of unequal length" if array.chunks is None else shape_text(array.chunks)


def _number_or_text(value: Any) -> Any:
    numeric = isinstance(value, np.generic) and value.dtype.kind in "biuf"
    return value.item() if numeric else value if value is None else str(value)
