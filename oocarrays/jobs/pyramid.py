"""Pyramids: an image in several resolutions, written while it is read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import zarr

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.groups import OutOfCoreGroup, open_group
from oocarrays.errors import InputError, UnsupportedError
from oocarrays.graphs.slabs.pyramid import PyramidRun
from oocarrays.graphs.slabs.tasks import SlabFiles
from oocarrays.jobs.slabs import SlabJob
from oocarrays.kernels.levels import METHODS, WORKSPACE, Levels
from oocarrays.mapping.coarsening import Coarsening
from oocarrays.mapping.given import chosen, whole
from oocarrays.mapping.grid import ceil_div
from oocarrays.options.chunks import ChunksLike
from oocarrays.options.factors import FactorLike, factors_of
from oocarrays.options.shapes import coarsened
from oocarrays.options.slabs import SlabArrays, SlabRequest, chunks_of, planned_pass
from oocarrays.plan.documents import Document
from oocarrays.plan.files.multiscales import axis_names, axis_type, multiscales
from oocarrays.plan.slabs.coarser import gathered
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.show.report import shape_text
from oocarrays.storage.files import array_file
from oocarrays.storage.files.formats import dimension_names, target_settings
from oocarrays.storage.files.group_file import check_group_target, member_store
from oocarrays.storage.files.places import StoreLike, name_of
from oocarrays.storage.files.target import TargetSpec
from oocarrays.stored.array import missing_of, placer

if TYPE_CHECKING:
    from distributed import Client


MOST_LEVELS = 64
"""Levels of a pyramid, at most: an axis has fewer than 2**63 elements."""


class PyramidJob(SlabJob[OutOfCoreGroup]):
    """A pyramid that has been planned: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    def _shapes(self) -> list[tuple[str, str]]:
        return []

    def _rows(self) -> list[tuple[str, str]]:
        plan, later = self.plan, gathered(self.plan)
        shapes = [shape_text(target.grid.shape) for target in plan.targets]
        kept = f"from level {later[0]} on kept in memory, and written at the end" if later else "all slab by slab"
        return [("levels", ", ".join(shapes)), ("written", kept), *super()._rows()]


def pyramid(
    source: OutOfCoreArray | zarr.Array | np.ndarray | StoreLike,
    target: StoreLike,
    *,
    levels: int | None = None,
    factor: FactorLike = 2,
    method: Literal["mean", "median", "nearest", "mode"] = "mean",
    chunks: ChunksLike | None = None,
    memory: int | float | str | None = None,
    ranks: int | None = None,
    overwrite: bool = False,
    resume: bool | Literal["verify", "as-is"] = False,
    missing: Literal["fill", "warn", "error"] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> PyramidJob:
    """Plan to write an image in several resolutions, as an OME-Zarr multiscale group. Reads no data.

    The source is read once; each level is made in memory of the one below, and each chunk of each level written once.

    Parameters
    ----------
    source : OutOfCoreArray, zarr.Array, path, URL or store
        The image: two or three axes in space, before them channels, before these time. Axes that have no names are
        taken for t, c, z, y, x, from the last one on.
    target : path, URL or Zarr store
        Where the group is to be: level 0 is the image itself, in array ``"0"``. Levels have the source's format, dtype,
        codecs, attributes and dimension names. The group is OME-Zarr 0.5, of format 2 0.4.
    levels : int
        How many, the image among them; by default until the coarsest is one chunk along each axis that gets coarser.
    factor : int, sequence of int, or mapping of names or numbers of axes
        Elements along an axis that one of the next level stands for. A number is of all axes in space; axes that a
        mapping leaves out stay as they are. The last element along an axis stands for what is left.
    method : str
        How one element is made of several: ``"mean"``, of integers rounded to the nearest one, halves up;
        ``"median"``; ``"nearest"``, the first of them; ``"mode"``, the one that is there most often, as for labels.
    chunks : int, str, tuple or dict
        Of the levels, as in `rechunk`; by default those of the source.
    memory : int or str
        Bytes that each process may hold; by default as in `rechunk`.
    ranks, overwrite
        As in `map_slabs`; what is replaced is a group.
    resume, missing, storage_options, scheduler, workers
        As in `rechunk`.

    Raises
    ------
    InputError
        For anything that cannot be; `BudgetError` where memory is too little: it names the least that would do;
        `UnsupportedError` for axes that are not those of an image, or elements that have no mean.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> image = zarr.create_array({}, data=np.arange(35, dtype="u1").reshape(5, 7), chunks=(2, 2))
    >>> job = pyramid(image, zarr.storage.MemoryStore(), levels=3, memory="32MiB", scheduler="threads")
    >>> levels = job.run()
    >>> levels["1"][...]
    array([[ 4,  6,  8, 10],
           [18, 20, 22, 24],
           [29, 31, 33, 34]], dtype=uint8)
    >>> levels.attrs["ome"]["multiscales"][0]["datasets"][2]["coordinateTransformations"][0]
    {'type': 'scale', 'scale': [4.0, 4.0]}
    """
    place = placer(storage_options)
    array, group = array_file.open_array(place(source)), place(target)
    chosen(method, "method", METHODS)
    _check_elements(array, method)
    names = axis_names(dimension_names(array), array.ndim)
    space = [axis for axis, name in enumerate(names) if axis_type(name) == "space"]
    factors, lengths = factors_of(factor, array.ndim, names, space), chunks_of(array, chunks)
    factors = tuple(whole(each, "factor", 1) for each in Coarsening.of(factors, array.shape).factors)
    count = _count(array.shape, lengths, factors) if levels is None else whole(levels, "levels", 1)
    if count > MOST_LEVELS:
        raise InputError(f"levels={levels!r}: at most {MOST_LEVELS}; any array is a single element before that")
    plain = Coarsening((1,) * array.ndim)
    coarser = tuple(accumulate([factors] * (count - 1), Coarsening.then, initial=plain))
    request = SlabRequest(
        kernel=Levels(count, factors, method), options=SlabOptions(coarser=coarser, workspace=WORKSPACE, ranks=ranks),
        memory=memory, overwrite=overwrite, resume=resume, scheduler=scheduler, workers=workers,
    )  # fmt: skip
    request.check(check_group_target, array, group)
    file = array_file.describe_source(array, missing_of(source, missing))
    made = _settings(array, lengths, names)
    targets = [
        TargetSpec(store=member_store(group, str(n)), settings=coarsened(made, each)) for n, each in enumerate(coarser)
    ]
    known = SlabArrays(
        shape=array.shape, dtypes=[array.dtype], sources=[file], targets=targets, group=group, by="pyramid",
        said={"levels": count, "factor": factors, "method": method}, own_kernel=False,
        more={"missing": missing_of(source, missing)},
    )  # fmt: skip
    cluster, resources = request.resources()
    found = planned_pass(request, known, resources, partial(plan_slabs, [file.stored], [t.preview() for t in targets]))
    files = SlabFiles(sources=[file], targets=targets, group=TargetSpec(store=group, overwrite=overwrite))
    run = found.run(PyramidRun, request.kernel, files)
    run.says = multiscales(names, coarser, method, made["zarr_format"], PurePath(name_of(group)).stem)
    return PyramidJob(run, lambda _: open_group(group), cluster).again(resume, overwrite=overwrite)


def _check_elements(array: zarr.Array, method: str) -> None:
    kinds = {"mean": "biufc", "median": "biuf"}.get(method, "biufcmMSU")
    if array.dtype.kind not in kinds:
        raise UnsupportedError(f"elements of dtype {array.dtype} have no {method}")


def _count(shape: Sequence[int], chunks: Sequence[int], factors: Sequence[int]) -> int:
    """Count levels until the last one is one chunk along each axis that gets coarser.

    >>> _count((1000, 1000), (100, 400), (2, 2)), _count((10, 10), (20, 20), (2, 2)), _count((90, 5), (9, 1), (2, 1))
    (5, 1, 5)
    """
    count, extents = 1, list(shape)
    while any(n > chunk for n, chunk, factor in zip(extents, chunks, factors, strict=True) if factor > 1):
        extents = [ceil_div(n, factor) for n, factor in zip(extents, factors, strict=True)]
        count += 1
    return count


def _settings(array: zarr.Array, chunks: tuple[int, ...], names: Sequence[str]) -> Document:
    """Arguments of ``zarr.create_array`` for all levels: axes have names, and chunks lie as OME-Zarr asks for."""
    made = target_settings(array, chunks) | {"dtype": array.dtype}
    if made["zarr_format"] == 2:
        return made | {"chunk_key_encoding": {"name": "v2", "separator": "/"}}
    return made | {"dimension_names": names}
