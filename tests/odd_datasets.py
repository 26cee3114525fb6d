"""Twenty data sets as people have them: scaled, packed, odd calendars, texts, bounds, empty, scalar coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

DIMS = ("time", "lat", "lon")
SHAPE = (6, 4, 5)
RANDOM = np.random.default_rng(3)
FIELD = RANDOM.normal(280, 10, SHAPE)
DAYS = np.arange(SHAPE[0])


def field(values: Any = FIELD, *, attrs: Any = (), **encoding: Any) -> xr.Variable:
    return xr.Variable(DIMS[: np.ndim(values)], values, dict(attrs), encoding)


def dataset(values: Any = FIELD, coords: Any = (), **encoding: Any) -> xr.Dataset:
    return xr.Dataset({"air": field(values, **encoding)}, dict(coords))


def with_gaps(dtype: str = "f8") -> np.ndarray:
    found = FIELD.astype(dtype)
    found[1, 2, 3] = found[5, :, 0] = np.nan
    return found


def times(**encoding: Any) -> xr.Variable:
    days = np.datetime64("1999-12-30", "ns") + DAYS.astype("m8[D]")
    return xr.Variable("time", days.astype("M8[ns]"), {}, encoding)


def of_calendar(calendar: str, begin: str = "0001-02-26") -> xr.Dataset:
    found = xr.date_range(begin, periods=SHAPE[0], freq="D", calendar=calendar, use_cftime=True)
    return dataset(coords={"time": found})


def bounded() -> xr.Dataset:
    edges = np.stack([DAYS, DAYS + 1], 1).astype("f8")
    time = xr.Variable("time", DAYS + 0.5, {"bounds": "time_bnds", "units": "days since 1850-01-01"})
    found = xr.Dataset(
        {"air": field(), "time_bnds": (("time", "bnds"), edges)}, {"time": time, "lat": np.linspace(-90, 90, SHAPE[1])}
    )
    return xr.decode_cf(found)


def many_types() -> xr.Dataset:
    names = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "bool")
    return xr.Dataset({f"v_{name}": field(RANDOM.integers(0, 2, SHAPE).astype(name)) for name in names})


DATASETS: dict[str, Callable[[], xr.Dataset]] = {
    "plain": dataset,
    "scaled": lambda: dataset(with_gaps(), dtype="i2", scale_factor=0.01, add_offset=280.0, _FillValue=-9999),
    "scaled float": lambda: dataset(with_gaps("f4"), dtype="f4", scale_factor=0.5, add_offset=-3.0),
    "unsigned": lambda: dataset(
        with_gaps(), dtype="i1", _Unsigned="true", scale_factor=0.5, add_offset=220.0, _FillValue=-1
    ),
    "fill in ints": lambda: dataset(with_gaps(), dtype="i4", _FillValue=-2147483648),
    "missing value": lambda: dataset(with_gaps("f4"), missing_value=np.float32(1e20), _FillValue=np.float32(1e20)),
    "no fill": lambda: dataset(_FillValue=None),
    "many types": many_types,
    "datetimes": lambda: dataset(coords={"time": times(units="hours since 1970-01-01", dtype="i4")}),
    "datetimes as floats": lambda: dataset(coords={"time": times(units="days since 2000-01-01", dtype="f8")}),
    "durations": lambda: xr.Dataset({"lag": ("time", DAYS.astype("m8[h]").astype("m8[ns]"))}),
    "noleap": lambda: of_calendar("noleap"),
    "360 days": lambda: of_calendar("360_day"),
    "julian": lambda: of_calendar("julian"),
    "texts": lambda: xr.Dataset({"name": ("lat", np.array(["a", "ßü", "", "long words"], object)), "air": field()}),
    "letters": lambda: xr.Dataset({"name": ("lat", np.array([b"ab", b"c", b"", b"def"], "S3")), "air": field()}),
    "bounds": bounded,
    "empty": lambda: xr.Dataset({"air": (DIMS, np.zeros((0, *SHAPE[1:]), "f4"))}, {"lat": np.arange(SHAPE[1])}),
    "scalars": lambda: dataset(coords={"height": 2.0, "run": "r1", "at": np.datetime64("2001-01-01", "ns")}),
    "attributes": lambda: dataset(
        attrs={"units": "K", "flags": [1, 2], "scale": 1.5, "long_name": "Lüft"}
    ).assign_attrs(title="odd", version=3, levels=[1.5, 2.5]),
    "grid mapping": lambda: xr.Dataset(
        {"air": field(attrs={"grid_mapping": "crs"}), "crs": ((), 0, {"grid_mapping_name": "latitude_longitude"})},
        {"lon2": (DIMS[1:], np.ones(SHAPE[1:]), {"units": "degrees"})},
    ).set_coords("lon2"),
    "infinite": lambda: dataset(np.where(FIELD > 285, np.inf, np.where(FIELD < 270, -np.inf, -0.0))),
}
