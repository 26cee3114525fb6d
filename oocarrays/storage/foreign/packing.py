"""Files with unequal packing: each is decoded by its own attributes, by the CF conventions.

    monday.nc    int16, add_offset 270    ─►  270 + scale × stored    ┐
    tuesday.nc   int16, add_offset 280    ─►  280 + scale × stored    ├─►  float64
    time         "hours since monday", "hours since tuesday"          ┘    all since monday

Joined as stored, values of tuesday would be wrong by ten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from oocarrays.errors import UnsupportedError
from oocarrays.mapping.casting import mask_as_text, mask_of_text
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign.facts import Facts

FILLS = ("_FillValue", "missing_value")
PACKED = ("scale_factor", "add_offset", *FILLS, "_Unsigned")
"""Attributes that define the conversion of stored values."""
TELLING = (*PACKED, "units", "calendar", "dtype")
"""These, and attributes that must agree between files or be convertible."""
MICROSECONDS = {
    "microsecond": 1, "millisecond": 1000, "second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6,
    "day": 86400 * 10**6,
}  # fmt: skip
ABBREVIATED = {"us": "microsecond", "ms": "millisecond", "s": "second", "sec": "second", "min": "minute", "h": "hour"}
ABBREVIATED |= {"hr": "hour", "d": "day", "msec": "millisecond"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Conversion of stored values to ``scale × stored + offset``, or NaN for fill values."""

    scale: float = 1.0
    """Factor of a stored value."""
    offset: float = 0.0
    """Offset added after scaling."""
    fills: tuple[Any, ...] = ()
    """Stored values that are converted to NaN."""
    unsigned: bool | None = None
    """Whether stored integers are unsigned or signed; None for their own type."""

    def unpacked(self, stored: np.ndarray, dtype: np.dtype) -> np.ndarray:
        if self.unsigned is not None and stored.dtype.kind in "iu":
            kind = "u" if self.unsigned else "i"
            stored = stored.view(f"{stored.dtype.str[0]}{kind}{stored.dtype.itemsize}")
        values = stored.astype(dtype)
        if self.scale != 1.0:
            values *= dtype.type(self.scale)
        if self.offset != 0.0:
            values += dtype.type(self.offset)
        for fill in self.fills:
            values[stored == np.asarray(fill).astype(stored.dtype)] = np.nan
        return values


def told(facts: Facts) -> tuple[Any, ...]:
    """Return the facts that define the meaning of values; arrays must agree in them to be joined as stored."""
    return (facts.dtype, *(repr(facts.attributes.get(name)) for name in TELLING))


def agreed(all: Sequence[Facts], names: Sequence[str], what: str) -> tuple[str, list[Packing], Document]:
    """Return type and attributes of a whole of arrays with unequal packing, and the packing of each."""
    first = all[0]
    attributes = {name: value for name, value in first.attributes.items() if name not in PACKED}
    if any(np.dtype(each.dtype).kind not in "biuf" for each in all):
        raise _differ(what, names, "type", all[0].dtype, next(e.dtype for e in all if e.dtype != all[0].dtype))
    packings = []
    for each, name in zip(all, names, strict=True):
        said = {key: (first.attributes.get(key), each.attributes.get(key)) for key in ("calendar", "dtype", "units")}
        for key, (one, other) in said.items():
            if one != other and (key != "units" or _since(first) is None or _since(each) is None):
                raise _differ(what, (names[0], name), key, one, other)
        packings.append(_packing(first, each))
    if any(name in each.attributes for each in all for name in PACKED):
        kinds = [_unpacked_type(each) for each in all]
        return np.result_type(*kinds).str, packings, attributes
    plain = np.result_type(*(np.dtype(each.dtype).newbyteorder("=") for each in all))
    if not any(each.scale != 1.0 or each.offset != 0.0 for each in packings):
        return plain.str, packings, attributes
    parts = any(not float(number).is_integer() for p in packings for number in (p.scale, p.offset))
    wide = "f8" if parts or plain.kind == "f" else "i8"  # converted values may exceed a narrower type
    return np.dtype(wide).str, packings, attributes


def _differ(what: str, names: Sequence[str], name: str, one: Any, other: Any) -> UnsupportedError:
    return UnsupportedError(
        f"{what} has {name} {one!r} in {names[0]} and {other!r} in {names[1]}: they are not joined; "
        "open the files one by one"
    )


def _packing(first: Facts, each: Facts) -> Packing:
    said, scale, offset = each.attributes, 1.0, 0.0
    if said.get("units") != first.attributes.get("units"):
        (unit, start), (own, begun) = _since(first) or (1, 0), _since(each) or (1, 0)
        scale, offset = float(Fraction(own, unit)), float(Fraction(begun - start, unit))
    step, base = (float(np.ravel(said.get(n, usual))[0]) for n, usual in (("scale_factor", 1.0), ("add_offset", 0.0)))
    fills = tuple(
        mask_of_text(fill, np.dtype("f8")) for name in FILLS if name in said for fill in np.ravel(said[name]).tolist()
    )
    unsigned = {"true": True, "false": False}.get(str(said.get("_Unsigned", "")).lower())
    return Packing(scale=step * scale, offset=base * scale + offset, fills=fills, unsigned=unsigned)


def _unpacked_type(facts: Facts) -> np.dtype:
    """Return the type of unpacked values by xarray's rules: double if single would lose stored precision."""
    stored = np.dtype(facts.dtype)
    is_single = stored.itemsize <= 4 and stored.kind == "f"
    return np.dtype("f4" if is_single or (stored.itemsize <= 2 and "add_offset" not in facts.attributes) else "f8")


def _since(facts: Facts) -> tuple[int, int] | None:
    """Return a time unit in microseconds, and its epoch in microseconds since 1970; None for other units."""
    unit, since, start = str(facts.attributes.get("units", "")).partition(" since ")
    name = unit.strip().lower()
    name = ABBREVIATED.get(name, name.removesuffix("s") if name.removesuffix("s") in MICROSECONDS else name)
    calendar = str(facts.attributes.get("calendar", "standard"))
    known = calendar in ("standard", "gregorian", "proleptic_gregorian")  # as numpy's, from 1582 on
    if not since or name not in MICROSECONDS or not known:
        return None
    try:
        begun = np.datetime64(_iso(start), "us")
    except ValueError:
        return None
    return None if begun < np.datetime64("1582-10-16") else (MICROSECONDS[name], int(begun.astype(np.int64)))


def _iso(text: str) -> str:
    date, _, clock = text.strip().replace("T", " ").partition(" ")
    date = "-".join(part.zfill(2) for part in date.split("-"))
    clock = clock.removesuffix("UTC").removesuffix("Z").strip()
    if not clock:
        return date
    hours, *rest = clock.split(":")
    rest = [part if len(part.partition(".")[0]) > 1 else f"0{part}" for part in rest]
    return f"{date}T{':'.join([hours.zfill(2), *rest])}"


def as_json(attributes: Mapping[str, Any]) -> Document:
    """Return attributes as JSON, with `_FillValue` as xarray encodes it in format 3."""
    made = {name: _plain(value) for name, value in attributes.items()}
    if FILLS[0] in made:
        first = np.ravel(attributes[FILLS[0]])[0]
        made[FILLS[0]] = mask_as_text(first, np.asarray(first).dtype)
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray):
        listed = [_plain(each) for each in value.reshape(-1)]
        return listed[0] if value.size == 1 else listed
    if isinstance(value, np.generic):
        return _plain(value.item()) if not isinstance(value, np.void) else str(value)
    return value if isinstance(value, bool | int | float | str) or value is None else str(value)
