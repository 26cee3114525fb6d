"""An iteration as a person asks for it: its passes, or the rest of them, and where what they hand on is stored."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import zarr

from oocarrays.errors import InputError
from oocarrays.graphs.cluster.workers import Cluster
from oocarrays.graphs.defaults import setting
from oocarrays.graphs.slabs.course import Course
from oocarrays.graphs.slabs.residuals import Residual, change
from oocarrays.graphs.slabs.resume import kernel_name
from oocarrays.graphs.slabs.sweeps import unlike
from oocarrays.options.asked import scratch_of
from oocarrays.options.slabs import SlabArrays, SlabRequest, planned_pass
from oocarrays.plan.documents import Settings
from oocarrays.plan.slabs.iterate import IteratePlan, SweepOptions, plan_iterate
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import check_target
from oocarrays.storage.files.formats import target_settings
from oocarrays.storage.files.places import StoreLike
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.scratch import scratch_below


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """Watch over the passes: it looks at each, and says when to end."""

    residual: Residual | None
    until: float | None


def course_of(
    request: SlabRequest, files: Sequence[ArrayFile], store: StoreLike, scratch: Any, watch: Watch
) -> tuple[Course, Cluster | None]:
    """All passes, as `iterate` has them, and where they run; the first file is swept, others are read beside it."""
    (file, *beside), options = files, request.options
    array, dtypes = file.zarr, [each.zarr.dtype for each in files]
    assert isinstance(options, SweepOptions), "sweeps are asked for"
    for each in files:
        check_target(each.zarr, store, overwrite=request.may_replace(store))
    cluster, resources = request.resources()
    made = target_settings(array, tuple(array.chunks)) | {"dtype": np.dtype(array.dtype)}
    target = TargetSpec(store=store, settings=made, overwrite=request.overwrite)
    residual = None if watch.residual is None else kernel_name(watch.residual)
    known = SlabArrays(
        shape=array.shape, dtypes=dtypes, sources=files, targets=[target], by="iterate",
        said={"sweeps": options.sweeps, "until": watch.until, "residual": residual},
        functions=[None if watch.residual in (None, change) else watch.residual],
        more={"fuse": options.fuse, "missing": file.presence.missing},
    )  # fmt: skip
    where = scratch_of(scratch or setting("scratch"), store, array)
    stored = file.stored, array_file.preview(_plain(array), where), target.preview()
    planner = partial(
        plan_iterate, *stored, costs=resources.costs, threads=resources.threads, beside=[each.stored for each in beside]
    )
    found = planned_pass(request, known, resources, planner)
    _check_kernel(request.kernel, dtypes, found.plan)
    id = found.left.id if found.left else uuid.uuid4().hex[:12]
    course = Course(
        plan=found.plan,
        kernel=request.kernel,
        residual=watch.residual,
        until=watch.until,
        source=file,
        beside=tuple(beside),
        target=target,
        scratch=scratch_below(where, id),
        content=found.content,
        id=id,
        resumes=found.left is not None,
        processes=found.processes,
    )
    return course.gone_on_with(found.left) if found.left else course, cluster


def _plain(array: zarr.Array) -> Settings:
    """How what passes hand on is stored."""
    wanted = {"shape": array.shape, "chunks": array.chunks, "dtype": array.dtype}
    return wanted | {"compressors": None, "filters": None, "fill_value": array.fill_value}


def _check_kernel(kernel: Any, dtypes: Sequence[np.dtype], plan: IteratePlan) -> None:
    """Refuse a kernel that gives another shape or type than that of a small block.

    Raises
    ------
    InputError
        One that fails, as such a block may not suit it, is let pass.
    """
    sweeps = plan.passes[0].sweeps
    shape = [min(n, 4 * d + 3) for n, d in zip(sweeps.shape, sweeps.depth, strict=True)]
    block, *beside = (np.ones(shape, dtype.newbyteorder("=")) for dtype in dtypes)
    made = block
    with suppress(Exception), np.errstate(all="ignore"):
        made = np.asarray(kernel(block.copy(), *beside))
    if (made.shape, made.dtype) != (block.shape, block.dtype):
        raise InputError(unlike(made, block))
