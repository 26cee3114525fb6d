"""Our engine and h5netcdf, where xarray's tests open by another engine and write by netCDF4."""

from __future__ import annotations

from typing import Any

import h5netcdf.legacyapi

import oocarrays.xarray

OPENING = (
    "autoclose", "cache_members", "chunk_store", "clobber", "consolidated", "decode_vlen_strings", "driver",
    "driver_kwds", "format", "invalid_netcdf", "lock", "mmap", "mode", "phony_dims", "synchronizer", "zarr_format",
    "zarr_version",
)  # fmt: skip
"""Options by which xarray's own engines open a file: none of them changes a value, and ours has none of them."""


class Ours(oocarrays.xarray.Engine):
    """The engine; options by which others open a file are left out."""

    open_dataset_parameters = (*oocarrays.xarray.Engine.open_dataset_parameters, *OPENING)

    def open_dataset(self, filename_or_obj: Any, **how: Any) -> Any:
        """Open a dataset."""
        return super().open_dataset(filename_or_obj, **_without(how))

    def open_groups_as_dict(self, filename_or_obj: Any, **how: Any) -> Any:
        """Open a group and all groups below it."""
        return super().open_groups_as_dict(filename_or_obj, **_without(how))


def _without(how: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in how.items() if name not in OPENING}


class Dataset(h5netcdf.legacyapi.Dataset):
    """A file that h5netcdf writes by the names of netCDF4."""

    def createVariable(self, name: str, datatype: Any, dimensions: Any = (), **how: Any) -> Any:
        """Create a variable, of one dimension where a text is given."""
        dimensions = (dimensions,) if isinstance(dimensions, str) else dimensions
        return super().createVariable(name, datatype, dimensions, **how)
