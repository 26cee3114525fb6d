"""Passes over local array files: each rank reads and writes its own files, and borders are exchanged in memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, product
from typing import Any

import numpy as np

from oocarrays.arrays.local_array import LocalArrays, own_disks
from oocarrays.errors import InputError, LayoutError, PlacementError
from oocarrays.graphs.cluster.placement import Disks
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.layouts.parts import is_block
from oocarrays.graphs.slabs.course import Course
from oocarrays.graphs.slabs.local import LocalSlabRun
from oocarrays.graphs.slabs.tasks import SlabFiles
from oocarrays.mapping.grid import ChunkGrid, Stored, orientation_of, runs_along
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.local import largest_rank
from oocarrays.options.asked import check_distinct, dtypes_of, scratch_of
from oocarrays.options.chunks import cuts, regular_chunks
from oocarrays.options.slabs import (
    SlabArrays,
    SlabRequest,
    check_fields,
    planned_pass,
)
from oocarrays.plan.documents import Document, Settings
from oocarrays.plan.memory import Resources
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.iterate import plan_iterate
from oocarrays.plan.slabs.options import Edges
from oocarrays.storage.files import array_file, local_files
from oocarrays.storage.files.creating import check_apart
from oocarrays.storage.files.descriptor import Descriptor
from oocarrays.storage.files.formats import dimension_names, retyped, target_settings
from oocarrays.storage.files.local_files import LocalFiles, RankFiles
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import LocalTarget
from oocarrays.storage.journal.calls import named
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.urls import absolute


def local_pass(request: SlabRequest, sources: Sequence[Any]) -> tuple[LocalSlabRun, Cluster | None, Disks]:
    """Plan a pass over local array files, as `oocarrays.map_slabs` takes it."""
    arrays = _checked(sources, request.options.ranks)
    dtypes = dtypes_of(request.dtype, arrays[0].dtype, len(request.stores))
    here = _Ranks.of(request, arrays, [(arrays[0], dtype) for dtype in dtypes])
    known = here.known()
    found = planned_pass(here.request, known, here.resources, partial(plan_slabs, here.read, here.written))
    files = SlabFiles(sources=here.files, targets=here.targets)
    return found.run(LocalSlabRun, request.kernel, files), here.cluster, here.disks


def local_course(request: SlabRequest, sources: Sequence[Any]) -> tuple[Course, Cluster | None, Disks]:
    """Plan all passes of an iteration over local array files, as `oocarrays.iterate` takes it."""
    arrays, fields = _checked(sources, request.options.ranks), len(request.stores)
    check_fields(len(arrays), request.stores)
    here = _Ranks.of(request, arrays, [(array, array.dtype) for array in arrays[:fields]])
    known = here.known(by="iterate", said=request.sweeps, functions=request.watching)
    wheres = here.scratch(request.scratch or setting("scratch"))
    scratch = [array_file.preview(_plain(target), wheres[0]) for target in here.targets]
    planner = partial(plan_iterate, here.read, scratch, here.written, threads=here.resources.threads)
    found = planned_pass(here.request, known, here.resources, planner)
    return found.course(request, known, here.files, wheres, here.disks), here.cluster, here.disks


def _plain(target: LocalTarget) -> Settings:
    """Return the settings of the largest file of intermediate results between passes."""
    made = local_files.largest_settings(target.files.descriptor, target.settings)
    wanted = {name: made[name] for name in ("shape", "dtype", "fill_value")}
    chunks = tuple(max(min(c, n), 1) for c, n in zip(made["chunks"], made["shape"], strict=True))
    return wanted | {"chunks": chunks, "compressors": None, "filters": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranks:
    """Files and location of passes over local array files."""

    request: SlabRequest
    """Request with the options of their layout."""
    arrays: Sequence[LocalArrays]
    """The source arrays."""
    targets: Sequence[LocalTarget]
    """The target arrays."""
    disks: Disks
    """Disks of the files."""
    cluster: Cluster | None
    """Cluster of the pass; None for threads."""
    resources: Resources
    """Memory, workers and costs for the plan."""

    @classmethod
    def of(
        cls,
        request: SlabRequest,
        arrays: Sequence[LocalArrays],
        like: Sequence[tuple[LocalArrays, np.dtype]],
    ) -> _Ranks:
        """Check the request; each target resembles one of the arrays, with its own type."""
        stores = request.stores
        check_distinct(stores)
        for array, store in product(arrays, stores):
            check_apart(array.zarr, store)
        layout = arrays[0].layout
        each = zip(like, stores, _folders(request.folders, stores), strict=True)
        made = [_target(request, one, store, dtype, where) for (one, dtype), store, where in each]
        disks = _one_place([*(array.disks for array in arrays), *(disks for _, disks in made)])
        cluster, resources = request.resources(disks.client)
        options = replace(
            request.options.along(arrays[0].ndim, dimension_names(arrays[0].like())),
            edges=edges_of(layout), ranks=layout.ranks, shared=False,
            halos=tuple(array.depth for array in arrays),
        )  # fmt: skip
        return cls(
            request=replace(request, options=options), arrays=arrays, targets=[target for target, _ in made],
            disks=disks, cluster=cluster, resources=resources,
        )  # fmt: skip

    @property
    def files(self) -> list[RankFiles]:
        """Return the source files as a pass reads them."""
        return [RankFiles(array.files) for array in self.arrays]

    @property
    def read(self) -> list[Stored]:
        """Return the largest file of each source."""
        largest = largest_rank(self.arrays[0].layout)
        return [array.stored[largest] for array in self.arrays]

    @property
    def written(self) -> list[Stored]:
        """Return the largest file of each target."""
        return [target.preview() for target in self.targets]

    def known(self, *, said: Mapping[str, Any] | None = None, **more: Any) -> SlabArrays:
        """Return the arrays as arguments of `planned_pass`."""
        resumes = self.request.goes_on(self.targets[0].store)
        read = [file for source in self.files for file in source.shared] if resumes else ()
        return SlabArrays(
            shape=self.arrays[0].layout.shape, dtypes=[array.dtype for array in self.arrays], sources=read,
            targets=self.targets, said=_said(self.arrays, self.targets) | dict(said or {}),
            places=[named(array.files.store) for array in self.arrays],
            more={**self.request.call, "folders": self.request.folders}, **more,
        )  # fmt: skip

    def scratch(self, asked: Any) -> list[str | RemoteStore]:
        """Return the location of each rank's scratch: beside its file, or as requested, on its worker's own disk."""
        own, ranks = self.targets[0].files.descriptor.folders, self.arrays[0].ranks
        if not own:
            each = product(self.targets, self.arrays)
            return [scratch_of(asked, target.store, array.zarr) for target, array in each][:1] * ranks
        if asked is not None and (not isinstance(asked, str | os.PathLike) or "://" in str(asked)):
            raise InputError(f"scratch={asked!r}: where files are on workers' own disks, it is a folder there")
        return [self._scratch_of(rank, asked) for rank in range(ranks)]

    def _scratch_of(self, rank: int, asked: Any) -> str | RemoteStore:
        """Return the location of a rank's scratch on its worker's own disk."""
        try:
            where = None if asked is None else str(absolute(os.fspath(asked).format(rank=rank)))
        except (LookupError, ValueError):
            raise InputError(f"scratch={asked!r}: braces stand for the rank alone, as {{rank}}") from None
        each = product(self.targets, self.arrays)
        found = [scratch_of(where, target.files.place(rank), array.files.place(rank)) for target, array in each]
        return found[0]


def _said(arrays: Sequence[LocalArrays], targets: Sequence[LocalTarget]) -> Document:
    """Return further options that a resumed call must repeat, as plain values for JSON."""
    source = [[array.store, array.files.descriptor.as_json(), array.dtype.str] for array in arrays]
    return {"source": source, "folders": [target.files.descriptor.folders for target in targets]}


def _folders(folders: str | None, stores: Sequence[StoreLike]) -> list[str | None]:
    """Return one folder a target; ``{rank}`` stays for the rank."""
    if folders is None:
        return [None] * len(stores)
    if len(stores) > 1 and "{target}" not in folders:
        raise InputError(f"folders={folders!r} must contain {{target}}: there are {len(stores)} targets")
    return [folders.replace("{target}", str(number)) for number in range(len(stores))]


def _checked(sources: Sequence[Any], ranks: int | None) -> list[LocalArrays]:
    """Return the sources; raise unless all are local array files of one layout."""
    other = next((each for each in sources if not isinstance(each, LocalArrays)), None)
    if other is not None:
        raise InputError(f"sources are local array files and {type(other).__name__}: a pass reads the one or the other")
    layout = sources[0].layout
    odd = next((each.layout for each in sources if each.layout != layout), None)
    if odd is not None:
        raise LayoutError(f"sources have layouts {layout} and {odd}: their layouts must be equal")
    if ranks not in (None, layout.ranks):
        raise LayoutError(f"ranks={ranks}: the files have {layout.ranks}, and each rank passes through its own")
    return list(sources)


def edges_of(layout: Layout) -> Edges:
    """Return the first index of each rank's block along each axis, and the extent."""
    if not all(map(is_block, layout.axes)):
        raise LayoutError(f"{layout}: a pass takes local array files in blocks: block, gen_block or * along each axis")
    return tuple((*accumulate((axis.size(r) for r in range(axis.ranks)), initial=0),) for axis in layout.axes)


def _target(
    request: SlabRequest,
    like: LocalArrays,
    store: StoreLike,
    dtype: np.dtype,
    folders: str | None,
) -> tuple[LocalTarget, Disks]:
    """Return a target of the same layout, without a halo: halos are exchanged in memory."""
    largest = largest_rank(like.layout)
    shape, known = like.layout.local_shape(largest), like.like()
    cut = tuple(max(min(c, n), 1) for c, n in zip(like.stored[largest].grid.chunks, shape, strict=True))
    if request.chunks is not None:
        cut = regular_chunks(request.chunks, ChunkGrid.of(shape, cut), like.dtype, dimension_names(known))
    made, left_out = retyped(target_settings(known, cut) | {"attributes": like.attrs}, known.dtype, dtype)
    said = Descriptor(placement="local", shape=like.shape, layout=like.layout, depth=(0,) * like.ndim)
    said, disks = own_disks(
        replace(said, orientation=_orientation(like.layout, cut)), folders, like.disks.client or request.scheduler
    )
    if like.disks.workers and folders:  # each rank where it is
        said, disks = replace(said, workers=like.disks.workers), like.disks
    files = LocalFiles(store=store, descriptor=said, name=str(store))
    said_of = (*cuts(request.chunks, None, ChunkGrid.of(shape, cut), dimension_names(known)), *left_out)
    target = LocalTarget(store=files.store, settings=made, overwrite=request.overwrite, files=files, said=said_of)
    target.preview()
    request.check(local_files.check_group_place, store)
    return target, disks


def _orientation(layout: Layout, chunks: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the common chunk order of all ranks' files, if any."""
    order = orientation_of(layout.local_shape(largest_rank(layout)), chunks)
    shapes = map(layout.local_shape, range(layout.ranks))
    cut = ((shape, tuple(max(min(c, n), 1) for c, n in zip(chunks, shape, strict=True))) for shape in shapes)
    return order if order and all(runs_along(order, *each) for each in cut) else None


def _one_place(known: Sequence[Disks]) -> Disks:
    """Return the common disks of the files: each rank has one worker."""
    own = [disks for disks in known if disks.workers]
    other = next((disks for disks in own if disks.workers != own[0].workers), None)
    if other:
        raise PlacementError(
            f"files are on the own disks of workers {own[0].workers} and {other.workers}: they must be the same"
        )
    return own[0] if own else Disks()
