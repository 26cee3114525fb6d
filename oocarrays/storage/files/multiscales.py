"""Multiscales: what a group says of its levels, one image in several resolutions, as OME-Zarr has it.

    image.zarr/  zarr.json        {"ome": {"version": "0.5", "multiscales": [{axes, datasets}]}}, of format 3
                 .zattrs          {"multiscales": [{"version": "0.4", axes, datasets}]}, of format 2
                 0/  1/  2/       levels, the finest first

An axis is of time, of channels, or in space; the order is that one, and two or three are in space.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oocarrays.errors import UnsupportedError
from oocarrays.mapping.coarsening import Coarsening
from oocarrays.plan.documents import Document

TYPES = {"t": "time", "time": "time", "c": "channel", "channel": "channel", "band": "channel"}
"""What axes of some names are; all others are in space."""
NAMES = {2: ("y", "x"), 3: ("z", "y", "x"), 4: ("c", "z", "y", "x"), 5: ("t", "c", "z", "y", "x")}
"""The names of axes of an array that has none, by their number."""
ORDER = ("time", "channel", "space")


def axis_names(names: Sequence[str | None] | None, ndim: int) -> tuple[str, ...]:
    """Return the names of an image's axes: its own, or the usual ones.

    >>> axis_names(None, 3), axis_names(("lat", "lon"), 2)
    (('z', 'y', 'x'), ('lat', 'lon'))

    Raises
    ------
    UnsupportedError
        Where they are no axes of an image.
    """
    found = NAMES.get(ndim) if names is None or None in names else tuple(names)
    types = [axis_type(str(name)) for name in found or ()]
    places = [ORDER.index(each) for each in types]
    if found is None or places != sorted(places) or len(set(found)) < ndim or types.count("space") not in (2, 3):
        raise UnsupportedError(
            f"axes {names}, {ndim} of them, are not those of an image in OME-Zarr: t, c, z, y, x in that order, of "
            "which t, c and z may lack"
        )
    if max(types.count("time"), types.count("channel")) > 1:
        raise UnsupportedError(f"axes {names}: OME-Zarr has one axis of time and one of channels at most")
    return tuple(map(str, found))


def axis_type(name: str) -> str:
    """Tell whether an axis is of time, of channels, or in space.

    >>> [axis_type(name) for name in ("T", "c", "lat")]
    ['time', 'channel', 'space']
    """
    return TYPES.get(name.lower(), "space")


def multiscales(
    names: Sequence[str], levels: Sequence[Coarsening], method: str, zarr_format: int, name: str
) -> Document:
    """Return the attributes of the group of an image.

    Parameters
    ----------
    names : sequence of str
        Of the axes.
    levels : sequence of Coarsening
        Elements of the finest level for each of every level, along each axis; the path of a level is its number.
    method : str
        How levels were made.
    name : str
        Of the image.
    """
    datasets = [
        {"path": str(number), "coordinateTransformations": _transformations(level, method)}
        for number, level in enumerate(levels)
    ]
    axes = [{"name": each, "type": axis_type(each)} for each in names]
    image: dict[str, Any] = {"name": name, "axes": axes, "datasets": datasets, "type": method}
    if zarr_format == 2:
        return {"multiscales": [{"version": "0.4", **image}]}
    return {"ome": {"version": "0.5", "multiscales": [image]}}


def _transformations(level: Coarsening, method: str) -> list[Document]:
    """Where the elements of a level are, in elements of the finest one: in the middle of what they stand for."""
    factors = [float(factor) for factor in level.factors if isinstance(factor, int)]
    scale = {"type": "scale", "scale": factors}
    if level.plain or method == "nearest":
        return [scale]
    return [scale, {"type": "translation", "translation": [(factor - 1) / 2 for factor in factors]}]
