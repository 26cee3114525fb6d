"""Rechunks as they are asked for: the same terms for one array, or for each of a group.

chunks={"air": (100, 20), "deep/temp": {"time": -1}}      arrays: one for each axis, or by the names of dimensions
--chunks air=100,20 --chunks deep/temp=time:-1            the same; also in one word: air=100,20,deep/temp=time:-1
chunks={"time": -1, "lat": 10}, --chunks time=-1,lat=10   dimensions: of all arrays that have them

A name of both is a dimension's, as for xarray; {"time": {"time": 10}} is the array. Coordinates of dimensions, the
arrays that have their dimension's name, keep their chunks unless they are named so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import zarr

from oocarrays.errors import ChunksError, NotFoundError, UnsupportedError
from oocarrays.graphs import settings
from oocarrays.graphs.rechunk.program import Destination
from oocarrays.graphs.settings import setting
from oocarrays.mapping.given import Names, Policy, names_of_axes
from oocarrays.mapping.grid import check_priced, chunks_along
from oocarrays.mapping.section import axis_order
from oocarrays.options.chunks import LINES, cuts, parsed_chunks, regular_chunks, regular_shards, uneven_lengths
from oocarrays.options.given import Target, codecs_of, own_of
from oocarrays.plan.documents import Settings
from oocarrays.plan.plan import Resources
from oocarrays.plan.rechunk.plan import RechunkPlan, plan_rechunk
from oocarrays.plan.rechunk.ways import Strategy
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.formats import as_stated, dimension_names, has_fixed_size, is_foreign, target_settings
from oocarrays.storage.files.group_file import GroupFile
from oocarrays.storage.files.places import StoreLike, in_files
from oocarrays.storage.files.target import uneven_target
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.underway import lists_keys


def asked_for(file: GroupFile, chunks: Any) -> dict[str, Any]:
    """Return the chunks of each array to be rewritten, by its path, with names checked.

    Arrays in another format's coding are rewritten in their own chunks, for other readers of Zarr. So are all arrays of
    a store that cannot list its keys for copying, and all arrays of a group that changes its Zarr format: a format
    change needs no chunks.
    """
    there = _listed(list(file.arrays))
    if chunks is None and file.changes_format:
        return _others(file)
    if not isinstance(chunks, Mapping):
        raise ChunksError(
            f"{file.name} is a group, but chunks={chunks!r} names none of its arrays: "
            f'write chunks={{"name": …}}; its arrays are {there}'
        )
    if not chunks:
        raise ChunksError(f"chunks={{}} names no array of {file.name}; its arrays are {there}")
    dims = {path: set(dimension_names(array) or ()) - {None} for path, array in file.arrays.items()}
    every = {name for mine in dims.values() for name in mine}
    lengths = {given: asked for given, asked in chunks.items() if not isinstance(asked, Mapping) and given in every}
    for given, asked in lengths.items():
        if isinstance(asked, list | tuple) and len(asked) == 1:
            lengths[given] = asked[0]
    wanted: dict[str, Any] = {}
    for path, mine in dims.items():
        named = {name: length for name, length in lengths.items() if name in mine}
        is_coordinate = mine == {path.rpartition("/")[2]}
        if named and not is_coordinate and has_fixed_size(file.arrays[path].dtype):
            wanted[path] = named
    by_name = _by_name(file, {given: asked for given, asked in chunks.items() if given not in lengths})
    if not wanted | by_name:
        raise ChunksError(f"chunks={chunks!r} apply to coordinates only: name them as in {{'time': {{'time': 10}}}}")
    return _others(file) | wanted | by_name


def _others(file: GroupFile) -> dict[str, Any]:
    """Return the arrays that cannot be copied as they are, with their own chunks."""
    listed, changed = lists_keys(file.zarr.store_path.store), file.changes_format
    return {
        name: array.chunks
        for name, array in file.arrays.items()
        if is_foreign(array) or not listed or (changed and has_fixed_size(array.dtype))
    }


def _by_name(file: GroupFile, chunks: Mapping[Any, Any]) -> dict[str, Any]:
    there = _listed(list(file.arrays))
    wanted: dict[str, Any] = {}
    for given, lengths in chunks.items():
        name = str(given).strip("/")
        if name in file.groups:
            raise NotFoundError(f"{given!r} in {file.name} is a group, not an array; its arrays are {there}")
        if name not in file.arrays:
            raise NotFoundError(f"no array {given!r} in {file.name} or dimension; its arrays are {there}")
        if name in wanted:
            raise ChunksError(f"chunks name the array {name!r} twice")
        wanted[name] = lengths
    return wanted


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LINES} more" if len(names) > LINES else ""
    return ", ".join(names[:LINES]) + more if names else "no arrays"


def read_chunks(words: Sequence[str]) -> Any:
    """Read the ``--chunks`` options of a group's arrays, by the arrays' names."""
    named: dict[str, list[str]] = {}
    for word in words:
        name = ""
        for part in filter(None, word.split(",")):
            before, is_named, length = part.rpartition("=")
            name = before if is_named else name
            if is_named and name in named:
                raise ChunksError(f"--chunks {word} names the array {name!r} twice")
            named.setdefault(name, []).append(length)
    if "" in named and max(len(words), len(named)) > 1:
        raise ChunksError(f"--chunks {','.join(named[''])} names no array: write NAME={','.join(named[''])}")
    read: dict[str, Any] = {}
    for name, text in ((name, ",".join(parts)) for name, parts in named.items()):
        try:
            read[name] = parsed_chunks(text.replace(":", "="))
        except ValueError:
            raise ChunksError(
                f"--chunks {text!r} is not a list of lengths such as 16384,256, nor time:-1,lat:20"
            ) from None
    return read.get("", read)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planner:
    """Common options for planning the rechunk of arrays."""

    to: Target
    """Settings of the target; what is not stated is that of the source."""
    method: Strategy | Literal["auto"]
    overwrite: bool
    scratch: str | RemoteStore
    missing: Policy
    resources: Resources
    grows: bool = False
    """Whether the target will grow with its source: chunks and shards may then be longer than its axes."""

    def planned(
        self, opened: zarr.Array, target: StoreLike, chunks: Any, *, member: bool = False
    ) -> tuple[RechunkPlan, ArrayFile, Destination]:
        file, named = array_file.describe_source(opened, self.missing), self.to.dimension_names
        names = dimension_names(opened) if named is None else names_of_axes(named, opened.ndim)
        order = None if self.to.orientation is None else axis_order(self.to.orientation, opened.ndim, names)
        if chunks is None and order is not None:
            chunks = chunks_along(order, file.stored.grid.shape, file.stored.grid.chunk_size)
        wanted = replace(self.to, chunks=chunks)
        made, lengths, said = settings_of(wanted, file, names, order=order, grows=self.grows)
        if lengths and member:
            raise UnsupportedError("chunks of unequal length are possible for a single array, not for a group")
        made = as_stated(made, **own_of(self.to))
        if lengths:
            target, made = uneven_target(target, made, lengths, durable=setting("durable"))
        made_of = array_file.preview(made, target)
        check_priced(made_of, "the target")
        plan = plan_rechunk(
            file.stored, made_of, self.resources, method=self.method, remote_scratch=not in_files(self.scratch)
        )
        destination = Destination(
            store=target,
            settings=made,
            overwrite=self.overwrite,
            scratch=self.scratch,
            past_cache_above=settings.past_cache_above(),
            said=said,
        )
        return plan, file, destination


def settings_of(
    to: Target, file: ArrayFile, names: Names, *, order: tuple[int, ...] | None = None, grows: bool = False
) -> tuple[Settings, tuple[tuple[int, ...], ...] | None, tuple[str, ...]]:
    """Return arguments of ``zarr.create_array`` for an array in other chunks, the lengths of uneven ones, and notices
    of cut ones."""
    grid = file.stored.grid
    lengths = uneven_lengths(to.chunks, grid, file.dtype, names)
    chunks = tuple(map(max, lengths)) if lengths else to.chunks
    shape = grid.chunks if chunks is None else regular_chunks(chunks, grid, file.dtype, names, grows=grows)
    shards = regular_shards(to.shards, shape, grid.shape, file.dtype, names, grows=grows)
    said = () if grows else cuts(to.chunks, to.shards, grid, names)
    return target_settings(file.zarr, shape, shards=shards, order=order, **codecs_of(to)), lengths, said
