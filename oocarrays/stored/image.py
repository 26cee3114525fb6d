"""Axes of an image: names and types, distances of elements and their units, as the source states them.

OME-Zarr    multiscales of the group above the array
TIFF        OME-XML, ImageJ's description and resolution tags: see `oocarrays.storage.foreign.tiff`
CF          units and evenly spaced values of a coordinate beside the array
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, cast

import numpy as np
import zarr
from zarr.storage import StorePath

from oocarrays.errors import OocError
from oocarrays.plan.files.multiscales import ImageAxis, image_axes, stated_axes
from oocarrays.plan.files.units import unit_name
from oocarrays.storage.files.formats import dimension_names
from oocarrays.storage.files.places import local_folder
from oocarrays.storage.foreign.store import foreign_in
from oocarrays.storage.stores.remote import RemoteStore

COORDINATES = 2**16
"""Elements of a coordinate up to which it is read."""
EVEN = 1e-3
"""Difference of two steps of a coordinate that is evenly spaced, as a part of a step."""


def axes_of_image(array: zarr.Array, place: Callable[[Any], Any]) -> tuple[ImageAxis, ...]:
    """Return the axes of an image in the order of the array, with what the source states of them.

    Parameters
    ----------
    place : callable
        Makes a store of a URL, as `oocarrays.stored.array.placer` returns it.

    Raises
    ------
    UnsupportedError
        Where they cannot be axes of an OME-Zarr image.
    """
    above = list(islice(_groups_above(array, place), 2))
    for group, path in above:
        for each in _multiscales(group):
            stated = stated_axes(each, path, array.ndim)
            if stated is not None:
                return stated
    names, foreign = dimension_names(array), foreign_in(array.store_path.store)
    axes = image_axes(names, array.ndim)
    facts = foreign and foreign.facts(array.store_path.path)
    scales = facts.scales if facts else {}
    if scales or not above or names is None:
        return tuple(axis.measured(*scales.get(axis.name, ())) for axis in axes)
    beside = [above[0][0].get(str(name)) for name in names]
    return tuple(map(_by_coordinate, axes, beside, array.shape))


def _groups_above(array: zarr.Array, place: Callable[[Any], Any]) -> Iterator[tuple[zarr.Group, str]]:
    """Yield the groups above an array, the nearest first, and the path of the array in each."""
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
    """Return the multiscales of a group, by OME-Zarr 0.5 or 0.4."""
    ome = group.attrs.get("ome")
    found = ome.get("multiscales") if isinstance(ome, Mapping) else group.attrs.get("multiscales")
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def _by_coordinate(axis: ImageAxis, coordinate: Any, length: int) -> ImageAxis:
    """Return an axis measured by a coordinate, if its values are numbers that grow evenly."""
    if not isinstance(coordinate, zarr.Array) or coordinate.shape != (length,) or not 1 < length <= COORDINATES:
        return axis
    attributes = coordinate.attrs.asdict()
    if coordinate.dtype.kind not in "iuf" or {"scale_factor", "add_offset"} & attributes.keys():
        return axis
    values = np.asarray(coordinate[...], "f8")
    steps = np.diff(values)
    step = float(values[-1] - values[0]) / (length - 1)
    if not (step > 0 and np.all(np.abs(steps - step) <= EVEN * step)):
        return axis
    unit, since, _ = str(attributes.get("units", "")).partition(" since ")
    return axis.measured(step, unit_name(unit) or None, None if since else float(values[0]))
