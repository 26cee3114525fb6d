"""Request of a pass over slabs, common to global array files, local ones and iterations.

request, arrays ─► checked options ─► recovery of a stopped run, if any ─► plan ─► content of the journal
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
from oocarrays.graphs.cluster.placement import Disks
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.run.looking import trust_of
from oocarrays.graphs.run.remains import NOTHING_LEFT, Remains
from oocarrays.graphs.slabs.course import Course, PassScratch
from oocarrays.graphs.slabs.gathering import Residual, change
from oocarrays.graphs.slabs.resume import Cut, StoppedPass, asked_of, kernel_name, left_by, slab_content
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
from oocarrays.requests import LAST, checked, left_content, requested
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import check_target
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.formats import dimension_names, retyped, target_settings
from oocarrays.storage.files.places import StoreLike, name_of
from oocarrays.storage.files.target import TargetSpec, uneven_target
from oocarrays.storage.journal.calls import call_content, named
from oocarrays.storage.journal.leftovers import scratch_below
from oocarrays.storage.stores.remote import RemoteStore


def course_of(request: SlabRequest, files: Sequence[ArrayFile]) -> tuple[Course, Cluster | None]:
    """Return all passes of `iterate` and the cluster; files beyond one per target are read but not swept."""
    request = request.along(files[0].zarr.ndim, dimension_names(files[0].zarr))
    stores = request.stores
    check_fields(len(files), stores)
    for file, store in product(files, stores):
        request.check(check_target, file.zarr, store)
    swept = files[: len(stores)]
    cluster, resources = request.resources()
    copies = ((target_settings(each.zarr, tuple(each.zarr.chunks)), each.zarr.dtype) for each in swept)
    made = (retyped(settings, dtype, dtype) for settings, dtype in copies)
    targets = [
        TargetSpec(store=store, settings=settings, overwrite=request.overwrite, said=said)
        for store, (settings, said) in zip(stores, made, strict=True)
    ]
    known = SlabArrays(
        shape=files[0].zarr.shape, dtypes=[np.dtype(each.zarr.dtype) for each in files], sources=files,
        targets=targets, by="iterate", said=request.sweeps, functions=request.watching,
        more={**request.call, "missing": files[0].presence.missing},
    )  # fmt: skip
    asked = setting("scratch") if request.scratch is None else request.scratch
    where, *_ = [scratch_of(asked, store, file.zarr) for store, file in product(stores, files)]
    stored = (
        [file.stored for file in files],
        [array_file.preview(_plain(file.zarr), where) for file in swept],
        [target.preview() for target in targets],
    )
    found = planned_pass(request, known, resources, partial(plan_iterate, *stored, threads=resources.threads))
    return found.course(request, known, files, [where]), cluster


def _plain(array: zarr.Array) -> Settings:
    """Return the settings of intermediate arrays between passes."""
    wanted = {"shape": array.shape, "chunks": array.chunks, "dtype": array.dtype}
    return wanted | {"compressors": None, "filters": None, "fill_value": array.fill_value}


def check_fields(sources: int, stores: Sequence[StoreLike]) -> None:
    """Raise if targets exceed the number of sources, or a target is given twice."""
    check_distinct(stores)
    if sources < len(stores):
        told = f"{len(stores)} targets are given, and {sources} source{'s' * (sources > 1)}"
        raise InputError(f"{told}: target i receives the result of source i")


def check_kernel(kernel: Any, dtypes: Sequence[np.dtype], fields: int, plan: IteratePlan) -> None:
    """Raise if a kernel returns wrong shapes, types or numbers of results for small blocks."""
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
    """Request for one pass or several, beside its sources: as `oocarrays.map_slabs` and `oocarrays.iterate` take it."""

    kernel: Kernel
    """Function of a block."""
    options: SlabOptions
    """Options for cutting, reading and holding slabs."""
    memory: int | float | str | None
    """Budget of each process in bytes."""
    overwrite: bool
    """Whether an existing target may be replaced."""
    resume: bool | str
    """Whether to continue an existing target, and which checks to make."""
    scheduler: Any
    """Scheduler: a client, or a name."""
    workers: Sequence[str] | None
    """Chosen workers."""
    dtype: Any = None
    """Type of the targets' elements."""
    chunks: ChunksLike | None = None
    """Chunks of the targets."""
    results: ResultShapes = field(default_factory=ResultShapes)
    """Shapes of the targets, if they differ from that of the sources."""
    verify: bool = False
    """Whether to compute some slabs again with a larger halo."""
    stores: Sequence[StoreLike] = ()
    """Locations of the targets."""
    single: bool = True
    """Whether a single target was given, not a list."""
    folders: str | None = None
    """For local array files on workers' own disks: location of the targets' files."""
    scratch: Any = None
    """Location of intermediate results between passes, if given."""
    residual: Residual | None = None
    """Measure computed after each pass; None to compute none."""
    until: float | None = None
    """Residual at which sweeping ends."""

    @property
    def sweeps(self) -> Document:
        """Arguments of an iteration that a resumed call must repeat."""
        assert isinstance(self.options, SweepOptions), "sweeps are asked for"
        residual = None if self.residual is None else kernel_name(self.residual)
        return {"sweeps": self.options.sweeps, "until": self.until, "residual": residual}

    @property
    def watching(self) -> list[Any]:
        """Functions of an iteration beside the kernel."""
        return [None if self.residual in (None, change) else self.residual]

    @property
    def call(self) -> Document:
        """Options of the call that a resumed call may change; of an iteration, if the targets do not imply them."""
        if isinstance(self.options, SweepOptions):
            listed = {"single": False} if not self.single and len(self.stores) == 1 else {}
            return {"fuse": self.options.fuse, **listed}
        return {"reuse": self.options.reuse, "single": self.single, **({"verify": True} if self.verify else {})}

    def along(self, ndim: int, names: Sequence[str | None] | None) -> Self:
        """Return the request with the axes of its options as numbers: see `SlabOptions.along`."""
        return replace(self, options=self.options.along(ndim, names))

    def goes_on(self, target: StoreLike) -> bool:
        """Return whether the call continues a stopped run at its first target."""
        return trust_of(self.resume) is not None and unfinished_run(target) is not None

    def check(self, check: Callable[..., None], *given: Any) -> None:
        checked(check, *given, overwrite=self.overwrite, resume=self.resume)

    def resources(self, client: Any = None) -> tuple[Cluster | None, Resources]:
        """Return the cluster, if any, and the resources of the plan; ``client`` is that of the arrays, if they have
        one."""
        cluster = cluster_of(client or self.scheduler, self.workers)
        return cluster, resources_of(cluster, self.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabArrays:
    """Source and target arrays of a pass."""

    shape: tuple[int, ...]
    """Extent of each axis, in elements."""
    dtypes: Sequence[np.dtype]
    """Types of the sources' elements."""
    sources: Sequence[ArrayFile]
    """Sources, as all ranks see them."""
    targets: Sequence[TargetSpec]
    """Targets; the journal is beside the first."""
    said: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments that a resumed call must repeat."""
    by: str = "map_slabs"
    """Name of the called function."""
    group: StoreLike | None = None
    """Group of the targets and of the journal: it is one target."""
    places: Sequence[str | None] = ()
    """Locations of the sources, as a journal names them; by default the array files."""
    functions: Sequence[Any] = ()
    """Functions of the call beside the kernel, which no journal keeps."""
    own_kernel: bool = True
    """Whether the kernel was given by the caller; otherwise the same call creates it again."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Options of the call that a resumed call may change."""

    @property
    def place(self) -> StoreLike:
        return self.targets[0].store if self.group is None else self.group

    def called(self, kernel: Kernel) -> list[Any]:
        return [*([kernel] if self.own_kernel else []), *self.functions]

    @property
    def named(self) -> list[str | None]:
        """Locations of the sources; None for those in the memory of this process."""
        return list(self.places) or [named(file.zarr.store_path) for file in self.sources]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPass(Generic[Plan]):
    """Planned pass: a new one, or a resumed one."""

    plan: Plan
    """Its plan."""
    content: Document
    """Content of its journal."""
    left: StoppedPass | None
    """Recovery that it continues, if any."""
    processes: int | None
    """Number of planned workers; None for threads of one process."""

    def remains(self, targets: Sequence[TargetSpec]) -> Remains:
        """Return the recovery for a run of slabs."""
        return self.left.remains(self.plan, targets) if self.left else NOTHING_LEFT

    def run(self, kind: Callable[..., Run], kernel: Kernel, files: SlabFiles) -> Run:
        """Return its run, of one kind."""
        remains = self.remains(files.targets)
        return kind(self.plan, kernel, files, self.content, processes=self.processes, remains=remains)

    def course(
        self,
        request: SlabRequest,
        arrays: SlabArrays,
        files: Sequence[Any],
        scratch: Sequence[str | RemoteStore],
        disks: Disks | None = None,
    ) -> Course:
        """Return the passes of an iteration; ``scratch`` is the location of its scratch, or of each rank's."""
        plan, swept = self.plan, len(arrays.targets)
        assert isinstance(plan, IteratePlan), "sweeps are planned"
        check_kernel(request.kernel, arrays.dtypes, swept, plan)
        id = self.left.id if self.left else uuid.uuid4().hex[:12]
        folders = tuple(scratch_below(where, id) for where in scratch)
        course = Course(
            plan=plan, kernel=request.kernel, residual=request.residual, until=request.until,
            sources=tuple(files[:swept]), beside=tuple(files[swept:]), targets=tuple(arrays.targets),
            content=self.content, id=id,
            resumes=self.left is not None, processes=self.processes,
            scratch=PassScratch(folders=folders, fields=swept), disks=disks or Disks(),
        )  # fmt: skip
        return course.gone_on_with(self.left) if self.left else course


def reshaping(request: SlabRequest, arrays: Sequence[zarr.Array]) -> tuple[SlabRequest, list[ChunksLike | None]]:
    """Return the request with the shapes of its results, and the chunks of each target."""
    names = dimension_names(arrays[0])
    chunks = request.results.chunks(request.chunks, len(request.stores), single=request.single)
    levels = request.results.levels(arrays[0].shape, names, chunks, single=request.single)
    options = replace(request.options, coarser=levels).checked(arrays[0].shape)
    if request.verify:
        options.verified()  # refused before the kernel is tried
    return replace(request, options=options), chunks


def result_types(request: SlabRequest, arrays: Sequence[zarr.Array], budget: int) -> list[np.dtype]:
    """Return the type of each target's elements; for another shape, the kernel is tried on a few zeros first."""
    levels, options, sources = request.options.coarser, request.options, [array.dtype for array in arrays]
    stores = request.stores
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


def target_of(
    request: SlabRequest,
    like: zarr.Array,
    store: StoreLike,
    level: Coarsening | None,
    chunks: ChunksLike | None,
    dtype: np.dtype,
) -> TargetSpec:
    """Return one target: chunks are of the sources' axes, unless its axes differ."""
    grid, names = ChunkGrid.of(like.shape, like.chunks), dimension_names(like)
    made, said = retyped(target_settings(like, tuple(like.chunks)), like.dtype, dtype)
    if level is not None and request.results.others:
        made, names = coarsened(made, level), names_of(level, names)
        grid = ChunkGrid.of(made["shape"], made["chunks"])
    lengths = uneven_lengths(chunks, grid, like.dtype, names)
    if lengths and level is not None:
        raise InputError(f"{request.results.words} changes the targets' shapes, which needs chunks of equal length")
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
        left = left_by(target, asked, arrays.by, sources=arrays.sources, resume=request.resume)
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
    """Return the journal's record of the call, without the arguments that a resumed call must repeat."""
    asked = {name: getattr(request.options, name) for name in ("prefetch", "workspace", "axis", "ranks")}
    return call_content(
        arrays.by, arrays.named, functions=arrays.called(request.kernel), memory=resources.budget,
        processes=resources.workers, **asked, **arrays.more,
    )  # fmt: skip


def _settled(request: SlabRequest, arrays: SlabArrays, resources: Resources) -> SlabOptions:
    """Return the options of a request, completed from its kernel, the arrays and the machine."""
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
