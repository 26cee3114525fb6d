"""Passes over local array files: each rank reads its own file and writes its own, and borders travel in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, product
from typing import Any

import numpy as np

from oocarrays.arrays.local_array import LocalArrays, own_disks
from oocarrays.errors import InputError, LayoutError, PlacementError
from oocarrays.graphs.cluster.disks import Disks
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.layouts.parts import is_block
from oocarrays.graphs.slabs.local import LocalSlabRun, LocalStopped, LocalTarget
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.local import largest_rank
from oocarrays.mapping.orientation import orientation_of, runs_along
from oocarrays.options.asked import check_distinct, dtypes_of
from oocarrays.options.chunks import cuts, regular_chunks
from oocarrays.options.slabs import SlabArrays, SlabRequest, planned_pass
from oocarrays.plan.documents import Document
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.options import Edges
from oocarrays.storage.files import local_files
from oocarrays.storage.files.creating import check_apart
from oocarrays.storage.files.descriptor import Descriptor
from oocarrays.storage.files.formats import dimension_names, target_settings
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.rank_files import RankFiles
from oocarrays.storage.journal.calls import named


def local_pass(
    request: SlabRequest,
    sources: Sequence[Any],
    stores: Sequence[StoreLike],
    folders: str | None,
    more: Mapping[str, Any],
) -> tuple[LocalSlabRun, Cluster | None, Disks]:
    """Plan a pass over local array files, as `oocarrays.map_slabs` takes it.

    Returns
    -------
    tuple
        What its tasks do, where they run, and the disks that files are on.

    Raises
    ------
    InputError
        One of its kinds: `LayoutError` where layouts are not one, or not blocks.
    """
    arrays = _checked(sources, request.options.ranks)
    check_distinct(stores)
    for array, store in product(arrays, stores):
        check_apart(array.zarr, store)
    may_replace, layout = request.may_replace(stores[0]), arrays[0].layout
    dtypes = dtypes_of(request.dtype, arrays[0].dtype, len(stores))
    each = zip(stores, dtypes, _folders(folders, stores), strict=True)
    made = [_target(request, arrays[0], *of_target, may_replace=may_replace) for of_target in each]
    targets, largest = [target for target, _ in made], largest_rank(layout)
    disks = _one_place([*(array.disks for array in arrays), *(disks for _, disks in made)])
    cluster, resources = request.resources(disks.client)
    options = replace(
        request.options, edges=edges_of(layout), ranks=layout.ranks, shared=False,
        halos=tuple(array.depth for array in arrays),
    )  # fmt: skip
    known = SlabArrays(
        shape=layout.shape, dtypes=[array.dtype for array in arrays], sources=(), targets=targets,
        said=_said(arrays, targets), stopped=LocalStopped,
        places=[named(array.files.store) for array in arrays], more={**more, "folders": folders},
    )  # fmt: skip
    stored = [array.stored[largest] for array in arrays], [target.preview() for target in targets]
    found = planned_pass(replace(request, options=options), known, resources, partial(plan_slabs, *stored))
    files, remains = [RankFiles(array.files) for array in arrays], found.remains(targets)
    run = LocalSlabRun(
        found.plan, request.kernel, files, targets, found.content, processes=found.processes, remains=remains
    )  # fmt: skip
    return run, cluster, disks


def _said(arrays: Sequence[LocalArrays], targets: Sequence[LocalTarget]) -> Document:
    """Return the further options that must be asked for again: plain values that JSON keeps."""
    source = [[array.store, array.files.descriptor.as_json(), array.dtype.str] for array in arrays]
    return {"source": source, "folders": [target.files.descriptor.folders for target in targets]}


def _folders(folders: str | None, stores: Sequence[StoreLike]) -> list[str | None]:
    """One a target: ``{rank}`` stays for the rank."""
    if folders is None:
        return [None] * len(stores)
    if len(stores) > 1 and "{target}" not in folders:
        raise InputError(f"folders={folders!r} must have {{target}} in it: there are {len(stores)} targets")
    return [folders.replace("{target}", str(number)) for number in range(len(stores))]


def _checked(sources: Sequence[Any], ranks: int | None) -> list[LocalArrays]:
    """Sources of one layout, in local array files all."""
    other = next((each for each in sources if not isinstance(each, LocalArrays)), None)
    if other is not None:
        raise InputError(f"sources are local array files and {type(other).__name__}: a pass reads the one or the other")
    layout = sources[0].layout
    odd = next((each.layout for each in sources if each.layout != layout), None)
    if odd is not None:
        raise LayoutError(f"sources have layouts {layout} and {odd}: a pass takes files of one layout")
    if ranks not in (None, layout.ranks):
        raise LayoutError(f"ranks={ranks}: the files have {layout.ranks}, and each rank passes through its own")
    return list(sources)


def edges_of(layout: Layout) -> Edges:
    """Where the blocks of ranks begin along each axis, and the extent.

    >>> edges_of(Layout.of((7, 4), "(gen_block(1,4,2), *)", ranks=3))
    ((0, 1, 5, 7), (0, 4))

    Raises
    ------
    LayoutError
        Where a rank holds more than one block along an axis.
    """
    if not all(map(is_block, layout.axes)):
        raise LayoutError(f"{layout}: a pass takes local array files in blocks: block, gen_block or * along each axis")
    return tuple((*accumulate((axis.size(r) for r in range(axis.ranks)), initial=0),) for axis in layout.axes)


def _target(
    request: SlabRequest,
    like: LocalArrays,
    store: StoreLike,
    dtype: np.dtype,
    folders: str | None,
    *,
    may_replace: bool,
) -> tuple[LocalTarget, Disks]:
    """Files of the same layout, without a halo: that travels in memory."""
    largest = largest_rank(like.layout)
    shape, known = like.layout.local_shape(largest), like.like()
    cut = tuple(max(min(c, n), 1) for c, n in zip(like.stored[largest].grid.chunks, shape, strict=True))
    if request.chunks is not None:
        cut = regular_chunks(request.chunks, ChunkGrid.of(shape, cut), like.dtype, dimension_names(known))
    made = target_settings(known, cut) | {"dtype": dtype}
    made["attributes"] = like.attrs
    said = Descriptor(placement="local", shape=like.shape, layout=like.layout, depth=(0,) * like.ndim)
    said, disks = own_disks(
        replace(said, orientation=_orientation(like.layout, cut)), folders, like.disks.client or request.scheduler
    )
    if like.disks.workers and folders:  # each rank where it is
        said, disks = replace(said, workers=like.disks.workers), like.disks
    files = LocalFiles(store=store, descriptor=said, name=str(store))
    said_of = cuts(request.chunks, None, ChunkGrid.of(shape, cut), dimension_names(known))
    target = LocalTarget(store=files.store, settings=made, overwrite=request.overwrite, files=files, said=said_of)
    target.preview()
    local_files.check_group_place(store, overwrite=may_replace)
    return target, disks


def _orientation(layout: Layout, chunks: tuple[int, ...]) -> tuple[int, ...] | None:
    """The order in which the chunks of every rank's file run, if there is one."""
    order = orientation_of(layout.local_shape(largest_rank(layout)), chunks)
    shapes = map(layout.local_shape, range(layout.ranks))
    cut = ((shape, tuple(max(min(c, n), 1) for c, n in zip(chunks, shape, strict=True))) for shape in shapes)
    return order if order and all(runs_along(order, *each) for each in cut) else None


def _one_place(known: Sequence[Disks]) -> Disks:
    """The disks that files are on: each rank has one worker."""
    own = [disks for disks in known if disks.workers]
    other = next((disks for disks in own if disks.workers != own[0].workers), None)
    if other:
        raise PlacementError(
            f"files are on the own disks of workers {own[0].workers} and {other.workers}: they must be the same"
        )
    return own[0] if own else Disks()
