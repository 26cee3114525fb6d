"""Units of length and of time by their OME-Zarr names.

µm, um, micron, micrometres   ─► micrometer   1e-6 m
s, sec, seconds               ─► second       1 s
"""

from __future__ import annotations

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


def unit_name(text: str) -> str:
    """Return the OME-Zarr name of a unit; a unit that OME-Zarr does not name is returned unchanged.

    >>> [unit_name(each) for each in ("µm", "microns", "Millimetre", "sec", "degrees_north")]
    ['micrometer', 'micrometer', 'millimeter', 'second', 'degrees_north']
    """
    text = text.strip().replace("\\u00B5", "u").replace("\u00b5", "u").replace("\u03bc", "u").replace("\u212b", "Å")
    lower = text.lower().replace("metre", "meter")
    for each in (text, lower, lower.removesuffix("s")):
        found = SYMBOLS.get(each, each)
        if found in LENGTHS or found in TIMES:
            return found
    return text


def in_base_unit(value: float, unit: str | None) -> tuple[float, str | None]:
    """Return a value in metres or seconds, with that unit; a value of another unit is returned unchanged.

    >>> in_base_unit(2, "millimeter"), in_base_unit(1, "hour"), in_base_unit(3, None)
    ((0.002, 'meter'), (3600.0, 'second'), (3, None))
    """
    for base, sizes in (("meter", LENGTHS), ("second", TIMES)):
        if unit in sizes:
            return value * sizes[unit], base
    return value, unit
