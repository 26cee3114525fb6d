"""Passes over slabs: a numpy function over arrays larger than memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Generic, Literal, Unpack, overload

import numpy as np
import zarr
from dask.task_spec import Task

from oocarrays.arrays.array import OutOfCoreArray, open_array
from oocarrays.arrays.copying import WORTH, Copier, Copying
from oocarrays.arrays.creating import open_array as open_any
from oocarrays.arrays.local_array import LocalArrays
from oocarrays.errors import InputError
from oocarrays.graphs.cluster.placement import Disks
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.run.job import Graph
from oocarrays.graphs.run.steps import Key
from oocarrays.graphs.slabs.gathering import GatheringRun
from oocarrays.graphs.slabs.graph import SlabBuilder
from oocarrays.graphs.slabs.tasks import Kernel, SlabFiles, SlabRun
from oocarrays.jobs.job import OFTEN, Job
from oocarrays.jobs.local_slabs import local_pass
from oocarrays.jobs.stored import scratch_copy
from oocarrays.kernels.binding import bound
from oocarrays.kernels.depths import own_depth
from oocarrays.mapping.given import flag
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.layouts.halo import BoundaryLike, as_asked
from oocarrays.options.asked import FactorLike, as_list, check_alike, check_distinct, scratch_folder, workspace_of
from oocarrays.options.chunks import ChunksLike
from oocarrays.options.keywords import SlabKeywords
from oocarrays.options.packing import warn_of_packed
from oocarrays.options.shapes import DropLike, NewLike, ResultShapes, ShapeLike, shapes_said
from oocarrays.options.slabs import SlabArrays, SlabRequest, planned_pass, reshaping, result_types, target_of
from oocarrays.plan.plan import where
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.options import DepthLike, SlabOptions, WindowLike
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.show.progress import ProgressBar
from oocarrays.show.report import COUNTED
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import check_target
from oocarrays.storage.files.formats import dimension_names
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.presence import Policy
from oocarrays.stored.array import missing_of, placer

if TYPE_CHECKING:
    from distributed import Client
    from typing_extensions import TypeVar

    Made = TypeVar("Made", default=OutOfCoreArray)
else:
    from typing import TypeVar

    Made = TypeVar("Made")

Global = OutOfCoreArray | zarr.Array | np.ndarray | StoreLike
Sources = Global | LocalArrays


class SlabJob(Job[SlabRun, Made], Generic[Made]):
    """Planned pass over slabs: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``.

    Parameters
    ----------
    copying : Copying, optional
        Copies of sources to make first, on threads.
    """

    _counted = tuple(name for name in COUNTED if name != "messages")

    def __init__(
        self,
        run: SlabRun,
        result: Callable[[str], Any],
        cluster: Cluster | None = None,
        disks: Disks | None = None,
        *,
        copying: Copying | None = None,
    ) -> None:
        self._copying = copying
        super().__init__(run, result, cluster, disks)

    @property
    def plan(self) -> SlabPlan:
        """Frozen plan: reads, computation and memory."""
        return self._run.plan

    def _build(self) -> Graph:
        return SlabBuilder(self._run, self._addresses).build()

    def _tasks(self) -> int:
        return self.plan.tasks

    def _bar(self) -> ProgressBar:
        return ProgressBar(replace(self.plan, copies=None), self._run)  # copies are counted by their own runs

    def _on_threads(self) -> str:
        """Run the pass, on planned copies of sources, if any."""
        if self._copying is None:
            return super()._on_threads()
        with self._copying.made() as self._run.copied:
            try:
                return super()._on_threads()
            finally:
                self._run.copied = ()
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


@overload
def map_slabs(
    kernel: Kernel, source: Global | Sequence[Global], target: StoreLike, **keywords: Unpack[SlabKeywords]
) -> SlabJob[OutOfCoreArray]: ...


@overload
def map_slabs(
    kernel: Kernel, source: LocalArrays | Sequence[LocalArrays], target: StoreLike, **keywords: Unpack[SlabKeywords]
) -> SlabJob[LocalArrays]: ...


@overload
def map_slabs(
    kernel: Kernel,
    source: Global | Sequence[Global],
    target: list[Any] | tuple[Any, ...],
    **keywords: Unpack[SlabKeywords],
) -> SlabJob[list[OutOfCoreArray]]: ...


@overload
def map_slabs(
    kernel: Kernel,
    source: LocalArrays | Sequence[LocalArrays],
    target: list[Any] | tuple[Any, ...],
    **keywords: Unpack[SlabKeywords],
) -> SlabJob[list[LocalArrays]]: ...


@overload
def map_slabs(
    kernel: Kernel,
    source: Sources | Sequence[Sources],
    target: StoreLike | list[Any] | tuple[Any, ...],
    **keywords: Unpack[SlabKeywords],
) -> SlabJob[Any]: ...


def map_slabs(
    kernel: Kernel,
    source: Sources | Sequence[Sources],
    target: StoreLike | Sequence[StoreLike],
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    depth: DepthLike | None = None,
    boundary: BoundaryLike = "none",
    memory: int | float | str | None = None,
    prefetch: int = 1,
    reuse: bool = True,
    workspace: float | str | None = None,
    dtype: Any = None,
    chunks: ChunksLike | None = None,
    factor: FactorLike | Sequence[FactorLike] | None = None,
    drop_axis: DropLike | Sequence[DropLike | None] | None = None,
    new_axis: NewLike | Sequence[NewLike | None] | None = None,
    shape: ShapeLike | Sequence[ShapeLike | None] | None = None,
    axis: int | str | None = None,
    height: int | None = None,
    window: WindowLike | None = None,
    ranks: int | None = None,
    folders: str | None = None,
    verify: bool = False,
    overwrite: bool = False,
    resume: bool | Literal["verify", "as-is"] = False,
    missing: Literal["fill", "warn", "error"] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> SlabJob[Any]:
    """Plan to pass one or several aligned arrays through a window, and to write the kernel's results.

    A slab is read while the one before it is computed and the one before that is written. Rows that two slabs share
    are read once. If slabs would decode the chunks of a source more than twice, the source is rechunked in scratch
    first, on threads, provided that this takes less time. Reads no data.

    Parameters
    ----------
    kernel : callable
        Takes a numpy block of each source with its halo, and returns one array of the same shape for each target, or of
        the shape that is asked for; the halo is trimmed. It may change its blocks. A kernel that needs more of an axis
        than ``depth``, such as a mean along it, needs ``axis`` or ``window``, so that blocks are whole in it. A kernel
        with a parameter ``block_info`` receives the position of its block: ``.section`` are the elements of the array
        to compute, ``.window`` these and the halo, ``.inside`` the position of the section in the block, and ``.shape``
        the shape of the array.
    source : OutOfCoreArray, zarr.Array, path, URL or store, or LocalArrays, or a list of them
        The arrays to read, of one shape. `LocalArrays` must have one layout in blocks: each rank reads its own file,
        and borders are exchanged in memory; halos in files are not read.
    target : path, URL or Zarr store, or a list of them
        Location of the result, with the first source's shape, format, codecs, attributes and dimension names, unless
        other arguments say otherwise. If the sources are local array files, the targets are too: of the same layout,
        without halos.
    args, kwargs : sequence, mapping
        Arguments of the kernel after its blocks, and by name. They are bound as in a `functools.partial` by name, which
        `resume` accepts as the kernel.
    depth : int, sequence of int or mapping
        Neighbours that the kernel reads on each side: in all axes, in each, or in some by number or name, as
        ``{"time": 1}``, and none in others. By default the depth that a kernel of `oocarrays.kernels` needs, by itself
        or in a `functools.partial`, and none for any other kernel.
    boundary : str or number, or a mapping or sequence of them
        Values beyond the edges: ``"reflect"``, ``"nearest"``, ``"periodic"`` or a constant, as in Dask's
        ``map_overlap``; ``"none"`` adds nothing: a block ends where the array ends. Per axis as a mapping,
        ``{0: "periodic", 1: "nearest"}``, with ``"none"`` for axes not in it, or as a sequence of one for each axis.
    memory : int or str
        Budget of each process in bytes; by default as in `rechunk`.
    prefetch : int
        Number of slabs to read ahead of the one that is computed; 0 disables all overlap within a rank.
    reuse : bool
        Whether to keep rows that the next slab needs, instead of reading them again.
    workspace : float or str
        Working memory of the kernel beside its blocks and results: bytes, as ``"64MiB"``, or a multiple of its blocks,
        by default two. The first slab, computed alone, shows whether that is enough.
    dtype : numpy.dtype, or one a target
        Of the targets; by default that of the first source, and with ``drop_axis``, ``new_axis`` or ``shape`` that of
        the kernel's result for a few zeros. A result that it cannot hold is an error; numbers are rounded.
    chunks : int, str, tuple or dict, or one a target where axes are others
        Of the targets, as in `rechunk`; by default those of the first source; short new axes are whole.
    factor : int, sequence or mapping, or one a target
        Elements of the sources along each axis that are merged into one of the target; targets may have different
        shapes: ``{0: 24}`` of hours to days, ``{0: [31, 28, …]}`` of days to months; axes not named stay. The kernel
        returns an array of the merged shape for each target. If the lengths differ, blocks are whole in the axis. A
        target without whole chunks in a slab stays in memory, and is written at the end.
    drop_axis : int, str or sequence of them, or one a target
        Axes that results lack, by number or name, as with ``block.max(axis=0)``: blocks are whole in them.
    new_axis : int or sequence of int, or one a target
        Positions of the result's own axes, as in Dask's ``map_blocks``: each block is whole in them. They have no
        names; their length is that of ``shape`` or ``chunks``, or else 1. With ``drop_axis``, one axis replaces
        another.
    shape : int, sequence or mapping, or one a target
        Of the targets: ``(65, ...)``, ``(65, None, None)`` or ``{0: 65}``, where None keeps a length; a number is the
        length of the only new axis. By itself it gives an axis another length: blocks are whole in it. If results have
        another shape than the sources, the kernel is tried on a few zeros before a target is made. A wrong shape is an
        error; a kernel that fails with zeros is tested by the first slab.
    axis, height : int
        The axis along which slabs follow one another, by number or name, and the elements of each slab along it; by
        default chosen by the plan. If either is given, slabs are whole in all other axes.
    window : sequence of int or mapping
        Elements of a slab along each axis, halo not included, or along some by number or name; None or -1 is the whole
        axis. By default slabs are whole in all axes but one if they fit the memory, and else blocks, cut on chunks of
        the targets.
    ranks : int
        Number of ranks; each has a run of slabs. By default the number of cores, or of workers, and on threads one for
        kernels of `oocarrays.kernels`. For local array files it is that of their layout.
    folders : str
        For local array files: the location of the target's files on workers' own disks, as `create_array` takes it;
        several targets need ``{target}`` in it, for its number.
    verify : bool
        Whether to compute the first, the middle and the last slab of each rank again with a larger halo. A difference
        ends the run: the kernel reads farther than its depth, or depends on where slabs are cut. Axes along which
        results have another length are not compared.
    overwrite : bool
        Whether an existing target may be replaced.
    resume : bool or str
        As in `rechunk`: slab by slab. The kernel must have the same name and code. Slabs stay as they were cut; if
        memory is too little for them, they are cut anew, and written chunks stay.
    missing, storage_options, scheduler, workers
        As in `rechunk`; local array files are read as they were opened.

    Raises
    ------
    InputError
        For invalid arguments; `BudgetError` if not one slab fits: the error states the minimum; `JournalError` if the
        run to be resumed had other arguments.
    KernelError
        If results have another shape than the sources, and the kernel returns a wrong one for zeros.

    Notes
    -----
    Thakur 1995, sections 5.4, 5.5.2 (prefetching) and 5.5.3 (reuse).

    Examples
    --------
    >>> import numpy as np, zarr
    >>> z = zarr.create_array({}, data=np.array([0.0, 8, 0, 0, 4, 0]), chunks=(2,))
    >>> def smooth(block):
    ...     return np.convolve(block, [0.25, 0.5, 0.25], "same")
    >>> job = map_slabs(smooth, z, zarr.storage.MemoryStore(), depth=1, memory="16MiB", scheduler="threads")
    >>> job.run()[...]
    array([2., 4., 2., 1., 2., 1.])
    >>> maps = zarr.create_array({}, data=np.arange(12.0).reshape(3, 4) % 5, chunks=(2, 2))
    >>> job = map_slabs(lambda block: block.argmax(0), maps, zarr.storage.MemoryStore(), drop_axis=0, memory="16MiB",
    ...                 scheduler="threads")
    >>> job.run()[...]
    array([1, 2, 0, 0])
    """
    if not callable(kernel):
        raise InputError(
            f"kernel={kernel!r} is not callable: pass a function of NumPy blocks that returns a block of the same shape"
        )
    if not isinstance(verify, bool):
        raise InputError(f"verify={verify!r} is neither True nor False")
    kernel = bound(kernel, len(as_list(source)), args, kwargs)
    along: Any = {"depth": own_depth(kernel) if depth is None else depth, "axis": axis, "heights": window}
    options = SlabOptions(
        boundary=as_asked(boundary), prefetch=prefetch, reuse=flag(reuse, "reuse"), workspace=workspace_of(workspace),
        height=height, ranks=ranks, **along,
    )  # fmt: skip
    results = ResultShapes(factor=factor, drop_axis=drop_axis, new_axis=new_axis, shape=shape)
    sources, place = as_list(source), placer(storage_options, source, target)
    stores, single = [place(each) for each in as_list(target)], not isinstance(target, list | tuple)
    request = SlabRequest(
        kernel=kernel, options=options, memory=memory, overwrite=overwrite, resume=resume, scheduler=scheduler,
        workers=workers, dtype=dtype, chunks=chunks, results=results, verify=verify, stores=stores, single=single,
        folders=folders,
    )  # fmt: skip
    if any(isinstance(each, LocalArrays) for each in sources):
        if results.words:
            raise InputError(f"{results.words}: of arrays in one file each; these are local array files")
        run, cluster, disks = local_pass(request, sources)
        local = SlabJob(run, opener(stores, partial(open_any, scheduler=scheduler), single=single), cluster, disks)
        return local.again(resume, overwrite=overwrite)
    if folders is not None:
        raise InputError(f"folders={folders!r} are of local array files; the sources are in one file each")
    policies = [missing_of(each, missing) for each in sources]
    arrays = [array_file.open_array(place(each)) for each in sources]
    for array in arrays:
        warn_of_packed(array, kernel)
    plain, cluster, copying = _global_pass(request, arrays, policies)
    job = SlabJob(plain, opener(stores, open_array, single=single), cluster, copying=copying)
    return job.again(resume, overwrite=overwrite)


def _global_pass(
    request: SlabRequest, arrays: Sequence[zarr.Array], policies: Sequence[Policy]
) -> tuple[SlabRun, Cluster | None, Copying | None]:
    """Return a pass over arrays in one file each, as for `map_slabs`, and the copies that it reads."""
    check_alike(arrays)
    check_distinct(request.stores)
    request = request.along(arrays[0].ndim, dimension_names(arrays[0]))
    for array, store in product(arrays, request.stores):
        request.check(check_target, array, store)
    cluster, resources = request.resources()
    request, chunks = reshaping(request, arrays)
    levels = request.options.coarser
    dtypes = result_types(request, arrays, resources.budget)
    each = zip(request.stores, levels or [None] * len(request.stores), chunks, dtypes, strict=True)
    targets = [target_of(request, arrays[0], *one) for one in each]
    files = [array_file.describe_source(array, each) for array, each in zip(arrays, policies, strict=True)]
    known = SlabArrays(
        shape=arrays[0].shape, dtypes=[array.dtype for array in arrays], sources=files, targets=targets,
        more={**request.call, "missing": policies[0]}, said=shapes_said(levels, arrays[0].shape),
    )  # fmt: skip
    way = _Way(files, [target.preview() for target in targets], request.stores[0], threads=cluster is None)
    found = planned_pass(request, known, resources, way.planned)
    both, kind = SlabFiles(sources=files, targets=targets), GatheringRun if levels else SlabRun
    return found.run(kind, request.kernel, both), cluster, way.copying


class _Way:
    """Slabs of arrays, or of copies of them in scratch if that takes less time."""

    def __init__(
        self, files: Sequence[ArrayFile], targets: Sequence[Stored], beside: StoreLike, *, threads: bool
    ) -> None:
        self._files, self._targets, self._beside, self._threads = files, targets, beside, threads
        self.copying: Copying | None = None
        """Copies of the last plan."""

    def planned(self, options: SlabOptions) -> SlabPlan:
        plan = plan_slabs([file.stored for file in self._files], self._targets, options)
        self.copying = self._cheaper(plan, options) if self._threads and plan.times_decoded > OFTEN else None
        return self.copying.planned if self.copying else plan

    def _cheaper(self, plan: SlabPlan, options: SlabOptions) -> Copying | None:
        def planned(stored: Sequence[Stored], budget: int) -> SlabPlan:
            return plan_slabs(stored, self._targets, replace(options, budget=budget))

        place = scratch_folder(None, self._beside)
        copier = Copier(files=self._files, planned=planned, copy=scratch_copy, place=place)
        return copier.cheapest(self._chunkings(plan), plan.budget, WORTH * plan.pass_seconds)

    def _chunkings(self, plan: SlabPlan) -> Iterator[dict[int, tuple[int, ...]]]:
        """Yield chunks as long as slabs, and halves and quarters of them along the axes in which these are cut."""
        often = [number for number, times in enumerate(plan.decodings) if times > OFTEN]
        for part in (1, 2, 4):
            chunks = [ceil_div(n, part) if axis in plan.cut_axes else n for axis, n in enumerate(plan.heights)]
            yield dict.fromkeys(often, tuple(max(n, 1) for n in chunks))


def opener(stores: Sequence[StoreLike], opened: Callable[[Any], Any], *, single: bool) -> Callable[[str], Any]:
    """Return the function that opens the result: the target, or a list of all."""
    return lambda _: opened(stores[0]) if single else list(map(opened, stores))
