"""Passes over slabs: a numpy function over arrays larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal, Unpack, overload

import numpy as np
import zarr
from distributed import Client

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.copying import WORTH, Copier, Copying
from oocarrays.arrays.local_array import LocalArrays
from oocarrays.errors import InputError
from oocarrays.graphs.slabs.kernel import Kernel
from oocarrays.jobs.job import OFTEN
from oocarrays.jobs.passes import SlabJob, arrays_of, opener
from oocarrays.jobs.stored import scratch_copy
from oocarrays.kernels.results import check_call
from oocarrays.mapping.given import flag
from oocarrays.mapping.grid import Stored, ceil_div
from oocarrays.mapping.layouts.halo import BoundaryLike
from oocarrays.options.asked import as_list, scratch_folder
from oocarrays.options.given import OneTarget, Resources, Target, means_of, stored_as, verb
from oocarrays.options.shapes import NAMES, Results, SeveralTargets, SlabKeywords
from oocarrays.options.slabs import SlabArrays, SlabRequest, own_depth, pass_options, slab_pass
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.options import DepthLike, SlabOptions, WindowLike
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.storage.files.places import StoreLike
from oocarrays.stored.array import placer

Global = OutOfCoreArray | zarr.Array[Any] | np.ndarray | StoreLike
Sources = Global | LocalArrays


@overload
def map_slabs(
    kernel: Kernel, source: Global | Sequence[Global], target: OneTarget, **keywords: Unpack[SlabKeywords]
) -> SlabJob[OutOfCoreArray]: ...
@overload
def map_slabs(
    kernel: Kernel, source: LocalArrays | Sequence[LocalArrays], target: OneTarget, **keywords: Unpack[SlabKeywords]
) -> SlabJob[LocalArrays]: ...
@overload
def map_slabs(
    kernel: Kernel, source: Global | Sequence[Global], target: SeveralTargets, **keywords: Unpack[SlabKeywords]
) -> SlabJob[list[OutOfCoreArray]]: ...
@overload
def map_slabs(
    kernel: Kernel,
    source: LocalArrays | Sequence[LocalArrays],
    target: SeveralTargets,
    **keywords: Unpack[SlabKeywords],
) -> SlabJob[list[LocalArrays]]: ...
@overload
def map_slabs(
    kernel: Kernel,
    source: Sources | Sequence[Sources],
    target: OneTarget | SeveralTargets,
    **keywords: Unpack[SlabKeywords],
) -> SlabJob[Any]: ...
@verb(
    target=(
        "dtype", "chunks", "compressors", "filters", "zarr_format", "fill_value", "attributes", "dimension_names",
        "folders",
    ),
    resources=("workers", "ranks", "prefetch", "reuse", "workspace"),
    old={
        "args": "functools.partial(kernel, name=…), by name,", "kwargs": "functools.partial(kernel, name=…)",
        "axis": "window={axis: 'auto'}", "height": "window=height, or window={axis: height}",
        **{name: f"results=oocarrays.Results({name}=…)" for name in (*NAMES, "verify")},
    },
)  # fmt: skip
def map_slabs(
    kernel: Kernel,
    source: Sources | Sequence[Sources],
    target: Target | StoreLike | Sequence[Target | StoreLike],
    *,
    depth: DepthLike | None = None,
    boundary: BoundaryLike = "none",
    window: WindowLike | int | None = None,
    results: Results | None = None,
    memory: int | float | str | None = None,
    overwrite: bool = False,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
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
        than ``depth``, such as a mean along it, needs a ``window`` that is whole in it. Further arguments are bound by
        ``functools.partial``, by name, which `resume` accepts, too. A kernel
        with a parameter ``block_info`` receives the position of its block: ``.section`` are the elements of the array
        to compute, ``.window`` these and the halo, ``.inside`` the position of the section in the block, and ``.shape``
        the shape of the array.
    source : OutOfCoreArray, zarr.Array, path, URL or store, or LocalArrays, or a list of them
        The arrays to read, of one shape. `LocalArrays` must have one layout in blocks: each rank reads its own file,
        and borders are exchanged in memory; halos in files are not read.
    target : path, URL, Zarr store or Target, or a list of them
        Location of the result, with the first source's shape, chunks, type, format, codecs, attributes and dimension
        names, unless a `Target` or ``results`` say otherwise. By default a target with other axes has the type of the
        kernel's result for a few zeros; a result that the type cannot hold is an error; numbers are rounded. If the
        sources are local array files, the targets are too: of the same layout, without halos.
    depth : int, sequence of int or mapping
        Neighbours that the kernel reads on each side: in all axes, in each, or in some by number or name, as
        ``{"time": 1}``, and none in others. By default the depth that a kernel of `oocarrays.kernels` needs, by itself
        or in a `functools.partial`, and none for any other kernel.
    boundary : str or number, or a mapping or sequence of them
        Values beyond the edges: ``"reflect"``, ``"nearest"``, ``"periodic"`` or a constant, as in Dask's
        ``map_overlap``; ``"none"`` adds nothing: a block ends where the array ends. Per axis as a mapping,
        ``{0: "periodic", 1: "nearest"}``, with ``"none"`` for axes not in it, or as a sequence of one for each axis.
    window : int, sequence or mapping
        Elements of a slab along each axis, halo not included, or along some by number or name; None or -1 is the whole
        axis, and ``"auto"``, of one axis, is chosen: ``{"time": "auto"}`` are slabs along time. A number is that of
        elements along the axis that the plan chooses. By default slabs are whole in all axes but one if they fit the
        memory, and else blocks, cut on chunks of the targets.
    results : Results
        Shapes of the results, if they differ from the blocks', and whether to verify the kernel's depth:
        ``Results(drop_axis="time")``.
    memory : int or str
        Budget of each process in bytes; by default as in `rechunk`.
    overwrite : bool
        Whether an existing target may be replaced.
    resume : bool or str
        As in `rechunk`: slab by slab. The kernel must have the same name and code. Slabs stay as they were cut; if
        memory is too little for them, they are cut anew, and written chunks stay.
    scheduler : Client, address or "threads"
        As in `rechunk`.
    resources : Resources
        ``ranks``, ``workers``, ``missing`` and ``storage_options``, and ``prefetch``, ``reuse`` and ``workspace`` of a
        pass. Ranks have a run of slabs each: by default as many as cores, or workers, and on threads one for kernels of
        `oocarrays.kernels`. Of local array files they are those of the layout, and files are read as they were opened.

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
    >>> job = map_slabs(lambda block: block.argmax(0), maps, zarr.storage.MemoryStore(), results=Results(drop_axis=0),
    ...                 memory="16MiB", scheduler="threads")
    >>> job.run()[...]
    array([1, 2, 0, 0])
    """
    check_call(kernel, len(as_list(source)))
    if not isinstance(results, Results | None):
        raise InputError(f"results={results!r} is not a Results: pass oocarrays.Results(drop_axis=0), for example")
    means = means_of(resources, map_slabs, memory=memory, scheduler=scheduler)
    targets = [stored_as(each, map_slabs) for each in as_list(target)]
    seen = own_depth(kernel) if depth is None else depth
    asked = pass_options(means, depth=seen, boundary=boundary, window=window)
    options = SlabOptions(reuse=means.reuse is None or flag(means.reuse, "reuse"), **asked)
    place = placer(means.storage_options, source, [each.store for each in targets])
    request = SlabRequest(
        kernel=kernel, options=options, means=means, overwrite=overwrite, resume=resume,
        results=Results() if results is None else results, targets=[replace(t, store=place(t.store)) for t in targets],
        single=not isinstance(target, list | tuple),
    )  # fmt: skip
    arrays = arrays_of(request, as_list(source), place, means.missing)
    written, copying = arrays.written, None

    def planned(options: SlabOptions) -> SlabPlan:
        nonlocal copying
        plan = plan_slabs(arrays.read, written, options)
        may_copy = options.shared and arrays.cluster is None and plan.times_decoded > OFTEN
        copying = _cheaper(arrays, plan, options, written) if may_copy else None
        return copying.planned if copying else plan

    run = slab_pass(arrays, planned)
    job = SlabJob(run, opener(arrays), arrays.cluster, arrays.disks, copying=copying)
    return job.again(resume, overwrite=overwrite)


def _cheaper(arrays: SlabArrays, plan: SlabPlan, options: SlabOptions, written: Sequence[Stored]) -> Copying | None:
    """Return copies of sources in scratch, if that takes less time."""

    def planned(stored: Sequence[Stored], budget: int) -> SlabPlan:
        return plan_slabs(stored, written, replace(options, budget=budget))

    place = scratch_folder(None, arrays.request.stores[0])
    copier = Copier(files=arrays.sources, planned=planned, copy=scratch_copy, place=place)
    return copier.cheapest(_chunkings(plan), plan.budget, WORTH * plan.pass_seconds)


def _chunkings(plan: SlabPlan) -> Iterator[dict[int, tuple[int, ...]]]:
    """Yield chunks as long as slabs, and halves and quarters of them along the axes in which these are cut."""
    often = [number for number, times in enumerate(plan.decodings) if times > OFTEN]
    for part in (1, 2, 4):
        chunks = [ceil_div(n, part) if axis in plan.cut_axes else n for axis, n in enumerate(plan.heights)]
        yield dict.fromkeys(often, tuple(max(n, 1) for n in chunks))
