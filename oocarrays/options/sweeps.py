"""An iteration as a person asks for it: its passes, or the rest of them, and where what they hand on is stored."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import InputError
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.slabs.course import Course
from oocarrays.graphs.slabs.gathering import Residual, change
from oocarrays.graphs.slabs.resume import kernel_name
from oocarrays.graphs.slabs.sweeps import each_of, unlike
from oocarrays.options.asked import check_distinct, scratch_of
from oocarrays.options.slabs import SlabArrays, SlabRequest, planned_pass
from oocarrays.plan.documents import Document, Settings
from oocarrays.plan.slabs.iterate import IteratePlan, SweepOptions, plan_iterate
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import check_target
from oocarrays.storage.files.formats import dimension_names, target_settings
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.retyped import retyped
from oocarrays.storage.files.target import TargetSpec
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
        """Return what only the caller has."""
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
    planner = partial(plan_iterate, *stored, costs=resources.costs, threads=resources.threads)
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
