"""Sums, means, deviations and extremes of arrays larger than memory: one pass, within a memory budget.

reduce(a, "mean", axis=0)                       ─► a numpy array, at once: on threads, or on the workers of a client
reduce(a, "mean", axis=0, target="mean.zarr")   ─► a job
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np
import zarr
from distributed import Client

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.errors import JournalError
from oocarrays.graphs.cluster.placement import Cluster
from oocarrays.graphs.events import warn_of_missing
from oocarrays.graphs.reductions.program import Reduction, reduced_here
from oocarrays.graphs.reductions.reducing import Reducer
from oocarrays.graphs.run.program import itself
from oocarrays.graphs.run.recovery import NOTHING_LEFT, Interrupted, Recovered
from oocarrays.graphs.run.run import Run
from oocarrays.jobs.job import Job, array_at, opener
from oocarrays.options.asked import cluster_of, resources_of
from oocarrays.options.given import Resources, Target, means_of, stored_as, verb
from oocarrays.options.packing import warn_of_packed
from oocarrays.plan.documents import Document
from oocarrays.plan.plan import Resources as PlanResources
from oocarrays.plan.reductions.plan import ReducePlan
from oocarrays.reductions.asked import Asked, Decode, How, wanted
from oocarrays.requests import checked, is_resumable, journaled, requested, unnamed
from oocarrays.storage.codecs.codec import rebound
from oocarrays.storage.files import array_file
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec, check_target, written_file
from oocarrays.storage.files.formats import carried_compressors, compressors_in, dimension_names, target_settings
from oocarrays.storage.files.places import StoreLike, named
from oocarrays.storage.journal.calls import CALL, call_content
from oocarrays.storage.journal.sources import metadata_digest
from oocarrays.stored.array import StoredArray, missing_of, placer

CUT, BOX_BYTES = "cut", "box_bytes"
"""Journal keys of the cut of the array, and of the size of its boxes, from which the cut follows."""


class ReduceJob(Job[Run[Reduction], OutOfCoreArray, ReducePlan]):
    """Planned reduction: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""


@overload
def reduce(
    source: StoredArray | zarr.Array[Any] | np.ndarray | StoreLike,
    how: How, axis: int | str | Sequence[int | str] | None = None, *, target: None = None,
    by: Any = None, where: Any = None, skipna: bool = True, memory: int | float | str | None = None,
    overwrite: bool = False, resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None, resources: Resources | None = None,
) -> np.ndarray: ...  # fmt: skip
@overload
def reduce(
    source: StoredArray | zarr.Array[Any] | np.ndarray | StoreLike,
    how: How, axis: int | str | Sequence[int | str] | None = None, *, target: Target | StoreLike,
    by: Any = None, where: Any = None, skipna: bool = True, memory: int | float | str | None = None,
    overwrite: bool = False, resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None, resources: Resources | None = None,
) -> ReduceJob: ...  # fmt: skip
@verb(resources=("workers",), old={"ddof": 'how=("std", {"ddof": 1})', "a": "source="})
def reduce(
    source: StoredArray | zarr.Array[Any] | np.ndarray | StoreLike,
    how: How,
    axis: int | str | Sequence[int | str] | None = None,
    *,
    target: Target | StoreLike | None = None,
    by: Any = None,
    where: Any = None,
    skipna: bool = True,
    memory: int | float | str | None = None,
    overwrite: bool = False,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
) -> np.ndarray | ReduceJob:
    """Reduce an array on disk along axes; each chunk is read once, on threads of this process or on workers.

    Parameters
    ----------
    source : OutOfCoreArray, zarr.Array, path, URL or store
        The array to reduce.
    how : str, (str, mapping) or (callable, callable, callable)
        ``"sum"``, ``"mean"``, ``"var"``, ``"std"``, ``"min"``, ``"max"`` or ``"count"``; ``("std", {"ddof": 1})``
        subtracts 1 from the count in the divisor, of ``"var"`` too; or three functions: of a block
        and the axes, of two of their results, and of the last one. Durations have no ``"var"`` and ``"std"``, dates no
        ``"sum"`` and ``"mean"`` either.
    axis : int, str or sequence of them
        The axes to reduce, by number or name; by default all.
    target : path, URL or Zarr store
        Location of the result; by default it is returned in memory, at once.
    by : sequence
        A label for each index of ``axis``, which must be one: the result has an axis of groups in its place, in the
        order of ``numpy.unique(by)``. Elements with a label NaN or NaT do not count.
    where : array of bool
        Mask of the elements that count, broadcast to the array.
    skipna : bool
        Whether NaN does not count, as in xarray; else it makes NaN, as in numpy.
    memory : int or str
        Budget of each process in bytes; by default as in `rechunk`.
    overwrite : bool
        Whether an existing target may be replaced.
    resume : bool or str
        As in `rechunk`, for a target.
    scheduler : Client, address or "threads"
        As in `rechunk`.
    resources : Resources
        ``workers``, ``missing`` and ``storage_options``.

    Returns
    -------
    numpy.ndarray or ReduceJob
        Sums of integers and durations have numpy's type, and an overflow is an error; means of integers are of sums in
        float64, as numpy's. Sums of floating-point numbers are float64, with rounding errors carried from box to box.
        The bits are the same for any memory, threads and workers. If nothing counts, the result is 0 for ``"sum"`` and
        ``"count"``, else NaN (extremes of integers are float64 if ``where`` leaves nothing for some element of the
        result), and NaT for times. With a target, the result is a job; ``.run()`` returns the written array, and
        `resume` continues a stopped run with its partial results.

    Raises
    ------
    InputError
        For an axis that does not exist, or labels or masks that do not fit; `BudgetError` if not one box of chunks
        fits; `UnsupportedError` for elements without such a reduction.
    KernelError
        If a function of ``how`` fails; `RunError` if a sum overflows its type.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> a = zarr.create_array({}, data=np.arange(12.0).reshape(4, 3), chunks=(2, 3))
    >>> reduce(a, "mean", axis=0)
    array([4.5, 5.5, 6.5])
    >>> reduce(a, "max", axis=0, by=["wet", "dry", "wet", "dry"])
    array([[ 9., 10., 11.],
           [ 6.,  7.,  8.]])
    """
    means = means_of(resources, reduce, memory=memory, scheduler=scheduler)
    to = None if target is None else stored_as(target, reduce).store
    place = placer(means.storage_options, source, to)
    array = array_file.open_array(place(source))
    warn_of_packed(array, level=4)
    file = array_file.describe_source(array, missing_of(source, means.missing))
    asked = Asked.of(how, axis=axis, by=by, where=where, skipna=skipna)
    cluster = cluster_of(means.scheduler, means.workers)
    if to is None:
        return reduced(file, asked, means.memory, cluster=cluster)
    store = place(to)
    checked(check_target, array, store, overwrite=overwrite, resume=resume)
    left = (journaled(store) if resume and is_resumable(store) else None) or {}
    want, within = wanted(file, asked, box_bytes=left.get(BOX_BYTES)), resources_of(cluster, means.memory)
    spec = _target_of(want, array, store, overwrite=overwrite)
    plan = want.plan(within, spec.preview())
    content = _content(asked, want, plan, within)
    own = asked.functions
    job = _job(want, plan, spec, content, cluster).asked_for(_requested(file, spec, content, own))
    return job.again(resume, overwrite=overwrite, source=unnamed(source), kernel=list(own) or None, means=means)


def _requested(file: ArrayFile, spec: TargetSpec, content: Document, own: Sequence[Any]) -> Document:
    said = {name: content[CALL]["options"][name] for name in ("how", "axis", "by", "where", "skipna", "ddof")}
    read = [named(file.zarr.store_path)], [metadata_digest(file)]
    return requested("reduce", *read, [(spec.made, spec.count)], functions=own, **said)


def reduced(
    file: ArrayFile,
    asked: Asked,
    memory: int | float | str | None,
    decode: Decode | None = None,
    cluster: Cluster | None = None,
) -> np.ndarray:
    """Reduce an array file at once, see `reduce`; packed values are decoded first."""
    want, resources = wanted(file, asked, decode), resources_of(cluster, memory)
    dtype, plan = want.result, want.plan(resources, None)
    if cluster is None:
        made, run = reduced_here(plan, want, dtype)
        warn_of_missing(run.meter, file.presence.name)
    else:
        program = Reduction(plan=plan, reducer=want, dtype=dtype)
        made = ReduceJob(Run(program), itself, cluster).run()  # type: ignore[assignment]
    return np.asarray(made)[()]


def _job(
    want: Reducer, plan: ReducePlan, spec: TargetSpec, content: Document, cluster: Cluster | None,
    recovered: Recovered = NOTHING_LEFT,
) -> ReduceJob:  # fmt: skip
    program = Reduction(plan=plan, reducer=want, dtype=np.dtype(spec.settings["dtype"]), target=spec)
    return ReduceJob(Run(program, content, recovered), opener(array_at, spec.store), cluster)


def _target_of(want: Reducer, array: zarr.Array, store: StoreLike, *, overwrite: bool) -> TargetSpec:
    """Describe the target: in the format of the source and its compressors, with the names of its axes."""
    cut, dtype, names = want.cut, want.result, dimension_names(array)
    form: Any = array.metadata.zarr_format
    kept = [names[axis] for axis in cut.kept] if names else None
    if kept is not None and cut.groups:
        kept.insert(cut.axes[0], "group")
    named_axes: Any = {"dimension_names": kept} if form == 3 else {}
    labels = None if want.groups is None else want.groups.labels
    if labels is not None and labels.dtype.kind not in "biufU":  # JSON has no times, bytes and complex numbers
        labels = np.char.decode(labels, "latin-1") if labels.dtype.kind == "S" else labels.astype("U")
    groups: dict[str, Any] = {} if labels is None else {"groups": labels.tolist()}
    said = groups | ({"_ARRAY_DIMENSIONS": kept} if kept and form == 2 else {})
    compressors, _ = rebound(carried_compressors(array), array.dtype, dtype)
    like = zarr.create_array(
        {}, shape=cut.result_shape, chunks=tuple(max(n, 1) for n in cut.result_chunks), dtype=dtype, zarr_format=form,
        fill_value=np.nan if dtype.kind in "fc" else None, attributes=said,
        compressors=compressors_in(form, compressors, dtype.itemsize), **named_axes,
    )  # fmt: skip
    made = target_settings(like, tuple(like.chunks))
    return TargetSpec(store=store, settings=made | {"dtype": dtype}, overwrite=overwrite)


def _content(asked: Asked, want: Reducer, plan: ReducePlan, resources: PlanResources) -> Document:
    """Return the content of the journal: everything except the user's functions."""
    own = asked.functions
    groups, mask = want.groups, want.mask
    call = call_content(
        "reduce", [named(want.file.zarr.store_path)], functions=own, memory=resources.budget,
        processes=resources.workers, how=None if own else asked.how, axis=plan.cut.axes, skipna=bool(asked.skipna),
        ddof=asked.ddof, by=None if groups is None else groups.codes, where=None if mask is None else _as_text(mask),
        missing=want.file.presence.missing,
    )  # fmt: skip
    return call | {CUT: _cut_of(plan), BOX_BYTES: plan.cut.box_bytes}


def _cut_of(plan: ReducePlan) -> list[Any]:
    cut = plan.cut
    return [list(cut.lengths), list(cut.result_chunks), cut.segments]


def _as_text(mask: np.ndarray) -> Document:
    bits = base64.b64encode(zlib.compress(np.packbits(mask).tobytes())).decode()
    return {"shape": list(mask.shape), "bits": bits}


def _of_text(kept: Mapping[str, Any]) -> np.ndarray:
    bits = np.frombuffer(zlib.decompress(base64.b64decode(kept["bits"])), np.uint8)
    size = int(np.prod(kept["shape"]))
    return np.unpackbits(bits, count=size).reshape(kept["shape"]).astype(bool)


def resumed_reduction(
    left: Interrupted, functions: Sequence[Any], source: Any, cluster: Cluster | None, means: Resources
) -> ReduceJob:
    target, content, options = left.target, left.content, left.content[CALL]["options"]
    file = array_file.describe_source(
        array_file.open_array(getattr(source, "zarr", source)), missing_of(source, means.missing or options["missing"])
    )
    codes, mask = options["by"], options["where"]
    asked = Asked(
        how=options["how"] or tuple(functions), axis=options["axis"], by=None if codes is None else _labels(codes),
        where=None if mask is None else _of_text(mask), skipna=options["skipna"], ddof=options["ddof"],
    )  # fmt: skip
    want, written = wanted(file, asked, box_bytes=content.get(BOX_BYTES)), written_file(target)
    resources = resources_of(cluster, means.memory)
    plan = want.plan(resources, written.stored)
    if _cut_of(plan) != content[CUT]:
        raise JournalError(
            f"{target} was begun by a version that divides {file.name} differently: pass overwrite=True "
            "(--overwrite) to start over"
        )
    recovered = left.recorded([file.zarr]).recover(plan, {"": target})
    now = _content(asked, want, plan, resources) | left.begun_with if recovered.anew else content
    spec = TargetSpec(store=target, settings={"dtype": written.dtype})
    return _job(want, plan, spec, now, cluster, recovered)


def _labels(codes: Sequence[int]) -> np.ndarray:
    """Return labels for group numbers: NaN for elements that do not count."""
    found = np.asarray(codes, "f8")
    return np.where(found < 0, np.nan, found)
