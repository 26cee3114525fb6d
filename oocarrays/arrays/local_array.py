"""Local array files of the public API: one array, with each rank's part in its own file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import zarr
from dask.utils import format_bytes
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.errors import DescriptorError, LayoutError, TargetError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import Disks, client_of, names_of
from oocarrays.graphs.events import warn_of_missing
from oocarrays.mapping.given import as_numpy
from oocarrays.mapping.grid import Extents, Stored
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.local import shared
from oocarrays.mapping.section import Section, axis_order
from oocarrays.mapping.selection import Axes, Selection, lengths, moved
from oocarrays.options.given import memory_of
from oocarrays.plan.documents import Document
from oocarrays.plan.files.partitions import Slabs
from oocarrays.plan.machine import spread
from oocarrays.show import report
from oocarrays.show.notebook import rows_html
from oocarrays.storage.files.descriptor import Descriptor
from oocarrays.storage.files.formats import stored_order
from oocarrays.storage.files.local_files import LocalFiles, open_local_files
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.local.fs import DESCRIPTOR
from oocarrays.storage.meter import new_meter
from oocarrays.storage.sections.read import read_section
from oocarrays.storage.sections.write import write_section
from oocarrays.storage.stores.urls import absolute
from oocarrays.stored.reading import cast

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")


class LocalArrays(Extents):
    """Array in local array files: one Zarr array a rank, with its halo. Created by `create_array` and `open_array`.

    ``a[key]`` gathers the section from the files of the ranks that hold it; ``a[key] = values`` writes the elements
    and their copies in the halos of other ranks. Sizes do not count halos.

    Examples
    --------
    >>> import oocarrays as ooc
    >>> store, halves = zarr.storage.MemoryStore(), ooc.Layout.of(8, "block", ranks=2)
    >>> a = ooc.create_array(store, shape=8, dtype=int, layout=halves, placement="local", depth=1)
    >>> a[2:6] = range(2, 6)
    >>> a[::3], a.local(1)[...], a.inside(1)
    (array([0, 3, 0]), array([3, 4, 5, 0, 0, 0]), Section(lower=(1,), upper=(5,)))
    """

    def __init__(self, files: LocalFiles, *, mode: str = "r", disks: Disks | None = None) -> None:
        self._files = files
        self._mode = mode
        self._disks = disks or Disks()
        self._dtype, self._stored, known = self._look()
        self._files = replace(files, known=known)

    def _look(self) -> tuple[np.dtype, tuple[Stored, ...], tuple[Presence, ...]]:
        """Open every file; raise if its descriptor is wrong."""
        found = [self._at(rank, _facts) for rank in range(self.ranks)]
        dtype = found[0][0]
        other = next((rank for rank, (known, *_) in enumerate(found) if known != dtype), None)
        if other is not None:
            raise DescriptorError(
                f"the descriptor of {self.store} is of one array; the file of rank 0 has dtype {dtype}, "
                f"that of rank {other} {found[other][0]}"
            )
        _, stored, there = zip(*found, strict=True)
        return dtype, stored, there

    @property
    def files(self) -> LocalFiles:
        """Location and descriptor of the files."""
        return self._files

    def before_changes(self) -> LocalFiles:
        """Return the files as they are now, for a run that changes them.

        Raises
        ------
        RunError
            If they are not the opened files any more, or have lost their chunks.
        """
        there = tuple(self._at(rank, _presence_now) for rank in range(self.ranks))
        self._may_empty()
        return replace(self._files, known=there)

    def _may_empty(self) -> None:
        """Record that missing chunks may be fill values from now on: a write may leave a chunk out."""
        known = tuple(replace(each, stored=0) for each in self._files.known)
        self._files = replace(self._files, known=known)

    @property
    def disks(self) -> Disks:
        """Access to the files, if they are on workers' own disks."""
        return self._disks

    @property
    def is_writable(self) -> bool:
        """Whether they are open for writing."""
        return self._mode != "r"

    @property
    def stored(self) -> tuple[Stored, ...]:
        """Facts of each file for planners."""
        return self._stored

    def like(self) -> zarr.Array[Any]:
        """Return an array in memory without chunks, with the metadata of the file of rank 0."""
        return zarr.open_array(MemoryStore(self._at(0, _documents)), mode="r")

    def _at(self, rank: int, function: Callable[..., T], *args: Any) -> T:
        """Call a function of the files and a rank where its file is."""
        return self._disks.call(rank, function, self._files, rank, *args)

    @property
    def layout(self) -> Layout:
        """Layout of the array over ranks."""
        assert self._files.descriptor.layout is not None, "local array files have a layout"
        return self._files.descriptor.layout

    @property
    def ranks(self) -> int:
        """Number of ranks and of files."""
        return self.layout.ranks

    @property
    def depth(self) -> tuple[int, ...]:
        """Halo width along each axis, on either side."""
        return self._files.descriptor.depth

    @property
    def orientation(self) -> tuple[int, ...]:
        """Storage order of a chunk's elements: the axes from the slowest to the fastest."""
        return stored_order(self.like()) or tuple(range(self.ndim))

    @property
    def shape(self) -> tuple[int, ...]:
        """Extent of each axis of the whole array."""
        return self._files.descriptor.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of an element."""
        return self._dtype

    @property
    def store(self) -> str:
        """Store of the group with the descriptor."""
        return self._files.name

    @cached_property
    def zarr(self) -> zarr.Group:
        """The Zarr group itself."""
        return zarr.open_group(self._files.store, mode="r")  # type: ignore[arg-type]

    @property
    def attrs(self) -> dict[str, Any]:
        """The user's attributes."""
        return {name: value for name, value in self.zarr.attrs.asdict().items() if name != DESCRIPTOR}

    def local(self, rank: int) -> OutOfCoreArray:
        """Return the file of a rank, with its halo: ``inside(rank)`` locates its own elements.

        Raises
        ------
        LayoutError
            If there is no such rank.
        DescriptorError
            If the file is on the disk of another machine.
        """
        if self.is_writable:
            self._may_empty()
        self.layout.coordinates(rank)
        return OutOfCoreArray(self._files.open(rank, mode=self._mode), self._files.missing)

    def inside(self, rank: int) -> Section:
        """Return the position of a rank's own elements in its file: all of it, without a halo."""
        self.layout.coordinates(rank)
        return self._files.descriptor.part(rank).inside

    def slabs(self, rank: int, *, memory: int | float | str | None = None) -> Slabs:
        """Return the cut of a rank's part into slabs that fit a memory budget with their halos. Reads no data.

        Parameters
        ----------
        rank : int
            Rank whose part is cut.
        memory : int or str
            Budget of one slab in bytes; by default half of the free memory.

        Returns
        -------
        sequence
            Slabs in order, each with two sections in indices of the rank's part: ``own``, its elements, and ``outer``,
            these with the halo, which begins below 0 at the first slab.

        Raises
        ------
        BudgetError
            If not one element fits with its halo.
        """
        return Slabs.of(
            self.layout.local_shape(rank),
            depth=self.depth,
            order=self._files.descriptor.orientation or axis_order("row", self.ndim),
            itemsize=self.dtype.itemsize,
            budget=settings.budget(memory_of(memory)),
        )

    def __getitem__(self, key: Any) -> Any:
        taken = Selection.of(key, self.shape)
        out = np.empty(lengths(taken.axes), self.dtype)
        for rank in range(self.ranks):
            for among, there in self._common(taken.axes, rank, halo=False):
                out[among] = self._at(rank, _read, there)
        return taken.arranged(out)[()]

    def __setitem__(self, key: Any, values: Any) -> None:
        if not self.is_writable:
            raise TargetError(f"{self.store} is open for reading only: open it with mode='r+' to write to it")
        taken = Selection.of(key, self.shape)
        self._may_empty()
        given = taken.spread(cast(values, self.dtype))
        for rank in range(self.ranks):
            for among, there in self._common(taken.axes, rank, halo=True):
                self._at(rank, _write, there, given[among])

    def _common(self, wanted: Axes, rank: int, *, halo: bool) -> Iterator[tuple[Any, Axes]]:
        """Yield the overlap of the requested part and a file, as positions in the result and in the file."""
        part = self._files.descriptor.part(rank)
        held, start = (part.seen, part.start) if halo else (part.own, part.depth)
        along = [shared(w, h) for w, h in zip(wanted, held, strict=True)]
        if all(len(among) for among, _ in along):
            among = np.ix_(*(np.asarray(taken) for taken, _ in along))
            yield among, tuple(moved(there, by) for (_, there), by in zip(along, start, strict=True))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return as_numpy(lambda: self[...], dtype)

    def _title(self) -> str:
        shape, size = report.shape_text(self.shape), format_bytes(self.nbytes)
        return f"oocarrays.LocalArrays {shape} {self.dtype}, {self.layout}, {size}, {self.store}"

    def _rows(self) -> list[tuple[str, str]]:
        descriptor = self._files.descriptor
        order = "none" if descriptor.orientation is None else " → ".join(map(str, descriptor.orientation))
        shown = min(self.ranks, 8)
        return [
            ("halo", f"depth {report.shape_text(self.depth)}" if any(self.depth) else "none"),
            ("orientation", f"axes {order}, the fastest last"),
            *((f"rank {rank}", self._file_text(rank)) for rank in range(shown)),
            *([("", f"{self.ranks - shown} more")] if shown < self.ranks else []),
            *([("disks", f"workers' own: {descriptor.folders}")] if descriptor.folders else []),
        ]

    def _file_text(self, rank: int) -> str:
        part = self._files.descriptor.part(rank)
        held = math.prod(part.shape) * self.dtype.itemsize
        there = f" on worker {self._disks.workers[rank]}" if self._disks.workers else ""
        return f"{report.shape_text(part.shape)}, {format_bytes(held)}{there}"

    def __repr__(self) -> str:
        return f"<{self._title()}>\n{report.table(self._rows(), indent='  ')}"

    def _repr_html_(self) -> str:
        return rows_html(self._rows(), title=self._title())


def _facts(files: LocalFiles, rank: int) -> tuple[np.dtype, Stored, Presence]:
    file = files.file(rank)
    return file.dtype, file.stored, file.presence


def _presence_now(files: LocalFiles, rank: int) -> Presence:
    files.file(rank)
    return replace(files, known=()).file(rank).presence


def _documents(files: LocalFiles, rank: int) -> Document:
    return dict(files.open(rank).metadata.to_buffer_dict(default_buffer_prototype()))


def _read(files: LocalFiles, rank: int, axes: Axes) -> np.ndarray:
    file, meter = files.file(rank), new_meter()
    data = read_section(file, axes, meter=meter)
    warn_of_missing(meter, file.presence.name)
    return data


def _write(files: LocalFiles, rank: int, axes: Axes, values: np.ndarray) -> None:
    write_section(files.file(rank, written=True), axes, values, meter=new_meter())


def own_disks(descriptor: Descriptor, folders: str | None, scheduler: Client | str | None) -> tuple[Descriptor, Disks]:
    """Return a descriptor of files in ``folders``, each on the disk of a worker, and the access to these disks."""
    if folders is None:
        return descriptor, Disks()
    if not isinstance(folders, str) or "{rank}" not in folders:
        raise LayoutError(f"folders={folders!r} must contain {{rank}}: each rank has its own file")
    assert descriptor.layout is not None, "local array files have a layout"
    client = client_of(scheduler)
    names = list(names_of(client)) if client else []
    workers = spread(descriptor.layout.ranks, names)
    disks = Disks(client=client, workers=workers)
    disks.addresses()
    return replace(descriptor, folders=str(absolute(folders)), workers=workers), disks


def open_local(
    store: Any, *, mode: str, scheduler: Client | str | None = None, missing: str | None = None
) -> LocalArrays | None:
    """Open the local array files in a group; return None if it has none."""
    files = open_local_files(store)
    if files is None:
        return None
    workers = files.descriptor.workers
    disks = Disks(client=client_of(scheduler) if workers else None, workers=workers)
    return LocalArrays(replace(files, missing=settings.missing(missing)), mode=mode, disks=disks)
