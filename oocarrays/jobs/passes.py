"""Passes over slabs: their job, and their sources and targets, arrays in one file each, or local array files, of which
each rank reads and writes its own.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, product
from typing import TYPE_CHECKING, Any, Generic

import numpy as np
import zarr
from dask.task_spec import Task

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.copying import Copying
from oocarrays.arrays.local_array import LocalArrays, open_local, own_disks
from oocarrays.errors import InputError, LayoutError, PlacementError
from oocarrays.graphs.cluster.placement import Cluster, Disks
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.settings import setting
from oocarrays.graphs.slabs.program import SlabPass
from oocarrays.jobs.job import Job, array_at
from oocarrays.kernels.results import SMALL, ResultTerms, trial_block, trial_results, wide_type
from oocarrays.mapping.coarsening import Coarsening
from oocarrays.mapping.given import element_type, names_of_axes, refuse
from oocarrays.mapping.grid import ChunkGrid, Stored, orientation_of, runs_along
from oocarrays.mapping.layouts.distribution import is_block
from oocarrays.mapping.layouts.halo import checked_boundary, of_each
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.layouts.local import largest_rank
from oocarrays.options.asked import check_alike, check_distinct
from oocarrays.options.chunks import cuts, regular_chunks, uneven_lengths
from oocarrays.options.given import Target, codecs_of, own_of
from oocarrays.options.packing import warn_of_packed
from oocarrays.options.shapes import coarsened, names_of, shapes_said
from oocarrays.options.slabs import SlabArrays, SlabRequest
from oocarrays.plan.documents import Settings
from oocarrays.plan.files.multiscales import TYPES
from oocarrays.plan.plan import where
from oocarrays.plan.slabs.options import Edges
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.show.progress import ProgressBar
from oocarrays.show.report import COUNTED
from oocarrays.storage.files import array_file, local_files
from oocarrays.storage.files.creating import TargetSpec, check_target
from oocarrays.storage.files.descriptor import Descriptor
from oocarrays.storage.files.formats import as_stated, dimension_names, retyped, target_settings
from oocarrays.storage.files.local_files import LocalFiles, RankFiles
from oocarrays.storage.files.making_room import check_apart
from oocarrays.storage.files.places import location, name_of, named
from oocarrays.storage.files.target import LocalTarget, uneven_target
from oocarrays.storage.journal.leftovers import scratch_of
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.storage.stores.urls import absolute
from oocarrays.stored.array import missing_of

if TYPE_CHECKING:  # the runtime of today's oldest Python knows no defaults
    from typing_extensions import TypeVar

    Made = TypeVar("Made", default=OutOfCoreArray)
else:
    from typing import TypeVar

    Made = TypeVar("Made")


def arrays_of(
    request: SlabRequest, sources: Sequence[Any], place: Callable[[Any], Any], missing: str | None
) -> SlabArrays:
    if any(isinstance(each, LocalArrays) for each in sources):
        if request.results._words:
            raise InputError(f"{request.results._words} needs arrays in one file each; these are local array files")
        return _in_ranks(request, sources)
    if (folders := next((each.folders for each in request.targets if each.folders is not None), None)) is not None:
        raise InputError(f"folders={folders!r} needs local array files; the sources are in one file each")
    arrays = [array_file.open_array(place(each)) for each in sources]
    for array in arrays:
        warn_of_packed(array, request.kernel)
        _warn_of_channels(array, request.options.depth)
    return _in_files(request, arrays, [missing_of(each, missing) for each in sources])


def _warn_of_channels(array: zarr.Array, depth: Any) -> None:
    """Warn if one depth for all axes makes the kernel see several channels of an image at a time."""
    names = dimension_names(array) or ()
    mixed = [name for name in names if TYPES.get(str(name).lower()) == "channel"]
    if mixed and isinstance(depth, int) and depth:
        seen = {name: 0 if name in mixed else depth for name in names}
        warnings.warn(
            f"depth={depth} is that of all axes of {location(array)}, so the kernel mixes its channels (axis "
            f"{mixed[0]!r}): pass depth={seen}; if the kernel has a size, make it 1 along {mixed[0]!r}",
            UserWarning,
            stacklevel=5,
        )


def opener(arrays: SlabArrays) -> Callable[[str], Any]:
    """Return the function that opens the result: the target, or a list of all."""
    is_local, stores, single = isinstance(arrays.targets[0], LocalTarget), arrays.request.stores, arrays.request.single
    opened: Any = partial(open_local, mode="r", scheduler=arrays.request.means.scheduler) if is_local else array_at
    return lambda _: opened(stores[0]) if single else list(map(opened, stores))


def preview_scratch(arrays: SlabArrays, asked: Any) -> tuple[list[str | RemoteStore], list[Stored]]:
    """Return the location of intermediate results between passes, or of each rank's, and their arrays."""
    where = _scratch(arrays, setting("scratch") if asked is None else asked)
    plain = {"compressors": None, "filters": None}
    kept = ("shape", "chunks", "dtype", "fill_value")
    made = ({name: target.made[name] for name in kept} | plain for target in arrays.targets)
    return where, [array_file.preview(settings, where[0]) for settings in made]


def _scratch(arrays: SlabArrays, asked: Any) -> list[str | RemoteStore]:
    """Return the location of scratch: beside the files, or as requested; on workers' own disks, one for each rank."""
    first = arrays.targets[0]
    ranks = first.files.ranks if isinstance(first, LocalTarget) else 1
    each = list(product(arrays.targets, arrays.files))
    if not first.on_own_disks:
        places = ((target.store, file.files.store if isinstance(file, RankFiles) else file) for target, file in each)
        return [scratch_of(asked, *pair) for pair in places][:1] * ranks
    if asked is not None and (not isinstance(asked, str | os.PathLike) or "://" in str(asked)):
        raise InputError(f"scratch={asked!r} must be a folder on workers' own disks, where the files are")
    found = []
    for rank in range(ranks):
        try:
            where = None if asked is None else str(absolute(os.fspath(asked).format(rank=rank)))
        except (LookupError, ValueError):
            raise InputError(f"scratch={asked!r} may have only {{rank}} in braces") from None
        found += [scratch_of(where, target.place(rank), file.files.place(rank), here=False) for target, file in each][
            :1
        ]
    return found


# ---------------------------------------------------------------------- arrays in one file each


def _in_files(request: SlabRequest, arrays: Sequence[zarr.Array], policies: Sequence[Any]) -> SlabArrays:
    check_alike(arrays)
    check_distinct(request.stores)
    request.check_sources(len(arrays))
    request = request.along(arrays[0].ndim, dimension_names(arrays[0]))
    for array, store in product(arrays, request.stores):
        request.check(check_target, array, store)
    cluster, resources = request.resources()
    request = _reshaping(request, arrays)
    levels, stores = request.options.coarser, request.stores
    likes, dtypes = _likes(request, arrays, resources.budget)
    each = zip(likes, request.targets, levels or [None] * len(stores), dtypes, strict=True)
    files = [array_file.describe_source(array, policy) for array, policy in zip(arrays, policies, strict=True)]
    return SlabArrays(
        request=request, cluster=cluster, resources=resources, dtypes=[np.dtype(array.dtype) for array in arrays],
        files=files, read=[file.stored for file in files], sources=files,
        targets=[_target(request, *one) for one in each],
        said=request.said | shapes_said(levels, arrays[0].shape), more={**request.call, "missing": policies[0]},
    )  # fmt: skip


def _reshaping(request: SlabRequest, arrays: Sequence[zarr.Array]) -> SlabRequest:
    names, chunks = dimension_names(arrays[0]), [target.chunks for target in request.targets]
    levels = request.results._levels(arrays[0].shape, names, chunks, single=request.single)
    options = replace(request.options, coarser=levels).checked(arrays[0].shape)
    if request.results.verify:
        options.verified()  # refused before the kernel is tried
    return replace(request, options=options)


def _likes(request: SlabRequest, arrays: Sequence[Any], budget: int) -> tuple[list[Any], list[np.dtype]]:
    likes = list(arrays[: len(request.targets)]) if request.iterates else [arrays[0]] * len(request.targets)
    return likes, [like.dtype for like in likes] if request.iterates else _result_types(request, arrays, budget)


def _result_types(request: SlabRequest, arrays: Sequence[zarr.Array], budget: int) -> list[np.dtype]:
    """Return the type of each target's elements; for another shape, the kernel is tried on a few zeros first."""
    levels, options, sources = request.options.coarser, request.options, [array.dtype for array in arrays]
    stores, asked = request.stores, [target.dtype for target in request.targets]
    known = [element_type(sources[0] if each is None else each) for each in asked]
    if not levels:
        return known
    shape, depth = arrays[0].shape, options.depth
    assert isinstance(depth, tuple), "options have been checked"
    edges = of_each(checked_boundary(options.boundary, len(shape), *sources), len(shape))
    itemsize = sum(dtype.itemsize for dtype in sources)
    trial = trial_block(shape, levels, depth, [edge != "none" for edge in edges], itemsize)
    free = [own is None and request.results._others for own in asked]
    if trial.window.size * itemsize > max(budget, SMALL):
        return [wide_type(dtype) if any_type else dtype for any_type, dtype in zip(free, known, strict=True)]
    wanted = [
        ResultTerms(name_of(store), level.shape(trial.window.shape), None if any_type else dtype)
        for store, level, any_type, dtype in zip(stores, levels, free, known, strict=True)
    ]
    made = trial_results(request.kernel, sources, trial, wanted)
    if made is None:
        return known
    return [each.dtype or element_type(array.dtype) for each, array in zip(wanted, made, strict=True)]


def _target(
    request: SlabRequest, like: zarr.Array, target: Target, level: Coarsening | None, dtype: np.dtype
) -> TargetSpec:
    """Return one target: chunks are of the sources' axes, unless its axes differ."""
    grid, names, chunks = ChunkGrid.of(like.shape, like.chunks), dimension_names(like), target.chunks
    made, said = retyped(_settings(like, tuple(like.chunks), target), like.dtype, dtype)
    if level is not None and request.results._others:
        made, names = coarsened(made, level), names_of(level, names)
        grid = ChunkGrid.of(made["shape"], made["chunks"])
    names = names_of_axes(target.dimension_names, len(grid.shape)) or names
    lengths = uneven_lengths(chunks, grid, like.dtype, names)
    if lengths and level is not None:
        raise InputError(f"{request.results._words} changes the targets' shapes, which needs chunks of equal length")
    if lengths:
        made["chunks"] = tuple(map(max, lengths))
    elif chunks is not None:
        made["chunks"] = regular_chunks(chunks, grid, like.dtype, names)
    if level is not None and not request.results._others:
        made = coarsened(made, level)
    made = as_stated(made, **own_of(target))
    place, settings = uneven_target(target.store, made, lengths, durable=setting("durable"))
    said = (*cuts(chunks, None, grid, names), *said)
    return TargetSpec(store=place, settings=settings, overwrite=request.overwrite, said=said)


def _settings(like: zarr.Array, chunks: tuple[int, ...], target: Target) -> Settings:
    """Return the arguments of ``zarr.create_array`` for a target, by default those of the array that it is like."""
    made = target_settings(like, chunks, **codecs_of(target))
    if target.compressors is not None or target.filters is not None:
        array_file.preview(made | {"dtype": like.dtype}, target.store)  # refused before they are bound to a type
    return made


# ---------------------------------------------------------------------- local array files


def _in_ranks(request: SlabRequest, sources: Sequence[Any]) -> SlabArrays:
    arrays, stores = _checked(sources, request.options.ranks), request.stores
    for target in request.targets:
        refuse("of local array files is carried over: leave it out", **own_of(target))
    request.check_sources(len(arrays))
    check_distinct(stores)
    for array, store in product(arrays, stores):
        check_apart(array.zarr, store)
    likes, dtypes = _likes(request, arrays, 0)
    each = zip(likes, _in_folders(request.targets), dtypes, strict=True)
    made = [_local_target(request, *one) for one in each]
    targets, layout = [target for target, _ in made], arrays[0].layout
    disks = _one_place([*(array.disks for array in arrays), *(disks for _, disks in made)])
    cluster, resources = request.resources(disks.client)
    request = request.along(
        arrays[0].ndim, dimension_names(arrays[0].like()), edges=edges_of(layout), ranks=layout.ranks, shared=False,
        halos=tuple(array.depth for array in arrays),
    )  # fmt: skip
    files = [RankFiles(array.files) for array in arrays]
    said = {
        "source": [[array.store, array.files.descriptor.as_json(), array.dtype.str] for array in arrays],
        "folders": [target.files.descriptor.folders for target in targets],
    }
    return SlabArrays(
        request=request, cluster=cluster, resources=resources, disks=disks,
        dtypes=[array.dtype for array in arrays], files=files,
        read=[array.stored[largest_rank(layout)] for array in arrays],
        sources=[file for source in files for file in source.shared] if request.goes_on(targets[0].store) else (),
        targets=targets, said=said | request.said,
        places=[named(array.files.store) for array in arrays],
        more={**request.call, "folders": request.targets[0].folders},
    )  # fmt: skip


def _in_folders(targets: Sequence[Target]) -> list[Target]:
    """Return targets with ``{target}`` in their folders as their number; ``{rank}`` stays for the rank."""
    given = [target.folders for target in targets]
    twice = next((each for n, each in enumerate(given) if each and each in given[:n] and "{target}" not in each), None)
    if twice is not None:
        raise InputError(f"folders={twice!r} must contain {{target}}: there are {len(targets)} targets")
    numbered = (each and each.replace("{target}", str(number)) for number, each in enumerate(given))
    return [replace(target, folders=folders) for target, folders in zip(targets, numbered, strict=True)]


def _checked(sources: Sequence[Any], ranks: int | None) -> list[LocalArrays]:
    """Return the sources; raise unless all are local array files of one layout."""
    other = next((each for each in sources if not isinstance(each, LocalArrays)), None)
    if other is not None:
        raise InputError(f"sources are local array files and {type(other).__name__}: pass only one kind")
    layout = sources[0].layout
    odd = next((each.layout for each in sources if each.layout != layout), None)
    if odd is not None:
        raise LayoutError(f"sources have layouts {layout} and {odd}: their layouts must be equal")
    if ranks not in (None, layout.ranks):
        raise LayoutError(f"ranks={ranks} differs from the {layout.ranks} ranks of the files: leave ranks out")
    return list(sources)


def edges_of(layout: Layout) -> Edges:
    """Return the first index of each rank's block along each axis, and the extent."""
    if not all(map(is_block, layout.axes)):
        raise LayoutError(f"{layout} is not in blocks: local array files need block, gen_block or * along each axis")
    return tuple((*accumulate((axis.size(r) for r in range(axis.ranks)), initial=0),) for axis in layout.axes)


def _local_target(
    request: SlabRequest, like: LocalArrays, target: Target, dtype: np.dtype
) -> tuple[LocalTarget, Disks]:
    """Return a target of the same layout, without a halo: halos are exchanged in memory."""
    largest = largest_rank(like.layout)
    shape, known = like.layout.local_shape(largest), like.like()
    cut = tuple(max(min(c, n), 1) for c, n in zip(like.stored[largest].grid.chunks, shape, strict=True))
    if target.chunks is not None:
        cut = regular_chunks(target.chunks, ChunkGrid.of(shape, cut), like.dtype, dimension_names(known))
    made, left_out = retyped(_settings(known, cut, target) | {"attributes": like.attrs}, known.dtype, dtype)
    said = Descriptor(placement="local", shape=like.shape, layout=like.layout, depth=(0,) * like.ndim)
    said, disks = own_disks(
        replace(said, orientation=_orientation(like.layout, cut)),
        target.folders,
        like.disks.client or request.means.scheduler,
    )
    if like.disks.workers and target.folders:  # each rank where it is
        said, disks = replace(said, workers=like.disks.workers), like.disks
    files = LocalFiles(store=target.store, descriptor=said, name=str(target.store))
    said_of = (*cuts(target.chunks, None, ChunkGrid.of(shape, cut), dimension_names(known)), *left_out)
    spec = LocalTarget(store=files.store, settings=made, overwrite=request.overwrite, files=files, said=said_of)
    spec.preview()
    request.check(local_files.check_group_place, target.store)
    return spec, disks


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


# ---------------------------------------------------------------------- jobs


class SlabJob(Job[Run[SlabPass], Made, SlabPlan], Generic[Made]):
    """Planned pass over slabs: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``.

    Parameters
    ----------
    copying : Copying, optional
        Copies of sources to make first, on threads.
    """

    _counted = tuple(name for name in COUNTED if name != "messages")

    def __init__(
        self,
        run: Run[SlabPass],
        result: Callable[[str], Any],
        cluster: Cluster | None = None,
        disks: Disks | None = None,
        *,
        copying: Copying | None = None,
    ) -> None:
        self._copying = copying
        super().__init__(run, result, cluster, disks)

    def _tasks(self) -> int:
        return self.plan.tasks

    def _bar(self) -> ProgressBar:
        return ProgressBar(replace(self.plan, copies=None), self._run)  # copies are counted by their own runs

    def _on_threads(self) -> Any:
        if self._copying is None:
            return super()._on_threads()
        with self._copying.made() as self._run.live.copies:
            try:
                return super()._on_threads()
            finally:
                self._run.live.copies = ()
                for job in self._copying.jobs.values():
                    self._run.meter.put(job.meter.take())

    def __dask_graph__(self) -> dict[Key, Any]:
        graph = super().__dask_graph__()
        if self._copying is None or not self._is_fresh():
            return graph
        return {self._key: Task(self._key, self._on_threads)}

    def _threads(self) -> int:
        return 3 * self.plan.ranks  # one reads, one computes, one writes

    def _beside(self) -> Mapping[str, str]:
        done = f", {len(self._run.done)} of them done before" if self._run.done else ""
        return {"slabs": done, "peak memory": where(self._run.processes)}
