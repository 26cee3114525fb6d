"""Pyramids: an image in several resolutions, written while it is read once.

Axes, distances and channels are those that its source states:

    OME-Zarr    multiscales of the group above the array, and its omero
    TIFF        OME-XML, ImageJ's description and resolution tags: see `oocarrays.storage.foreign.tiff`
    CF          units and evenly spaced values of a coordinate beside the array
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, islice
from pathlib import PurePath
from typing import Any, Literal, cast

import numpy as np
import zarr
from distributed import Client
from zarr.storage import StorePath

from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.groups import OutOfCoreGroup, open_group
from oocarrays.errors import InputError, NotFoundError, OocError, UnsupportedError
from oocarrays.jobs.passes import SlabJob
from oocarrays.kernels.levels import METHODS, WORKSPACE, Levels
from oocarrays.mapping.coarsening import Coarsening
from oocarrays.mapping.given import chosen, whole
from oocarrays.mapping.grid import ChunkGrid, turned
from oocarrays.options.asked import FactorLike, ScaleLike, UnitLike, factors_of, scaled
from oocarrays.options.chunks import ChunksLike, regular_chunks
from oocarrays.options.given import Resources, Target, means_of, stored_as, verb
from oocarrays.options.shapes import coarsened
from oocarrays.options.slabs import SlabArrays, SlabRequest, slab_pass
from oocarrays.plan.documents import Document
from oocarrays.plan.files.multiscales import (
    ImageAxis,
    finest_path,
    image_axes,
    is_enough,
    isotropic,
    multiscales,
    ome_order,
    stated_axes,
    unit_name,
)
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.storage.files import array_file, group_file
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.files.documents import holds_group
from oocarrays.storage.files.formats import DIMENSIONS, dimension_names, target_settings, with_axes
from oocarrays.storage.files.group_file import check_group_target
from oocarrays.storage.files.places import StoreLike, local_folder, location, member_store, name_of
from oocarrays.storage.files.target import GroupTarget
from oocarrays.storage.stores.joined import foreign_at
from oocarrays.storage.stores.remote import RemoteStore
from oocarrays.stored.array import missing_of, placer

MOST_LEVELS = 64
"""Maximum number of levels: an axis has fewer than 2**63 elements."""


class PyramidJob(SlabJob[OutOfCoreGroup]):
    """Planned pyramid: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""


@verb(target=("chunks",), resources=("workers", "ranks"))
def pyramid(
    source: OutOfCoreArray | OutOfCoreGroup | zarr.Array[Any] | zarr.Group | np.ndarray | StoreLike,
    target: Target | StoreLike,
    *,
    levels: int | None = None,
    factor: FactorLike = 2,
    method: Literal["mean", "median", "nearest", "mode"] = "mean",
    scale: ScaleLike | None = None,
    unit: UnitLike | None = None,
    memory: int | float | str | None = None,
    overwrite: bool = False,
    resume: bool | Literal["verify", "as-is"] = False,
    scheduler: Client | str | None = None,
    resources: Resources | None = None,
) -> PyramidJob:
    """Plan to write an image in several resolutions, as an OME-Zarr multiscale group. Reads no data of the image.

    The source is read once. Each level is computed in memory from the one below, and each of its chunks is written
    once.

    Parameters
    ----------
    source : OutOfCoreArray, OutOfCoreGroup, zarr.Array, zarr.Group, path, URL or store
        The image: two or three axes in space, and at most one of time, one of channels or samples, and one other. Types
        are those of the source's OME-Zarr metadata, or follow from the names. Unnamed axes are taken as t, c, z, y, x,
        from the last one on. Of an OME-Zarr group, its level of full resolution is read; axes, scale, units and
        channels (``omero``) are carried over, other levels and labels are not.
    target : path, URL, Zarr store or Target
        Location of the group: level 0 is the image itself, in array ``"0"``. Levels have the source's format, dtype,
        codecs, attributes and dimension names, and its chunks unless a `Target` states others. The group is OME-Zarr
        0.5, or 0.4 in Zarr format 2. Axes are in its order: time, channels or samples, others, space. Sequences in
        other parameters are in this order.
    levels : int
        Number of levels, including the image; by default until no axis that gets coarser has more than 256 elements.
    factor : int, sequence of int, or mapping of names or numbers of axes
        Elements along an axis that are merged into one of the next level. A number applies to the axes in space; an
        axis with a larger scale than the others keeps its extent until elements are about isotropic. A sequence or a
        mapping applies to each level; axes that a mapping leaves out stay as they are. The last element along an axis
        merges the remainder.
    scale : float, sequence of float, or mapping of names or numbers of axes
        Distance of two elements of the image, in ``unit``; a number applies to all axes in space. By default that of
        the source: OME-Zarr, OME-TIFF, ImageJ, resolution tags of TIFF, or evenly spaced CF coordinates beside it; else
        1.
    unit : str, sequence of str, or mapping of names or numbers of axes
        Unit of ``scale``, as ``"micrometer"`` or ``"µm"``; a text applies to all axes in space. By default that of the
        source.
    method : str
        How elements are merged: ``"mean"``, of integers rounded to the nearest one, halves up; ``"median"``;
        ``"nearest"``, the first of them; ``"mode"``, the most frequent one, as for labels.
    memory : int or str
        Budget of each process in bytes; by default as in `rechunk`.
    overwrite : bool
        Whether an existing group may be replaced.
    resume, scheduler
        As in `rechunk`.
    resources : Resources
        ``ranks`` as in `map_slabs`, ``workers``, ``missing`` and ``storage_options``.

    Raises
    ------
    InputError
        For invalid arguments; `BudgetError` if memory is too little: the error states the minimum; `UnsupportedError`
        for axes that are not those of an image, or elements that have no mean.

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
    means, to = means_of(resources, pyramid, memory=memory, scheduler=scheduler), stored_as(target, pyramid)
    place = placer(means.storage_options, source, to.store)
    array, group = source_image(source, place), place(to.store)
    chosen(method, "method", METHODS)
    kinds = {"mean": "biufc", "median": "biuf"}.get(method, "biufcmMSU")
    if array.dtype.kind not in kinds:
        raise UnsupportedError(f"elements of dtype {array.dtype} have no {method}")
    stated, omero = stated_image(array, place)
    order = ome_order(stated)
    axes, shape = scaled(turned(stated, order), scale, unit), turned(array.shape, order)
    moved = order if sorted(order) != list(order) else ()
    factors = _factors(factor, levels, axes, shape)
    steps = _steps(axes, shape, factors, levels, even=isinstance(factor, int))
    finest = Coarsening((1,) * array.ndim)
    coarser = tuple(accumulate(steps, Coarsening.then, initial=finest))
    request = SlabRequest(
        kernel=Levels(steps, method, moved), options=SlabOptions(
            coarser=tuple(replace(each, axes=moved) for each in coarser), workspace=WORKSPACE, ranks=means.ranks
        ),
        targets=(), means=means, overwrite=overwrite, resume=resume,
    )  # fmt: skip
    request.check(check_group_target, array, group)
    cluster, within = request.resources()
    file = array_file.describe_source(array, missing_of(source, means.missing))
    made = _settings(array, axes, order, to.chunks)
    targets = [
        TargetSpec(store=member_store(group, str(n)), settings=coarsened(made, each)) for n, each in enumerate(coarser)
    ]
    said = multiscales(axes, coarser, method, made["zarr_format"], PurePath(name_of(group)).stem, omero)
    arrays = SlabArrays(
        request=request, cluster=cluster, resources=within, dtypes=[array.dtype], files=[file],
        read=[file.stored], sources=[file], targets=targets,
        group=GroupTarget(store=group, overwrite=overwrite, members=tuple(targets), attributes=said),
        said=_said(axes, factor, factors, method, len(coarser)),
        more={"missing": missing_of(source, means.missing)},
    )  # fmt: skip
    run = slab_pass(arrays, partial(plan_slabs, arrays.read, arrays.written))
    return PyramidJob(run, lambda _: open_group(group), cluster).again(resume, overwrite=overwrite)


def source_image(source: Any, place: Callable[[Any], Any]) -> zarr.Array[Any]:
    return open_image(place(source.zarr if isinstance(source, OutOfCoreGroup) else source), place)


def _settings(
    array: zarr.Array, axes: Sequence[ImageAxis], order: tuple[int, ...], chunks: ChunksLike | None
) -> Document:
    """Return the arguments of ``zarr.create_array`` for all levels: named axes, and chunks in OME-Zarr's order."""
    names, shape, own = tuple(axis.name for axis in axes), turned(array.shape, order), turned(array.chunks, order)
    lengths = own if chunks is None else regular_chunks(chunks, ChunkGrid.of(shape, own), array.dtype, names)
    made = target_settings(array, tuple(array.chunks)) | {"dtype": array.dtype}
    made = made if sorted(order) == list(order) else with_axes(made, order)
    made |= {"shape": shape, "chunks": lengths}
    if made["zarr_format"] == 2:
        named = {DIMENSIONS: list(names)} if DIMENSIONS in made["attributes"] else {}
        layout = {"name": "v2", "separator": "/"}
        return made | {"attributes": made["attributes"] | named, "chunk_key_encoding": layout}
    return made | {"dimension_names": names}


def _factors(
    factor: FactorLike, levels: int | None, axes: Sequence[ImageAxis], shape: Sequence[int]
) -> tuple[int, ...]:
    space = [axis for axis, each in enumerate(axes) if each.type == "space"]
    asked = factors_of(factor, len(axes), [axis.name for axis in axes], space)
    factors = tuple(whole(each, "factor", 1) for each in Coarsening.of(asked, shape).factors)
    if max(factors) == 1 and levels != 1:
        raise InputError(f"factor={factor!r} merges nothing: it must be at least 2 along an axis, unless levels=1")
    return factors


def _steps(
    axes: Sequence[ImageAxis], shape: Sequence[int], factors: tuple[int, ...], levels: int | None, *, even: bool
) -> tuple[tuple[int, ...], ...]:
    count = MOST_LEVELS if levels is None else whole(levels, "levels", 1)
    if count > MOST_LEVELS:
        raise InputError(f"levels={levels!r}: at most {MOST_LEVELS}; any array is a single element before that")
    level, steps = Coarsening((1,) * len(shape)), list[tuple[int, ...]]()
    while len(steps) < count - 1:
        step = isotropic(axes, shape, factors, level) if even else factors
        if levels is None and is_enough(shape, level, step):
            break
        steps.append(step)
        level = level.then(step)
    return tuple(steps)


def _said(axes: Sequence[ImageAxis], factor: FactorLike, factors: tuple[int, ...], method: str, count: int) -> Document:
    """Return the arguments that a resumed call must repeat."""
    scale = [axis.scale if axis.known else None for axis in axes]
    same = factor if isinstance(factor, int) else factors
    return {"levels": count, "factor": same, "method": method, "scale": scale, "unit": [axis.unit for axis in axes]}


def open_image(source: Any, place: Callable[[Any], Any]) -> zarr.Array[Any]:
    """Open an array, or the level of full resolution of an OME-Zarr group."""
    if not holds_group(source):
        return array_file.open_array(source)
    group = group_file.open_group(source)
    found, name = _multiscales(group), location(group)
    if not found:
        raise NotFoundError(f"{name} is a Zarr group without multiscales of OME-Zarr: name an image or an array in it")
    if len(found) > 1:
        paths = ", ".join(str(finest_path(each)) for each in found)
        raise UnsupportedError(f"{name} holds {len(found)} images (multiscales): name the array of one: {paths}")
    path = finest_path(found[0])
    if path is None:
        raise UnsupportedError(f"{name} has multiscales of OME-Zarr whose datasets name no array")
    return array_file.open_array(place(group.store_path / path))


def stated_image(array: zarr.Array, place: Callable[[Any], Any]) -> tuple[tuple[ImageAxis, ...], Document | None]:
    """Return the axes of an image and its channels as viewers show them, as its source states them."""
    above = list(islice(_groups_above(array, place), 2))
    for group, path in above:
        for each in _multiscales(group):
            stated = stated_axes(each, path, array.ndim)
            if stated is not None:
                omero = _ome(group).get("omero")
                return stated, dict(omero) if isinstance(omero, Mapping) else None
    names, foreign = dimension_names(array), foreign_at(array.store_path)
    axes = image_axes(names, array.ndim)
    facts = foreign and foreign[0].facts(foreign[1])
    scales = facts.scales if facts else {}
    if scales or not above or names is None:
        return tuple(axis.measured(*scales.get(axis.name, ())) for axis in axes), None
    beside = [above[0][0].get(str(name)) for name in names]
    return tuple(map(_by_coordinate, axes, beside, array.shape)), None


def _groups_above(array: zarr.Array, place: Callable[[Any], Any]) -> Iterator[tuple[zarr.Group, str]]:
    """Yield the groups above an array, the nearest first, with the path of the array in each."""
    store, path = array.store_path.store, array.store_path.path
    folder = local_folder(array.store_path)
    before, last, up = "", -1, cast("Callable[[Any], Any]", partial(StorePath, store))
    if folder is not None:
        before, path, up = "/", folder, str
    elif not path and isinstance(store, RemoteStore) and not foreign_at(array.store_path):
        scheme, colon, path = store.name.partition("://")
        before, last, up = scheme + colon, 0, place
    parts = path.strip("/").split("/")
    for count in range(len(parts) - 1, last, -1):
        try:
            group = zarr.open_group(up(before + "/".join(parts[:count])), mode="r")
        except (OSError, ValueError, OocError):
            return
        yield group, "/".join(parts[count:])


def _multiscales(group: zarr.Group) -> list[Mapping[str, Any]]:
    found = _ome(group).get("multiscales")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _ome(group: zarr.Group) -> Mapping[str, Any]:
    """Return the OME-Zarr metadata of a group: of version 0.5, or of 0.4 and before."""
    ome = group.attrs.get("ome")
    return ome if isinstance(ome, Mapping) else group.attrs


def _by_coordinate(axis: ImageAxis, coordinate: Any, length: int) -> ImageAxis:
    """Return an axis measured by a coordinate, if its values are numbers that grow evenly."""
    if not isinstance(coordinate, zarr.Array) or coordinate.shape != (length,) or not 1 < length <= 2**16:
        return axis
    attributes = coordinate.attrs.asdict()
    if coordinate.dtype.kind not in "iuf" or {"scale_factor", "add_offset"} & attributes.keys():
        return axis
    values = np.asarray(coordinate[...], "f8")
    steps = np.diff(values)
    step = float(values[-1] - values[0]) / (length - 1)
    if not (step > 0 and np.all(np.abs(steps - step) <= 1e-3 * step)):
        return axis
    unit, since, _ = str(attributes.get("units", "")).partition(" since ")
    return axis.measured(step, unit_name(unit) or None, None if since else float(values[0]))
