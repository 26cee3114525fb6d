"""Groups as xarray writes them, and what must be the same in their copies."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
import zarr

from tests.seams import KEPT_SOURCE

AIR = (24, 18, 20)


def dataset(seed: int = 0, air: tuple[int, ...] = AIR) -> xr.Dataset:
    """Dates, words, a scalar, a coordinate with missing values, whole numbers with scale and offset, attributes."""
    rng = np.random.default_rng(seed)
    days = np.datetime64("2001-02-03", "ns") + np.arange(air[0]) * np.timedelta64(1, "D")
    words = np.array([f"place {'x' * i}" for i in range(air[1])], dtype=object)
    height = np.where(rng.random(air[2]) < 0.3, np.nan, rng.random(air[2]))
    return xr.Dataset(
        {
            "air": (("time", "lat", "lon"), rng.random(air), {"units": "K"}),
            "rain": (("time", "lat"), np.round(rng.random(air[:2]), 2)),
            "crs": ((), 7, {"grid_mapping_name": "latitude_longitude"}),
            "when": (("lat",), days[rng.integers(0, air[0], air[1])]),
        },
        coords={
            "time": days,
            "lat": np.linspace(-90, 90, air[1]),
            "lon": np.arange(air[2]),
            "place": ("lat", words),
            "height": ("lon", height),
        },
        attrs={"title": "a test", "levels": [1, 2.5, None]},
    )


ENCODING: dict[str, Any] = {
    "air": {"chunks": (1, 18, 20)},
    "rain": {"dtype": "i2", "scale_factor": 0.01, "_FillValue": -1, "chunks": (5, 7)},
}


def write(store: Any, *, zarr_format: int = 3, consolidated: bool = True, nested: bool = True) -> Any:
    """A dataset, and another one in a group below it; what xarray says of formats is its own affair."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options: dict[str, Any] = {"zarr_format": zarr_format, "consolidated": False, "encoding": ENCODING}
        dataset().to_zarr(store, **options)
        if nested:
            dataset(1).to_zarr(store, group="deep/er", mode="a", **options)
        if consolidated:
            zarr.consolidate_metadata(store)
    return store


def opened(store: Any, group: str | None = None, consolidated: bool | None = None) -> xr.Dataset:
    """As xarray sees it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xr.open_zarr(store, group=group, chunks=None, consolidated=consolidated)


def check_same(source: Any, target: Any, *, rechunked: tuple[str, ...] = (), group: str | None = None) -> None:
    """Values, attributes, coordinates, and encoding but for chunks, are those of the source."""
    a, b = opened(source, group), opened(target, group)
    xr.testing.assert_identical(a.load(), b.load())
    for name in a.variables:
        left, right = (_encoding(x[name], name in rechunked) for x in (a, b))
        assert left == right, name


def _encoding(variable: xr.DataArray, rechunked: bool) -> dict[str, str]:
    free = {"source", "chunks", "preferred_chunks"} if rechunked else {"source"}
    return {name: repr(value) for name, value in variable.encoding.items() if name not in free}


def objects(folder: Path) -> dict[str, bytes]:
    """All files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def as_stored(folder: Path) -> dict[str, bytes]:
    """All files of what was copied, but for records of sources."""
    return {name: text for name, text in objects(folder).items() if not name.endswith(KEPT_SOURCE)}
