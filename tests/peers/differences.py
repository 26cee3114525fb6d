"""Tests of xarray that do not hold of our engine, each with its reason.

Each is run, and has to fail, but those that do not apply: one that passes, or is no longer there, leaves the list.
"""

from __future__ import annotations

from importlib.util import find_spec

import xarray as xr
from packaging.version import Version

CONSOLIDATED = "metadata that are not consolidated are read without a warning"
NOT_THERE = "what is not there is a NotFoundError, an InputError and ValueError as all of ours, and no OSError"
ENUM = "enumerations of HDF5 are read as whole numbers, without their names"
PHONY = "axes without names are called by their lengths, and no warning is given"
FILES = "files that are open in Python, or in its memory, are not opened: it takes paths, URLs and Zarr stores"
WRITING = "of what xarray's writer does to a store, whoever reads it afterwards; it takes long"
TWICE = "run in format 3 only: how xarray cuts blocks has nothing to do with the format, and takes long"
WRITER = "xarray's own engine of this version fails, too: versions of Zarr are newer than it"

LEFT_OUT: dict[str, str] = {
    "TestZarr.test_write_persistence_modes": WRITING,
    "TestZarr.test_to_zarr_append_compute_false_roundtrip": WRITING,
    "TestZarr.test_to_zarr_compute_false_roundtrip": WRITING,
    "TestZarr.test_chunk_encoding_with_dask": WRITING,
    "TestZarr.test_write_region": WRITING,
    "TestZarr.test_write_empty": WRITING,
    "TestZarr.test_append_with_new_variable": WRITING,
    "TestZarr.test_append_string_length_mismatch_works": WRITING,
    "TestZarr.test_append_string_length_mismatch_raises": WRITING,
    "TestZarr.test_check_encoding_is_consistent_after_append": WRITING,
    "TestZarrTrees.test_to_zarr_compute_false": WRITING,
    "TestZarr.test_manual_chunk[2": TWICE,
    "TestZarr.test_warning_on_bad_chunks[2": TWICE,
    "TestZarr.test_chunked_datetime64_or_timedelta64[2": TWICE,
}
"""Not run: they do not apply."""
IS_OLD = Version(xr.__version__) < Version("2026")
if not IS_OLD:  # the oldest has no such tests
    LEFT_OUT |= {
        "TestNetCDFTrees.test_roundtrip_via_memoryview": FILES,
        "TestNetCDFTrees.test_roundtrip_using_filelike_object": FILES,
    }
DIFFERENCES: dict[str, str] = {
    "TestZarr.test_read_non_consolidated_warning": CONSOLIDATED,
    "TestZarr.test_non_existent_store": NOT_THERE,
    "TestZarr.test_deprecate_auto_chunk": "an option that is not known is an InputError, and no TypeError",
    "TestZarr.test_avoid_excess_metadata_calls": "arrays are opened when they are read: that takes calls of its own",
    "TestNetCDF.test_open_group": NOT_THERE,
    "TestNetCDF.test_encoding_enum__no_fill_value": ENUM,
    "TestNetCDF.test_encoding_enum__multiple_variable_with_enum": ENUM,
    "TestNetCDF.test_encoding_enum__error_multiple_variable_with_changing_enum": ENUM,
    "TestNetCDF.test_decode_utf8_warning": "bytes of attributes that are not UTF-8 are replaced, without a warning",
    "TestNetCDF.test_phony_dims_warning": PHONY,
    "TestNetCDF3.test_roundtrip_example_1_netcdf_gz": "compressed files are not read: the error says so",
    "TestNetCDF3.test_nc4_scipy": "NetCDF-4 is read, where scipy reads NetCDF-3 only",
    "TestNetCDFTrees.test_to_netcdf": "a tree has nothing to close: files are opened for each read",
    "TestNetCDFTrees.test_phony_dims_warning": PHONY,
    "TestZarrTrees.test_to_zarr_not_consolidated": CONSOLIDATED,
}
"""Of every version."""
NEEDS_NETCDF4: dict[str, str] = {
    "TestNetCDF.test_open_subgroup": "h5netcdf cannot write dimensions of a group in a group so",
    "TestNetCDF.test_mask_and_scale": "h5netcdf has not this function of netCDF4",
    "TestNetCDF.test_cross_engine_read_write_netcdf4": "netCDF4 is to write",
}
"""Where netCDF4 is not installed."""
NEWER: dict[str, str] = {
    "TestNetCDFTrees.test_compute_false": "a file that changes after it was opened is an error",
    "TestNetCDFTrees.test_default_write_engine": "h5netcdf is imported meanwhile: xarray's own engine fails, too",
}
"""Of newer versions only."""
OLDER: dict[str, str] = {
    "TestNetCDF.test_roundtrip_object_dtype": WRITER,
    "TestNetCDF.test_string_object_warning": WRITER,
    "TestNetCDF.test_roundtrip_string_with_fill_value_vlen": WRITER,
    "TestNetCDF.test_dump_and_open_encodings": "written as NetCDF-3 by default, and read as NetCDF-4",
    "TestZarrTrees.test_zarr_encoding[zarr_format=3]": WRITER,
}
"""Of the oldest version only."""


def listed() -> dict[str, str]:
    """Return what differs with the version of xarray, and the packages, that are here."""
    of_version = OLDER if IS_OLD else NEWER
    return DIFFERENCES | of_version | ({} if find_spec("netCDF4") else NEEDS_NETCDF4)


LISTED = listed()


def reason(test: str, listed: dict[str, str]) -> str | None:
    """Return why a test is listed, by its class, name and parameters; None if it is not."""
    return next((why for name, why in listed.items() if covers(name, test)), None)


def covers(name: str, test: str) -> bool:
    """Return whether a name of the list is that of a test, with or without parameters."""
    return test == name or test.startswith(name if "[" in name else f"{name}[")
