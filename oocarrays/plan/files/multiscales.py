"""Multiscales: the metadata of an image in several resolutions, as OME-Zarr defines them.

    image.zarr/  zarr.json        {"ome": {"version": "0.5", "multiscales": [{axes, datasets}]}}, of format 3
                 .zattrs          {"multiscales": [{"version": "0.4", axes, datasets}]}, of format 2
                 0/  1/  2/       levels, the finest first

Axes are of type time, channel, other or space, in this order. OME-Zarr requires two or three axes in space.

    µm, um, micron, micrometres   ─► micrometer   1e-6 m
    s, sec, seconds               ─► second       1 s
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from oocarrays.errors import UnsupportedError
from oocarrays.mapping.coarsening import Coarsening
from oocarrays.mapping.grid import ceil_div
from oocarrays.plan.documents import Document

PREFIXES = {
    "yotta": ("Y", 24), "zetta": ("Z", 21), "exa": ("E", 18), "peta": ("P", 15), "tera": ("T", 12), "giga": ("G", 9),
    "mega": ("M", 6), "kilo": ("k", 3), "hecto": ("h", 2), "": ("", 0), "deci": ("d", -1), "centi": ("c", -2),
    "milli": ("m", -3), "micro": ("u", -6), "nano": ("n", -9), "pico": ("p", -12), "femto": ("f", -15),
    "atto": ("a", -18), "zepto": ("z", -21), "yocto": ("y", -24),
}  # fmt: skip
"""Symbols and powers of ten of SI prefixes."""
LENGTHS = {f"{prefix}meter": 10.0**power for prefix, (_, power) in PREFIXES.items()} | {
    "angstrom": 1e-10, "inch": 0.0254, "foot": 0.3048, "yard": 0.9144, "mile": 1609.344,
    "parsec": 3.0856775814913673e16,
}  # fmt: skip
"""Metres of each unit of length."""
TIMES = {f"{prefix}second": 10.0**power for prefix, (_, power) in PREFIXES.items()} | {
    "minute": 60.0, "hour": 3600.0, "day": 86400.0,
}  # fmt: skip
"""Seconds of each unit of time."""
SYMBOLS = {
    **{f"{symbol}m": f"{prefix}meter" for prefix, (symbol, _) in PREFIXES.items()},
    **{f"{symbol}s": f"{prefix}second" for prefix, (symbol, _) in PREFIXES.items()},
    "micron": "micrometer", "Å": "angstrom", "in": "inch", "inches": "inch", '"': "inch", "ft": "foot", "feet": "foot",
    "yd": "yard", "mi": "mile", "pc": "parsec", "sec": "second", "min": "minute", "h": "hour", "hr": "hour", "d": "day",
}  # fmt: skip
"""OME-Zarr names of symbols and of other names."""
TYPES = {
    "t": "time", "time": "time", "c": "channel", "s": "channel", "channel": "channel", "channels": "channel",
    "band": "channel", "sample": "channel", "samples": "channel", "rgb": "channel",
}  # fmt: skip
"""Axis types by name."""
ORDER = ("time", "channel", "other", "space")
"""Axis types in the order that OME-Zarr requires; an axis of type "other" is written without a type."""


def unit_name(text: str) -> str:
    """Return the OME-Zarr name of a unit, or the text unchanged if OME-Zarr has none."""
    text = text.strip().replace("\\u00B5", "u").replace("\u00b5", "u").replace("\u03bc", "u").replace("\u212b", "Å")
    lower = text.lower().replace("metre", "meter")
    for each in (text, lower, lower.removesuffix("s")):
        found = SYMBOLS.get(each, each)
        if found in LENGTHS or found in TIMES:
            return found
    return text


def in_base_unit(value: float, unit: str | None) -> tuple[float, str | None]:
    """Return a value in metres or seconds with that unit; values of other units are unchanged."""
    for base, sizes in (("meter", LENGTHS), ("second", TIMES)):
        if unit in sizes:
            return value * sizes[unit], base
    return value, unit


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageAxis:
    """An axis of an image."""

    name: str
    type: str
    """One of `ORDER`."""
    scale: float = 1.0
    """Distance between elements, in the axis's unit."""
    unit: str | None = None
    """OME-Zarr name of the unit; None if unknown."""
    origin: float = 0.0
    """Position of the first element, in the axis's unit."""
    known: bool = False
    """True if the source or the caller states the scale."""

    def measured(self, scale: float | None = None, unit: str | None = None, origin: float | None = None) -> ImageAxis:
        """Return the axis with the given scale, unit and origin; None keeps the axis's own."""
        made = self if scale is None else replace(self, scale=float(scale), known=True)
        made = made if unit is None else replace(made, unit=unit_name(unit))
        return made if origin is None else replace(made, origin=float(origin))


def image_axes(
    names: Sequence[str | None] | None, ndim: int, types: Mapping[str, str] | None = None
) -> tuple[ImageAxis, ...]:
    """Return the axes of an image in the order of the array, by their names or by default names."""
    default = {2: ("y", "x"), 3: ("z", "y", "x"), 4: ("c", "z", "y", "x"), 5: ("t", "c", "z", "y", "x")}.get(ndim)
    found = default if names is None or None in names else tuple(map(str, names))
    known = {name: axis_type(name, found or ()) for name in found or ()} | dict(types or {})
    counts = [[*known.values()].count(each) for each in ORDER]
    if found is None or len(known) < ndim or counts[-1] not in (2, 3) or max(counts[:-1]) > 1:
        raise UnsupportedError(
            f"axes {names}, {ndim} of them, are not those of an image in OME-Zarr: two or three in space, and at most "
            "one of time (t), one of channels or samples (c, s) and one other"
        )
    sample = {"s": "c", "S": "C"}  # viewers expect this name
    return tuple(ImageAxis(name=sample.get(name, name), type=known[name]) for name in found)


def axis_type(name: str, names: Sequence[str] = ()) -> str:
    """Return the type of an axis by its name; beside y and x, any other single letter except z is not in space."""
    lower = name.lower()
    beside = {each.lower() for each in names} >= {"y", "x"}
    return TYPES.get(lower, "other" if beside and len(lower) == 1 and lower not in "zyx" else "space")


def ome_order(axes: Sequence[ImageAxis]) -> tuple[int, ...]:
    """Return the axes in the order that OME-Zarr requires, by number; axes of one type keep their order."""
    return tuple(sorted(range(len(axes)), key=lambda axis: ORDER.index(axes[axis].type)))


def isotropic(
    axes: Sequence[ImageAxis], shape: Sequence[int], factors: Sequence[int], level: Coarsening
) -> tuple[int, ...]:
    """Return the factors from a level to the next; axes with longer elements than others have factor 1.

    An axis is made coarser if its elements are at most √factor times as long as the shortest, so that the elements of
    the levels become about isotropic. If scales are unknown or not comparable, the given factors are returned.
    """
    space = [axis for axis, each in enumerate(axes) if each.type == "space" and shape[axis] > _whole(level, axis)]
    sizes = {axis: in_base_unit(axes[axis].scale * _whole(level, axis), axes[axis].unit) for axis in space}
    if len({unit for _, unit in sizes.values()}) != 1 or not all(axes[axis].known for axis in space):
        return tuple(factors)
    least = min(size for size, _ in sizes.values())
    small = {axis for axis, (size, _) in sizes.items() if size <= least * math.sqrt(factors[axis]) * (1 + 1e-9)}
    spatial = [each.type == "space" for each in axes]
    return tuple(f if axis in small or not spatial[axis] else 1 for axis, f in enumerate(factors))


def is_enough(shape: Sequence[int], level: Coarsening, factors: Sequence[int]) -> bool:
    """Return True if no axis that is coarsened has more than 256 elements in the level."""
    each = enumerate(zip(shape, factors, strict=True))
    return all(factor == 1 or ceil_div(n, _whole(level, axis)) <= 256 for axis, (n, factor) in each)


def _whole(level: Coarsening, axis: int) -> int:
    factor = level.factors[axis]
    assert isinstance(factor, int), "levels have groups of one length"
    return factor


def multiscales(
    axes: Sequence[ImageAxis],
    levels: Sequence[Coarsening],
    method: str,
    zarr_format: int,
    name: str,
    omero: Document | None = None,
) -> Document:
    """Return the attributes of the group of an image."""
    datasets = [
        {"path": str(number), "coordinateTransformations": _transformations(axes, level, method)}
        for number, level in enumerate(levels)
    ]
    image: dict[str, Any] = {"name": name, "axes": list(map(_axis, axes)), "datasets": datasets, "type": method}
    shown = {} if omero is None else {"omero": omero}
    if zarr_format == 2:
        return {"multiscales": [{"version": "0.4", **image}], **shown}
    return {"ome": {"version": "0.5", "multiscales": [image], **shown}}


def _axis(axis: ImageAxis) -> Document:
    typed = {} if axis.type == "other" else {"type": axis.type}
    return {"name": axis.name, **typed, **({} if axis.unit is None else {"unit": axis.unit})}


def _transformations(axes: Sequence[ImageAxis], level: Coarsening, method: str) -> list[Document]:
    """Return the scale of a level and the position of its first element: the centre of its source elements."""
    factors = [_whole(level, axis) for axis in range(len(axes))]
    scale = [axis.scale * factor for axis, factor in zip(axes, factors, strict=True)]
    inside = [0.0 if method == "nearest" else (factor - 1) / 2 for factor in factors]
    first = [axis.origin + axis.scale * middle for axis, middle in zip(axes, inside, strict=True)]
    translation: list[Document] = [{"type": "translation", "translation": first}] if any(first) else []
    return [{"type": "scale", "scale": scale}, *translation]


def finest_path(image: Mapping[str, Any]) -> str | None:
    """Return the path of the first level, which has full resolution; None if the multiscales name none."""
    datasets = image.get("datasets")
    first = datasets[0] if isinstance(datasets, list) and datasets else None
    path = first.get("path") if isinstance(first, Mapping) else None
    if not isinstance(path, str) or {"", ".", ".."} & {*path.strip("/").split("/")}:
        return None
    return path.strip("/")


def stated_axes(image: Mapping[str, Any], path: str, ndim: int) -> tuple[ImageAxis, ...] | None:
    """Return the axes that multiscales state for a level; None if the level is not listed."""
    level = next((each for each in image.get("datasets", ()) if each.get("path") == path), None)
    stated = [each if isinstance(each, Mapping) else {"name": each} for each in image.get("axes", ())]
    if level is None or len(stated) != ndim:
        return None
    names = [str(each.get("name", number)) for number, each in enumerate(stated)]
    types = [_type(each, name) for each, name in zip(stated, names, strict=True)]
    axes = image_axes(names, ndim, dict(zip(names, types, strict=True)))
    units = [unit if isinstance(unit, str) else None for unit in (each.get("unit") for each in stated)]
    scale, origin = [1.0] * ndim, [0.0] * ndim
    for each in (*level.get("coordinateTransformations", ()), *(image.get("coordinateTransformations") or ())):
        if len(each.get("scale", ())) == ndim:
            scale, origin = ([a * b for a, b in zip(own, each["scale"], strict=True)] for own in (scale, origin))
        if len(each.get("translation", ())) == ndim:
            origin = [a + b for a, b in zip(origin, each["translation"], strict=True)]
    each_axis = zip(axes, scale, units, origin, strict=True)
    return tuple(axis.measured(size, unit, first) for axis, size, unit, first in each_axis)


def _type(stated: Mapping[str, Any], name: str) -> str:
    """Return the type of an axis of multiscales; axes of version 0.3 and before have names only."""
    if "type" not in stated:
        return axis_type(name)
    return str(stated["type"]) if stated["type"] in ORDER else "other"
