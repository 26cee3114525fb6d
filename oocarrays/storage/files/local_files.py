"""Local array files: one Zarr array per rank, in a Zarr group with the common descriptor in its attributes.

    store/  zarr.json            the descriptor
            rank-0000/           the part of rank 0, with its halo; its own attributes name the rank
            rank-0001/           …
    or      /disk/of/0.zarr      the same, each on the disk of its worker

Each rank reads and writes its own part of the array:

    array             0 1 2 3 │ 4 5 6 7          elements by their index in the array,
    file of rank 1          · │ 4 5 6 7 ·        and by their index in the file of their rank

Thakur 1995, sections 5.3.2 and 5.4: the local placement model.
"""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import zarr

from oocarrays.errors import DescriptorError, NotFoundError
from oocarrays.mapping.given import Policy
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.layouts.local import largest_rank
from oocarrays.mapping.selection import Axes, moved
from oocarrays.plan.documents import Settings
from oocarrays.storage.files import array_file, group_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import create_target, finish_target
from oocarrays.storage.files.descriptor import Descriptor, check_array, check_same, descriptor_of
from oocarrays.storage.files.documents import holds_group
from oocarrays.storage.files.making_room import check_replaceable
from oocarrays.storage.files.places import StoreLike, local_folder, location, member_store
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.local.fs import DESCRIPTOR
from oocarrays.storage.stores.remote import RemoteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFiles:
    """Files of all ranks, with their locations and descriptor."""

    store: StoreLike
    """Store of the group."""
    descriptor: Descriptor
    """Descriptor of the group."""
    name: str
    """Name of its location for messages."""
    missing: Policy | None = None
    """Policy for missing chunks during reading."""
    known: tuple[Presence, ...] = ()
    """Presence record of each rank's file when all were opened; empty if not recorded."""
    scratch: tuple[str | RemoteStore, ...] = ()
    """Location of each rank's file, without a descriptor of its own, if they are scratch."""

    @property
    def ranks(self) -> int:
        assert self.descriptor.layout is not None, "local array files have a layout"
        return self.descriptor.layout.ranks

    def place(self, rank: int) -> StoreLike:
        if self.scratch:
            return self.scratch[rank]
        if self.descriptor.folders:
            return self.descriptor.folders.format(rank=rank)
        return member_store(self.store, rank_name(rank))

    def open(self, rank: int, *, mode: str = "r", unfinished: bool = False) -> zarr.Array:
        """Return the Zarr array of a rank, checked against the group's descriptor."""
        try:
            array = array_file.open_array(self.place(rank), mode=mode, unfinished=unfinished)
        except NotFoundError as error:
            own = f", on worker {self.descriptor.workers[rank]}'s own disk" if self.descriptor.folders else ""
            raise DescriptorError(
                f"the descriptor of {self.name} has {self.ranks} ranks; the file of rank {rank} is missing{own}: "
                f"{error}"
            ) from None
        name = location(array)
        check_same(self.descriptor, descriptor_of(array.attrs.asdict(), name), rank, name)
        check_array(self.descriptor.of_rank(rank), array, name)
        return array

    def file(self, rank: int, *, written: bool = False, unfinished: bool = False) -> ArrayFile:
        if self.scratch:
            return array_file.describe(array_file.open_array(self.scratch[rank], mode="r+"), written=True)
        mode = "r+" if written else "r"
        missing = None if written else self.missing
        known = self.known[rank] if self.known and not written else None
        if known:
            known.check()
        array = self.open(rank, mode=mode, unfinished=unfinished)
        file = array_file.describe(array, written=written, missing=missing)
        return replace(file, presence=known) if known else file


def rank_name(rank: int) -> str:
    return f"rank-{rank:04}"


def open_local_files(store: StoreLike | zarr.Group, *, unfinished: bool = False) -> LocalFiles | None:
    """Return the local array files in a group; None for a group without a descriptor."""
    group = group_file.open_group(store, unfinished=unfinished)
    name = location(group)
    said = descriptor_of(group.attrs.asdict(), name)
    if said is None:
        return None
    if said.placement != "local" or said.rank is not None:
        raise DescriptorError(f"the descriptor of {name} belongs to one array, not to a group")
    if isinstance(store, zarr.Group):
        store = local_folder(store.store_path) or store.store_path
    return LocalFiles(store=store, descriptor=said, name=name)


def rank_settings(descriptor: Descriptor, settings: Settings, rank: int) -> Settings:
    """Return the arguments of ``zarr.create_array`` for a rank's file, with chunks clipped to its shape."""
    shape = descriptor.part(rank).shape
    own = {"shape": shape, "attributes": {**settings["attributes"], DESCRIPTOR: descriptor.of_rank(rank).as_json()}}
    if settings.get("shards") is None:
        own["chunks"] = tuple(max(min(c, n), 1) for c, n in zip(settings["chunks"], shape, strict=True))
    return {**settings, **own}


def rank_grids(descriptor: Descriptor, settings: Settings) -> list[ChunkGrid]:
    assert descriptor.layout is not None, "local array files have a layout"
    each = (rank_settings(descriptor, settings, rank) for rank in range(descriptor.layout.ranks))
    return [ChunkGrid.of(tuple(made["shape"]), tuple(made.get("shards") or made["chunks"])) for made in each]


def largest_settings(descriptor: Descriptor, settings: Settings) -> Settings:
    """Return the arguments for the largest rank's file: settings valid for it are valid for all files."""
    assert descriptor.layout is not None, "local array files have a layout"
    return rank_settings(descriptor, settings, largest_rank(descriptor.layout))


class RankFiles:
    """Files of all ranks, each opened once per process, on first use."""

    def __init__(self, files: LocalFiles, *, written: bool = False) -> None:
        self.files = files
        self.written = written
        self._opened: dict[int, ArrayFile] = {}
        self._opening = threading.Lock()

    def __reduce__(self) -> Any:
        return partial(RankFiles, written=self.written), (self.files,)

    def file(self, rank: int) -> ArrayFile:
        """Return the file of a rank, opening it on first use."""
        with self._opening:
            if rank not in self._opened:
                self._opened[rank] = self.files.file(rank, written=self.written, unfinished=self.written)
            return self._opened[rank]

    @cached_property
    def shared(self) -> list[ArrayFile]:
        """Files of all ranks, opened apart to see whether they change; none if they are on workers' own disks."""
        return [] if self.files.descriptor.folders else [self.files.file(rank) for rank in range(self.files.ranks)]

    @property
    def presences(self) -> tuple[Presence, ...]:
        """Presence records of the files open in this process."""
        with self._opening:
            return tuple(file.presence for file in self._opened.values())

    def places(self, rank: int, axes: Axes) -> Axes:
        """Return the indices of elements of the array in the file of the rank that holds them."""
        part = self.files.descriptor.part(rank)
        along = zip(axes, part.own, part.depth, strict=True)
        return tuple(moved(taken, depth - int(own[0])) for taken, own, depth in along)


def placed(array: ArrayFile | RankFiles, rank: int, axes: Axes) -> tuple[ArrayFile, Axes]:
    """Return the array file that holds a rank's elements, and their indices in it."""
    if isinstance(array, RankFiles):
        return array.file(rank), array.places(rank, axes)
    return array, axes


def check_group_place(store: StoreLike, *, overwrite: bool) -> None:
    """Raise if a location for local array files holds other data."""
    check_replaceable(store, "not a group of local array files", _holds_files, overwrite=overwrite)


def _holds_files(store: StoreLike) -> bool:
    return holds_group(store) and open_local_files(store, unfinished=True) is not None


def create_group(
    store: StoreLike,
    descriptor: Descriptor,
    settings: Settings,
    run: str,
    *,
    overwrite: bool,
    durable: bool = True,
) -> None:
    described = {
        "zarr_format": settings["zarr_format"],
        "attributes": {**settings["attributes"], DESCRIPTOR: descriptor.as_json()},
    }
    group_file.make_group(store, described, run, overwrite=overwrite, durable=durable)


def create_file(
    place: StoreLike, settings: Settings, run: str | None, *, overwrite: bool, durable: bool = True
) -> None:
    """Create the file of one rank: a draft if a ``run`` writes it, else a finished array."""
    folder = local_folder(place)
    if folder is not None:
        os.makedirs(os.path.dirname(folder), exist_ok=True)
    file = create_target(place, settings, run or uuid.uuid4().hex[:12], overwrite=overwrite, durable=durable)
    if run is None:
        finish_target(file, durable=durable)
