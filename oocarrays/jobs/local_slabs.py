"""Passes over local array files: each rank reads its own file and writes its own, and borders travel in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any

import numpy as np

from oocarrays.arrays.creating import open_array
from oocarrays.arrays.local_array import LocalArrays, own_disks
from oocarrays.errors import InputError, LayoutError, PlacementError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.disks import Disks
from oocarrays.graphs.layouts.parts import is_block
from oocarrays.graphs.run.job import Cluster
from oocarrays.graphs.run.remains import NOTHING_LEFT
from oocarrays.graphs.slabs.local import LocalSlabRun, LocalTarget
from oocarrays.graphs.slabs.resume import asked_of, left_by, slab_content, trust_of
from oocarrays.graphs.slabs.tasks import Kernel
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.layouts.boundary import checked_boundary
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.local import largest_rank
from oocarrays.mapping.orientation import orientation_of, runs_along
from oocarrays.options.asked import check_distinct, cluster_of, dtypes_of, resources_of, workspace_of
from oocarrays.options.chunks import ChunksLike, regular_chunks
from oocarrays.plan.slabs.cuts import checked, plan_slabs
from oocarrays.plan.slabs.geometry import Edges
from oocarrays.storage.files import array_file, local_files
from oocarrays.storage.files.array_file import StoreLike
from oocarrays.storage.files.descriptor import Descriptor
from oocarrays.storage.files.formats import dimension_names, target_settings
from oocarrays.storage.files.local_files import LocalFiles
from oocarrays.storage.files.rank_files import RankFiles

if TYPE_CHECKING:
    from distributed import Client


def local_pass(
    kernel: Kernel,
    sources: Sequence[Any],
    target: StoreLike | Sequence[StoreLike],
    *,
    place: Callable[[Any], StoreLike],
    depth: int | Sequence[int],
    boundary: Any,
    prefetch: int,
    reuse: bool,
    workspace: float | str | None,
    axis: int | None,
    height: int | None,
    memory: int | float | str | None,
    dtype: Any,
    chunks: ChunksLike | None,
    folders: str | None,
    ranks: int | None,
    overwrite: bool,
    resume: bool | str,
    scheduler: Client | str | None,
    workers: Sequence[str] | None,
) -> tuple[LocalSlabRun, Callable[[str], Any], Cluster | None, Disks]:
    """Plan a pass over local array files, as `oocarrays.map_slabs` takes it.

    Parameters
    ----------
    place : callable
        Makes a store of a URL.

    Returns
    -------
    tuple
        What its tasks do, what makes the result of them, where they run, and the disks that files are on.

    Raises
    ------
    InputError
        One of its kinds: `LayoutError` where layouts are not one, or not blocks.
    """
    arrays = _checked(sources, ranks)
    single = not isinstance(target, list | tuple)
    stores = list(map(place, [target] if single else target))  # type: ignore[arg-type, list-item]
    check_distinct(stores)
    for array, store in product(arrays, stores):
        array_file.check_apart(array.zarr, store)
    goes_on = trust_of(resume) is not None and array_file.unfinished_run(stores[0]) is not None
    made = [
        _target(arrays[0], store, each, chunks, folder, scheduler, overwrite=overwrite, goes_on=goes_on)
        for store, each, folder in zip(
            stores, dtypes_of(dtype, arrays[0].dtype, len(stores)), _folders(folders, stores), strict=True
        )
    ]
    disks = _one_place([*(array.disks for array in arrays), *(disks for _, disks in made)])
    cluster = cluster_of(disks.client or scheduler, workers)
    resources, largest, layout = resources_of(cluster, memory), largest_rank(arrays[0].layout), arrays[0].layout
    edge = checked_boundary(boundary, *(array.dtype for array in arrays))
    depths = checked(depth, layout.shape, prefetch, axis, height)
    asked = _asked(kernel, arrays, [target for target, _ in made], depth=depths, boundary=edge)
    left = left_by(stores[0], asked, resume=resume) if goes_on else None
    plan = plan_slabs(
        [array.stored[largest] for array in arrays],
        [array_file.preview(local_files.largest_settings(t.files.descriptor, t.settings), t.store) for t, _ in made],
        shared=False,
        halos=tuple(array.depth for array in arrays),
        ranks=layout.ranks,
        processes=resources.workers or 1,
        budget=resources.budget,
        depth=depths,
        boundary=edge,
        prefetch=prefetch,
        reuse=reuse,
        workspace=workspace_of(workspace),
        past_cache_above=settings.past_cache_above(),
        **(left.cut if left else {"edges": edges_of(layout), "axis": axis, "height": height}),
    )
    run = LocalSlabRun(
        plan, kernel, [RankFiles(array.files) for array in arrays], [target for target, _ in made],
        slab_content(plan, asked), processes=resources.workers,
        remains=left.trusted() if left else NOTHING_LEFT,
    )  # fmt: skip
    return run, _opener(stores, single=single, scheduler=scheduler), cluster, disks


def _asked(
    kernel: Kernel, arrays: Sequence[LocalArrays], targets: Sequence[LocalTarget], **options: Any
) -> dict[str, Any]:
    """What was asked for, as it must be again: plain values that JSON keeps."""
    source = [[array.store, array.files.descriptor.as_json(), array.dtype.str] for array in arrays]
    folders = [target.files.descriptor.folders for target in targets]
    return asked_of(kernel, (), targets, source=source, folders=folders, **options)


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
    like: LocalArrays,
    store: StoreLike,
    dtype: np.dtype,
    chunks: ChunksLike | None,
    folders: str | None,
    scheduler: Client | str | None,
    *,
    overwrite: bool,
    goes_on: bool,
) -> tuple[LocalTarget, Disks]:
    """Files of the same layout, without a halo: that travels in memory."""
    largest = largest_rank(like.layout)
    shape, known = like.layout.local_shape(largest), like.like()
    cut = tuple(max(min(c, n), 1) for c, n in zip(like.stored[largest].grid.chunks, shape, strict=True))
    if chunks is not None:
        cut = regular_chunks(chunks, ChunkGrid.of(shape, cut), like.dtype, dimension_names(known))
    made = target_settings(known, cut) | {"dtype": dtype}
    made["attributes"] = like.attrs
    said = Descriptor(placement="local", shape=like.shape, layout=like.layout, depth=(0,) * like.ndim)
    said, disks = own_disks(
        replace(said, orientation=_orientation(like.layout, cut)), folders, like.disks.client or scheduler
    )
    if like.disks.workers and folders:  # each rank where it is
        said, disks = replace(said, workers=like.disks.workers), like.disks
    array_file.preview(local_files.largest_settings(said, made), store)
    local_files.check_group_place(store, overwrite=overwrite or goes_on)
    files = LocalFiles(store=store, descriptor=said, name=str(store))
    return LocalTarget(store=files.store, settings=made, overwrite=overwrite, files=files), disks


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


def _opener(stores: Sequence[StoreLike], *, single: bool, scheduler: Client | str | None) -> Callable[[str], Any]:
    """What a person gets: the files, or all of them."""
    opened: Callable[[StoreLike], Any] = lambda store: open_array(store, scheduler=scheduler)  # noqa: E731
    return lambda _: opened(stores[0]) if single else list(map(opened, stores))
