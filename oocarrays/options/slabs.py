"""Request of a pass over slabs, common to `map_slabs`, `iterate` and `pyramid`.

request, arrays ─► checked options ─► recovery of a stopped run, if any ─► plan ─► content of the journal
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from inspect import signature
from numbers import Integral
from typing import Any, Self, TypeVar

import numpy as np

from oocarrays.errors import BudgetError, InputError, plural
from oocarrays.graphs import settings
from oocarrays.graphs.cluster.placement import Cluster, Disks
from oocarrays.graphs.run.recovery import NOTHING_LEFT, Interrupted
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.slabs.course import (
    CHANGE,
    Course,
    asked_of,
    interrupted_pass,
    is_on_own_disks,
    kernel_name,
    recorded_cut,
    recover_pass,
)
from oocarrays.graphs.slabs.kernel import Kernel
from oocarrays.graphs.slabs.program import SlabPass
from oocarrays.graphs.slabs.scratch import PassScratch
from oocarrays.graphs.slabs.sweeps import Residual, change, each_of, unlike
from oocarrays.kernels.jacobi import sweep, sweeps
from oocarrays.kernels.medians import median
from oocarrays.kernels.results import unwrapped
from oocarrays.mapping.given import whole, wholes
from oocarrays.mapping.grid import Stored
from oocarrays.mapping.layouts.halo import BoundaryLike, checked_boundary
from oocarrays.options.asked import cluster_of, resources_of, workspace_of
from oocarrays.options.given import Resources as Means, Target
from oocarrays.options.shapes import Results
from oocarrays.plan.documents import Document
from oocarrays.plan.plan import Resources
from oocarrays.plan.slabs.iterate import IteratePlan, SweepOptions
from oocarrays.plan.slabs.options import DepthLike, SlabOptions, WindowLike, window_options
from oocarrays.plan.slabs.plan import CUT, SlabPlan
from oocarrays.requests import LAST, checked, left_content, requested
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.files.documents import unfinished_run
from oocarrays.storage.files.places import StoreLike, named
from oocarrays.storage.files.target import GroupTarget
from oocarrays.storage.journal.calls import call_content
from oocarrays.storage.journal.leftovers import scratch_below
from oocarrays.storage.journal.sources import trust_of
from oocarrays.storage.stores.remote import RemoteStore

Plan = TypeVar("Plan", SlabPlan, IteratePlan)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabRequest:
    """Request for one pass or several, beside its sources: as `oocarrays.map_slabs` and `oocarrays.iterate` take it."""

    kernel: Kernel
    options: SlabOptions
    targets: Sequence[Target]
    """Targets as given, with their locations opened."""
    means: Means
    overwrite: bool
    resume: bool | str
    results: Results = field(default_factory=Results)
    """Shapes of the targets, if they differ from that of the sources."""
    single: bool = True
    """Whether a single target was given, not a list."""
    residual: Residual | None = None
    """Measure computed after each pass; None to compute none."""
    until: float | None = None
    """Residual at which sweeping ends."""

    @property
    def stores(self) -> list[StoreLike]:
        return [target.store for target in self.targets]

    @property
    def iterates(self) -> bool:
        """Whether it is for several passes: each target is then like its own source, not like the first one."""
        return isinstance(self.options, SweepOptions)

    @property
    def said(self) -> Document:
        """Arguments of an iteration that a resumed call must repeat."""
        if not isinstance(self.options, SweepOptions):
            return {}
        residual = CHANGE if self.residual is change else self.residual and kernel_name(self.residual)
        return {"sweeps": self.options.sweeps, "until": self.until, "residual": residual}

    @property
    def functions(self) -> list[Any]:
        """Functions of an iteration beside the kernel."""
        return [None if self.residual in (None, change) else self.residual] if self.iterates else []

    @property
    def call(self) -> Document:
        """Options of the call that a resumed call may change; of an iteration, if the targets do not imply them."""
        if isinstance(self.options, SweepOptions):
            listed = {"single": False} if not self.single and len(self.stores) == 1 else {}
            return {"fuse": self.options.fuse, **listed}
        return {"reuse": self.options.reuse, "single": self.single, **({"verify": True} if self.results.verify else {})}

    def along(self, ndim: int, names: Sequence[str | None] | None, **options: Any) -> Self:
        """Return the request with the axes of its options as numbers, see `SlabOptions.along`, and further options."""
        return replace(self, options=replace(self.options.along(ndim, names), **options))

    def goes_on(self, target: StoreLike) -> bool:
        """Return whether the call continues a stopped run at its first target."""
        return trust_of(self.resume) is not None and unfinished_run(target) is not None

    def check(self, check: Callable[..., None], *given: Any) -> None:
        checked(check, *given, overwrite=self.overwrite, resume=self.resume)

    def check_sources(self, sources: int) -> None:
        """Raise if targets exceed the number of sources in an iteration."""
        if self.iterates and sources < len(self.stores):
            raise InputError(
                f"{plural(len(self.stores), 'target')} for {plural(sources, 'source')}: "
                "target i receives the result of source i"
            )

    def resources(self, client: Any = None) -> tuple[Cluster | None, Resources]:
        """Return the cluster, if any, and the resources of the plan; ``client`` is that of the arrays, if any."""
        cluster = cluster_of(client or self.means.scheduler, self.means.workers)
        return cluster, resources_of(cluster, self.means.memory)


def pass_options(
    means: Means, *, depth: DepthLike, boundary: BoundaryLike, window: WindowLike | int | None
) -> Document:
    return {
        "depth": depth,
        "boundary": boundary,
        "prefetch": 1 if means.prefetch is None else means.prefetch,
        "workspace": workspace_of(means.workspace),
        "ranks": means.ranks,
        **window_options(window),
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabArrays:
    request: SlabRequest
    """Request with the options that the arrays determine."""
    cluster: Cluster | None
    resources: Resources
    dtypes: Sequence[np.dtype]
    files: Sequence[Any]
    """Sources as tasks read them: `ArrayFile`, or the `RankFiles` of all ranks."""
    read: Sequence[Stored]
    """Sources for the plan; of local array files, the largest of each."""
    sources: Sequence[ArrayFile]
    """Sources, as all ranks see them."""
    targets: Sequence[TargetSpec]
    """Targets; the journal is beside the first."""
    disks: Disks = field(default_factory=Disks)
    said: Mapping[str, Any] = field(default_factory=dict)
    """Further arguments that a resumed call must repeat."""
    group: GroupTarget | None = None
    """Group of the targets and of the journal, for a pyramid: it is one target."""
    places: Sequence[str | None] = ()
    """Locations of the sources, as a journal names them; by default the array files."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """Options of the call that a resumed call may change."""

    @property
    def place(self) -> StoreLike:
        return (self.group or self.targets[0]).store

    @property
    def functions(self) -> list[Any]:
        """Functions of the call, which no journal keeps."""
        own = [] if self.group else [self.request.kernel]  # the same call creates that of a pyramid again
        return [*own, *self.request.functions]

    @property
    def by(self) -> str:
        return "pyramid" if self.group else "iterate" if self.request.iterates else "map_slabs"

    @property
    def named(self) -> list[str | None]:
        """Locations of the sources; None for those in the memory of this process."""
        return list(self.places) or [named(file.zarr.store_path) for file in self.sources]

    @property
    def written(self) -> list[Stored]:
        return [target.preview() for target in self.targets]

    @property
    def options(self) -> SlabOptions:
        """Options of the request, completed from its kernel, the arrays and the machine."""
        options, resources = self.request.options, self.resources
        shape = options.shape_of(self.read)
        is_default = options.ranks is None and resources.workers is None
        # kernels of this package are many short calls of numpy, and one rank already reads and writes beside them:
        # threads that compute pass the interpreter's lock to each other more often than they gain
        few = is_default and unwrapped(self.request.kernel)[0] in (median, sweep, sweeps)
        ranks = 1 if few else options.ranks
        return replace(
            options.checked(shape),
            boundary=checked_boundary(options.boundary, len(shape), *self.dtypes),
            budget=resources.budget,
            processes=resources.workers or 1,
            ranks=(resources.workers or resources.threads) if ranks is None else whole(ranks, "ranks", 1),
            past_cache_above=settings.past_cache_above(),
            costs=resources.costs,
        )


def slab_pass(arrays: SlabArrays, plan: Callable[[Any], SlabPlan]) -> Run[SlabPass]:
    """Plan a pass, a new one or the rest of a stopped one, and return its run."""
    made, content, left = _planned(arrays, plan)
    program = SlabPass(
        plan=made, kernel=arrays.request.kernel, reads=tuple(arrays.files), workers=arrays.resources.workers,
        writes=(arrays.group,) if arrays.group else tuple(arrays.targets),
    )  # fmt: skip
    return Run(program, content, recover_pass(left, program) if left else NOTHING_LEFT)


def iteration(arrays: SlabArrays, plan: Callable[[Any], IteratePlan], scratch: Sequence[str | RemoteStore]) -> Course:
    """Plan the passes of an iteration; ``scratch`` is the location of its scratch, or of each rank's."""
    made, content, left = _planned(arrays, plan)
    request, files, swept = arrays.request, tuple(arrays.files), len(arrays.targets)
    check_kernel(request.kernel, arrays.dtypes, swept, made)
    id = left.id if left else uuid.uuid4().hex[:12]
    course = Course(
        plan=made, kernel=request.kernel, residual=request.residual, until=request.until, sources=files[:swept],
        beside=files[swept:], targets=tuple(arrays.targets), processes=arrays.resources.workers, disks=arrays.disks,
        scratch=PassScratch(folders=tuple(scratch_below(where, id) for where in scratch), fields=swept),
        content={**content, LAST: len(made.passes) - 1}, id=id,
    )  # fmt: skip
    return course.resumed(left) if left else course


def own_depth(kernel: Callable[..., Any]) -> int | tuple[int, ...]:
    """Return the neighbours that a kernel needs on each side, in all axes or in each; 0 for an unknown kernel."""
    function, args, keywords = unwrapped(kernel)
    if function is sweep:
        return 1
    if function not in (median, sweeps):
        return 0
    bound = signature(function).bind_partial(*args, **keywords)
    bound.apply_defaults()
    if function is sweeps:
        return whole(bound.arguments.get("count"), "count")
    size = bound.arguments["size"]
    return whole(size, "size") // 2 if isinstance(size, Integral) else tuple(n // 2 for n in wholes(size, "size"))


def check_kernel(kernel: Any, dtypes: Sequence[np.dtype], fields: int, plan: IteratePlan) -> None:
    """Raise if a kernel returns wrong shapes, types or numbers of results for small blocks."""
    sweeps = plan.passes[0].sweeps
    assert sweeps is not None, "passes of an iteration sweep"
    shape = [min(n, 4 * d + 3) for n, d in zip(sweeps.shape, sweeps.depth, strict=True)]
    blocks = [np.ones(shape, dtype.newbyteorder("=")) for dtype in dtypes]
    swept, refused = blocks[:fields], ""
    with suppress(Exception), np.errstate(all="ignore"):
        refused = unlike(each_of(kernel(*(each.copy() for each in blocks)), swept), swept)
    if refused:
        raise InputError(refused)


def _planned(arrays: SlabArrays, plan: Callable[[Any], Plan]) -> tuple[Plan, Document, Interrupted | None]:
    """Return a plan, the content of its journal, and the stopped run that it continues, if any."""
    request, target, options = arrays.request, arrays.place, arrays.options
    asked = asked_of(
        request.kernel, arrays.sources, arrays.targets, depth=options.depth, boundary=options.boundary, **arrays.said
    )
    options = options.verified() if request.results.verify else options
    left = None
    if request.goes_on(target):
        left_content(target)
        left = interrupted_pass(target, asked, arrays.by, sources=arrays.sources, resume=request.resume)
    made = _recut(left, plan, options) if left else plan(options)
    content = {"pass": arrays.by, "asked": asked, "cut": made.cut, **_call(arrays), **_requested(arrays, asked)}
    return made, (left.begun_with if left else {}) | content, left


def _recut(left: Interrupted, plan: Callable[[Any], Plan], asked: SlabOptions) -> Plan:
    """Return a plan with the recorded cut, or with the ``asked`` options if that exceeds the memory budget."""
    cut = recorded_cut(left)
    with nullcontext() if is_on_own_disks(left) else suppress(BudgetError):
        return plan(asked.cut_as(**cut))
    return plan(replace(asked, **{name: value for name, value in cut.items() if name not in CUT}))


def _requested(arrays: SlabArrays, asked: Document) -> Document:
    known = ("kernel", "source", "target", "dtype", "chunks")
    return requested(
        arrays.by, arrays.named, asked["source"], [(each.made, each.count) for each in arrays.targets],
        functions=arrays.functions,
        **{"other targets": asked["target"][1:]},
        **{name: value for name, value in asked.items() if name not in known},
    )  # fmt: skip


def _call(arrays: SlabArrays) -> Document:
    """Return the journal's record of the call, without the arguments that a resumed call must repeat."""
    asked = {name: getattr(arrays.request.options, name) for name in ("prefetch", "workspace", "axis", "ranks")}
    return call_content(
        arrays.by, arrays.named, functions=arrays.functions, memory=arrays.resources.budget,
        processes=arrays.resources.workers, **asked, **arrays.more,
    )  # fmt: skip
