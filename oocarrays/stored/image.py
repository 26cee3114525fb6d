"""Images as sources: the level of full resolution of an OME-Zarr group; axes, distances and channels as stated.

OME-Zarr    multiscales of the group above the array, and its omero
TIFF        OME-XML, ImageJ's description and resolution tags: see `oocarrays.storage.foreign.tiff`
CF          units and evenly spaced values of a coordinate beside the array
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, cast

import numpy as np
import zarr
from zarr.storage import StorePath

from oocarrays.errors import NotFoundError, OocError, UnsupportedError
from oocarrays.plan.documents import Document
from oocarrays.plan.files.multiscales import ImageAxis, finest_path, image_axes, stated_axes, unit_name
from oocarrays.storage.files.array_file import open_array
from oocarrays.storage.files.formats import dimension_names
from oocarrays.storage.files.group_file import group_location, holds_group, open_group
from oocarrays.storage.files.places import local_folder
from oocarrays.storage.foreign.store import foreign_in
from oocarrays.storage.stores.remote import RemoteStore


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedImage:
    """Metadata of an image, as its source states them."""

    axes: tuple[ImageAxis, ...]
    """Axes in the order of the array."""
    omero: Document | None = None
    """Channels as viewers show them, or None."""


def open_image(source: Any, place: Callable[[Any], Any]) -> zarr.Array:
    """Open an array, or the level of full resolution of an OME-Zarr group."""
    if not holds_group(source):
        return open_array(source)
    group = open_group(source)
    found, name = _multiscales(group), group_location(group)
    if not found:
        raise NotFoundError(f"{name} is a Zarr group without multiscales of OME-Zarr: name an image or an array in it")
    if len(found) > 1:
        paths = ", ".join(str(finest_path(each)) for each in found)
        raise UnsupportedError(f"{name} holds {len(found)} images (multiscales): name the array of one: {paths}")
    path = finest_path(found[0])
    if path is None:
        raise UnsupportedError(f"{name} has multiscales of OME-Zarr whose datasets name no array")
    return open_array(place(group.store_path / path))


def stated_image(array: zarr.Array, place: Callable[[Any], Any]) -> StatedImage:
    above = list(islice(_groups_above(array, place), 2))
    for group, path in above:
        for each in _multiscales(group):
            stated = stated_axes(each, path, array.ndim)
            if stated is not None:
                omero = _ome(group).get("omero")
                return StatedImage(axes=stated, omero=dict(omero) if isinstance(omero, Mapping) else None)
    names, foreign = dimension_names(array), foreign_in(array.store_path.store)
    axes = image_axes(names, array.ndim)
    facts = foreign and foreign.facts(array.store_path.path)
    scales = facts.scales if facts else {}
    if scales or not above or names is None:
        return StatedImage(axes=tuple(axis.measured(*scales.get(axis.name, ())) for axis in axes))
    beside = [above[0][0].get(str(name)) for name in names]
    return StatedImage(axes=tuple(map(_by_coordinate, axes, beside, array.shape)))


def _groups_above(array: zarr.Array, place: Callable[[Any], Any]) -> Iterator[tuple[zarr.Group, str]]:
    """Yield the groups above an array, the nearest first, with the path of the array in each."""
    store, path = array.store_path.store, array.store_path.path
    folder = local_folder(store, path)
    before, last, up = "", -1, cast("Callable[[Any], Any]", partial(StorePath, store))
    if folder is not None:
        before, path, up = "/", folder, str
    elif not path and isinstance(store, RemoteStore) and foreign_in(store) is None:
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
