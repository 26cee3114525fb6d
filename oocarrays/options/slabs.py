"""A pass over slabs as a person asks for it: the same for global array files, local ones and iterations.

request, arrays ─► options, checked ─► what a run has left, where it is to go on ─► plan ─► what the journal keeps
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any, Generic, Self, TypeVar

import numpy as np
import zarr

from oocarrays.errors import InputError
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.run.remains import NOTHING_LEFT, Remains
from oocarrays.graphs.slabs.course import Course
from oocarrays.graphs.slabs.gathering import Residual, change
from oocarrays.graphs.slabs.resume import Cut, StoppedPass, asked_of, kernel_name, left_by, slab_content, trust_of
from oocarrays.graphs.slabs.sweeps import each_of, unlike
from oocarrays.graphs.slabs.tasks import Kernel, SlabFiles, SlabRun
from oocarrays.kernels.depths import own_ranks
from oocarrays.kernels.results import SMALL, ResultTerms, TrialBlock, wide_type
from oocarrays.mapping.coarsening import Coarsening
from oocarrays.mapping.given import element_type
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.mapping.layouts.halo import checked_boundary, of_each
from oocarrays.options.asked import check_distinct, cluster_of, dtypes_of, ranks_of, resources_of, scratch_of
from oocarrays.options.chunks import ChunksLike, cuts, regular_chunks, uneven_lengths
from oocarrays.options.shapes import ResultShapes, coarsened, names_of
from oocarrays.plan.documents import Document, Settings
from oocarrays.plan.memory import Resources
from oocarrays.plan.slabs.iterate import IteratePlan, SweepOptions, plan_iterate
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.requests.request import LAST, checked, left_content, requested
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import check_target
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.formats import dimension_names, target_settings
from oocarrays.storage.files.places import StoreLike, name_of
from oocarrays.storage.files.retyped import retyped
from oocarrays.storage.files.target import TargetSpec, uneven_target
from oocarrays.storage.journal.calls import call_content, named
from oocarrays.storage.journal.leftovers import scratch_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Watch over the passes: it looks at each, and says when to end."""

    residual: Residual | None
    until: float | None

    def said(self, options: SweepOptions) -> Document:
        """Return what must be asked for again to go on."""
        residual = None if self.residual is None else kernel_name(self.residual)
        return {"sweeps": options.sweeps, "until": self.until, "residual": residual}

    @property
    def functions(self) -> list[Any]:
        return [None if self.residual in (None, change) else self.residual]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlaces:
    """Places where an iteration writes."""

    targets: Sequence[StoreLike]
    """What the last pass writes: one for each array that is swept."""
    scratch: Any
    """Where passes hand on what they have swept, if that is said."""
    single: bool
    """Whether one target was given, and no list."""
    folders: str | None = None
    """Of local array files on workers' own disks: where those of the targets are."""

    @property
    def said(self) -> Document:
        """Return what a journal keeps of it, where that is not seen from the number of targets."""
        return {} if self.single or len(self.targets) > 1 else {"single": False}


def course_of(
    request: SlabRequest, files: Sequence[ArrayFile], places: SweepPlaces, watch: Watch
) -> tuple[Course, Cluster | None]:
    """Return all passes of `iterate` and the cluster; files beyond one per target are read but not swept."""
    request = request.along(files[0].zarr.ndim, dimension_names(files[0].zarr))
    stores, options = places.targets, request.options
    assert isinstance(options, SweepOptions), "sweeps are asked for"
    _check_places(request, files, stores)
    swept, beside = files[: len(stores)], files[len(stores) :]
    cluster, resources = request.resources()
    copies = ((target_settings(each.zarr, tuple(each.zarr.chunks)), each.zarr.dtype) for each in swept)
    made = (retyped(settings, dtype, dtype) for settings, dtype in copies)
    targets = [
        TargetSpec(store=store, settings=settings, overwrite=request.overwrite, said=said)
        for store, (settings, said) in zip(stores, made, strict=True)
    ]
    dtypes = [np.dtype(each.zarr.dtype) for each in files]
    known = SlabArrays(
        shape=files[0].zarr.shape, dtypes=dtypes, sources=files, targets=targets, by="iterate",
        said=watch.said(options), functions=watch.functions,
        more={"fuse": options.fuse, "missing": files[0].presence.missing} | places.said,
    )  # fmt: skip
    asked = setting("scratch") if places.scratch is None else places.scratch
    where, *_ = [scratch_of(asked, store, file.zarr) for store, file in product(stores, files)]
    stored = (
        [file.stored for file in files],
        [array_file.preview(_plain(file.zarr), where) for file in swept],
        [target.preview() for target in targets],
    )
    planner = partial(plan_iterate, *stored, threads=resources.threads)
    found = planned_pass(request, known, resources, planner)
    check_kernel(request.kernel, dtypes, len(stores), found.plan)
    id = found.left.id if found.left else new_id()
    course = Course(
        plan=found.plan,
        kernel=request.kernel,
        residual=watch.residual,
        until=watch.until,
        sources=tuple(swept),
        beside=tuple(beside),
        targets=tuple(targets),
        scratch=scratch_below(where, id),
        content=found.content,
        id=id,
        resumes=found.left is not None,
        processes=found.processes,
    )
    return course.gone_on_with(found.left) if found.left else course, cluster


def new_id() -> str:
    """Make the id of a run."""
    return uuid.uuid4().hex[:12]


def _plain(array: zarr.Array) -> Settings:
    """How what passes hand on is stored."""
    wanted = {"shape": array.shape, "chunks": array.chunks, "dtype": array.dtype}
    return wanted | {"compressors": None, "filters": None, "fill_value": array.fill_value}


def _check_places(request: SlabRequest, files: Sequence[ArrayFile], stores: Sequence[StoreLike]) -> None:
    """Refuse targets that would cost the user data, and more of them than there are arrays to sweep."""
    check_fields(len(files), stores)
    for file, store in product(files, stores):
        request.check(check_target, file.zarr, store)


def check_fields(sources: int, stores: Sequence[StoreLike]) -> None:
    """Refuse more targets than there are arrays to sweep, and one that is given twice."""
    check_distinct(stores)
    if sources < len(stores):
        told = f"{len(stores)} targets are given, and {sources} source{'s' * (sources > 1)}"
        raise InputError(f"{told}: each target is of a source that is swept, the first of the first")


def check_kernel(kernel: Any, dtypes: Sequence[np.dtype], fields: int, plan: IteratePlan) -> None:
    """Refuse a kernel that gives other shapes or types than those of small blocks, or not as many."""
    sweeps = plan.passes[0].sweeps
    shape = [min(n, 4 * d + 3) for n, d in zip(sweeps.shape, sweeps.depth, strict=True)]
    blocks = [np.ones(shape, dtype.newbyteorder("=")) for dtype in dtypes]
    swept, refused = blocks[:fields], ""
    with suppress(Exception), np.errstate(all="ignore"):
        refused = unlike(each_of(kernel(*(each.copy() for each in blocks)), swept), swept)
    if refused:
        raise InputError(refused)


Plan = TypeVar("Plan", bound=Cut)
Run = TypeVar("Run", bound=SlabRun)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabRequest:
    """Request for a pass, beside its arrays: as `oocarrays.map_slabs` takes it."""

    kernel: Kernel
    """The function of a block."""
    options: SlabOptions
    """How slabs are to be cut, read and held."""
    memory: int | float | str | None
    """Bytes that each process may hold."""
    overwrite: bool
    """Whether a target that is there may be replaced."""
    resume: bool | str
    """Whether to go on with what is there, and how far it is trusted."""
    scheduler: Any
    """Where it runs: a client, or a name."""
    workers: Sequence[str] | None
    """On which of its workers."""
    dtype: Any = None
    """Of the targets' elements."""
    chunks: ChunksLike | None = None
    """Of the targets."""
    results: ResultShapes = field(default_factory=ResultShapes)
    """Shapes of the targets, where they are others than that of the sources."""
    verify: bool = False
    """Whether some slabs are computed again with a larger halo."""

    def along(self, ndim: int, names: Sequence[str | None] | None) -> Self:
        """Return the same with the axes of its options as numbers: see `SlabOptions.along`."""
        return replace(self, options=self.options.along(ndim, names))

    def goes_on(self, target: StoreLike) -> bool:
        """Whether it goes on with what a run has left at its first target."""
        return trust_of(self.resume) is not None and unfinished_run(target) is not None

    def check(self, check: Callable[..., None], *given: Any) -> None:
        checked(check, *given, overwrite=self.overwrite, resume=self.resume)

    def resources(self, client: Any = None) -> tuple[Cluster | None, Resources]:
        """Find out where it runs, and what a plan may use; ``client`` is that of the arrays, where they have one."""
        cluster = cluster_of(client or self.scheduler, self.workers)
        return cluster, resources_of(cluster, self.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabArrays:
    """Arrays that a pass reads and writes."""

    shape: tuple[int, ...]
    """Extent of each axis, in elements."""
    dtypes: Sequence[np.dtype]
    """Of the sources' elements."""
    sources: Sequence[ArrayFile]
    """What is read, as far as everybody sees it."""
    targets: Sequence[TargetSpec]
    """What is written; the journal is beside the first."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """What else must be asked for again to go on."""
    by: str = "map_slabs"
    """The function that was called."""
    stopped: type[StoppedPass] = StoppedPass
    """What such a pass leaves when it stops."""
    group: StoreLike | None = None
    """The group in which the targets are, and the journal: it is one target."""
    places: Sequence[str | None] = ()
    """Where sources are, as a journal names them; by default the array files that are read."""
    functions: Sequence[Any] = ()
    """What else only the caller has, beside the kernel."""
    own_kernel: bool = True
    """Whether only the caller has the kernel: if not, the same call makes it again."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Options that the same call takes again, and that need not be as they were."""

    @property
    def place(self) -> StoreLike:
        return self.targets[0].store if self.group is None else self.group

    def called(self, kernel: Kernel) -> list[Any]:
        return [*([kernel] if self.own_kernel else []), *self.functions]

    @property
    def named(self) -> list[str | None]:
        """Where sources are; None of those in the memory of this process."""
        return list(self.places) or [named(file.zarr.store_path) for file in self.sources]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPass(Generic[Plan]):
    """A pass that has been planned: a new one, or one that goes on."""

    plan: Plan
    """Its plan."""
    content: Document
    """What the journal keeps of it."""
    left: StoppedPass | None
    """What it goes on with."""
    processes: int | None
    """Workers that it is planned for; None for threads of one process."""

    def remains(self, targets: Sequence[TargetSpec]) -> Remains:
        """Return the remains that a run of slabs is given."""
        return self.left.remains(self.plan, targets) if self.left else NOTHING_LEFT

    def run(self, kind: Callable[..., Run], kernel: Kernel, files: SlabFiles) -> Run:
        """Return the run of it, of one kind."""
        remains = self.remains(files.targets)
        return kind(self.plan, kernel, files, self.content, processes=self.processes, remains=remains)


def reshaping(
    request: SlabRequest, arrays: Sequence[zarr.Array], targets: int, *, single: bool
) -> tuple[SlabRequest, list[ChunksLike | None]]:
    """The request with what its results are of the sources, and the chunks that are asked for of each target."""
    names = dimension_names(arrays[0])
    chunks = request.results.chunks(request.chunks, targets, single=single)
    levels = request.results.levels(arrays[0].shape, names, chunks, single=single)
    options = replace(request.options, coarser=levels).checked(arrays[0].shape)
    if request.verify:
        options.verified()  # refused before the kernel is tried
    return replace(request, options=options), chunks


def result_types(
    request: SlabRequest, arrays: Sequence[zarr.Array], stores: Sequence[StoreLike], budget: int
) -> list[np.dtype]:
    """The type of each target's elements; where they are of another shape, the kernel is tried on a few zeros first."""
    levels, options, sources = request.options.coarser, request.options, [array.dtype for array in arrays]
    known = dtypes_of(request.dtype, sources[0], len(stores))
    if not levels:
        return known
    shape, depth = arrays[0].shape, options.depth
    assert isinstance(depth, tuple), "options have been checked"
    edges = of_each(checked_boundary(options.boundary, len(shape), *sources), len(shape))
    itemsize = sum(dtype.itemsize for dtype in sources)
    trial = TrialBlock.of(shape, levels, depth, [edge != "none" for edge in edges], itemsize)
    asked = request.dtype if isinstance(request.dtype, list | tuple) else [request.dtype] * len(stores)
    free = [own is None and request.results.others for own in asked]
    if trial.window.size * itemsize > max(budget, SMALL):
        return [wide_type(dtype) if any_type else dtype for any_type, dtype in zip(free, known, strict=True)]
    wanted = [
        ResultTerms(name_of(store), level.shape(trial.window.shape), None if any_type else dtype)
        for store, level, any_type, dtype in zip(stores, levels, free, known, strict=True)
    ]
    made = trial.results(request.kernel, sources, wanted)
    if made is None:
        return known
    return [each.dtype or element_type(array.dtype) for each, array in zip(wanted, made, strict=True)]


def targets_of(
    request: SlabRequest,
    like: zarr.Array,
    stores: Sequence[StoreLike],
    chunks: Sequence[ChunksLike | None],
    dtypes: Sequence[np.dtype],
) -> list[TargetSpec]:
    """Where results go, in the chunks that are asked for."""
    levels = request.options.coarser
    each: Sequence[Coarsening | None] = levels or [None] * len(stores)
    return [_target(request, like, *one) for one in zip(stores, each, chunks, dtypes, strict=True)]


def _target(
    request: SlabRequest,
    like: zarr.Array,
    store: StoreLike,
    level: Coarsening | None,
    chunks: ChunksLike | None,
    dtype: np.dtype,
) -> TargetSpec:
    """Where the results for one target go: chunks are of the sources' axes, but where axes are others."""
    grid, names = ChunkGrid.of(like.shape, like.chunks), dimension_names(like)
    made, said = retyped(target_settings(like, tuple(like.chunks)), like.dtype, dtype)
    if level is not None and request.results.others:
        made, names = coarsened(made, level), names_of(level, names)
        grid = ChunkGrid.of(made["shape"], made["chunks"])
    lengths = uneven_lengths(chunks, grid, like.dtype, names)
    if lengths and level is not None:
        raise InputError(
            f"{request.results.words} makes targets of other shapes: each axis has chunks of one length there"
        )
    if lengths:
        made["chunks"] = tuple(map(max, lengths))
    elif chunks is not None:
        made["chunks"] = regular_chunks(chunks, grid, like.dtype, names)
    if level is not None and not request.results.others:
        made = coarsened(made, level)
    place, settings = uneven_target(store, made, lengths, durable=setting("durable"))
    said = (*cuts(chunks, None, grid, names), *said)
    return TargetSpec(store=place, settings=settings, overwrite=request.overwrite, said=said)


def planned_pass(
    request: SlabRequest, arrays: SlabArrays, resources: Resources, plan: Callable[[Any], Plan]
) -> PlannedPass[Plan]:
    target, options = arrays.place, _settled(request, arrays, resources)
    asked = asked_of(
        request.kernel, arrays.sources, arrays.targets, depth=options.depth, boundary=options.boundary, **arrays.said
    )
    options = options.verified() if request.verify else options
    left = None
    if request.goes_on(target):
        left_content(target)
        left = left_by(target, asked, arrays.by, sources=arrays.sources, resume=request.resume, kind=arrays.stopped)
    made = left.planned(plan, options) if left else plan(options)
    content = (
        (left.begun_with if left else {}) | slab_content(made, asked, arrays.by) | _call(request, arrays, resources)
    ) | _requested(request, arrays, asked)
    if hasattr(made, "passes"):
        content[LAST] = len(made.passes) - 1
    return PlannedPass(plan=made, content=content, left=left, processes=resources.workers)


def _requested(request: SlabRequest, arrays: SlabArrays, asked: Document) -> Document:
    known = ("kernel", "source", "target", "dtype", "chunks")
    return requested(
        arrays.by, arrays.named, asked["source"], [(each.made, each.count) for each in arrays.targets],
        functions=arrays.called(request.kernel),
        **{"other targets": asked["target"][1:]},
        **{name: value for name, value in asked.items() if name not in known},
    )  # fmt: skip


def _call(request: SlabRequest, arrays: SlabArrays, resources: Resources) -> Document:
    """The call, as a journal keeps it, but for what must be asked for again as it was."""
    asked = {name: getattr(request.options, name) for name in ("prefetch", "workspace", "axis", "ranks")}
    return call_content(
        arrays.by, arrays.named, functions=arrays.called(request.kernel), memory=resources.budget,
        processes=resources.workers, **asked, **arrays.more,
    )  # fmt: skip


def _settled(request: SlabRequest, arrays: SlabArrays, resources: Resources) -> SlabOptions:
    """The options of a request with what its kernel, the arrays and the machine say."""
    options = request.options
    ranks = own_ranks(request.kernel) if options.ranks is None and resources.workers is None else options.ranks
    return replace(
        options.checked(arrays.shape),
        boundary=checked_boundary(options.boundary, len(arrays.shape), *arrays.dtypes),
        budget=resources.budget,
        processes=resources.workers or 1,
        ranks=ranks_of(ranks, resources),
        past_cache_above=settings.past_cache_above(),
        costs=resources.costs,
    )
