"""File formats by their first bytes: supported ones, and others that an error names."""

from __future__ import annotations

import os
import re
from contextlib import suppress

from oocarrays.errors import NotFoundError
from oocarrays.storage.local.fs import open_regular

HDF5 = b"\x89HDF\r\n\x1a\n"
READ = {HDF5: "hdf5", b"\x93NUMPY": "npy", b"PK\3\4": "zip", b"SIMPLE  =": "fits"}
READ |= dict.fromkeys((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"), "tiff")
READ |= dict.fromkeys((b"CDF\1", b"CDF\2", b"CDF\5"), "netcdf3")
"""First bytes of supported files, and their format."""
OTHERS = {
    b"GRIB": "GRIB",
    b"\x0e\x03\x13\x01": "HDF4",
    b"ENVI": "an ENVI header",
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ\0": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x89PNG": "PNG",
    b"\xff\xd8\xff": "JPEG",
    b"\0\0\0\x0cjP  ": "JPEG 2000",
    b"PAR1": "Parquet",
    b"ZISRAWFILE": "CZI",
    b"MATLAB 5.0": "MATLAB 5",
}
"""First bytes of unsupported files, and their format."""
HEAD_BYTES = 64
"""Number of bytes at the start of a file that are compared."""
NAMED = re.compile(r"\.(nc|nc4|cdf|h5|hdf5|hdf|he5|h5ad|nwb|mat|tif|tiff|ome\.tif|npy|fits|fit|fts)$", re.IGNORECASE)
"""Suffixes of the names of supported files."""


def head_of(path: str) -> bytes:
    """Return the first bytes of a local file; the signature of HDF5 if that follows a user block."""
    with suppress(OSError), open(path, "rb", opener=open_regular) as file:
        head = file.read(HEAD_BYTES)
        for start in (512, 1024, 2048, 4096) if NAMED.search(path) and kind_of(head) is None else ():
            file.seek(start)
            if file.read(len(HDF5)) == HDF5:
                return HDF5
        return head
    return b""


def kind_of(head: bytes) -> str | None:
    """Return the format of a supported file; None for any other."""
    return _named(head, READ)


def _named(head: bytes, names: dict[bytes, str]) -> str | None:
    return next((name for start, name in names.items() if head.startswith(start)), None)


def not_read(path: str, head: bytes) -> str:
    """Return the error message for a file in an unsupported format."""
    is_text = all(byte >= 32 or byte in b"\t\r\n\f" for byte in head)
    seems = _named(head, OTHERS) or ("text" if is_text else "an unknown signature")
    seems = seems if head else "the file is empty"
    advice = dict.fromkeys(("gzip", "bzip2", "xz", "zstd"), "; decompress it first")
    advice["GRIB"] = "; it needs ecCodes: open it by xarray (engine='cfgrib'), or as references of kerchunk"
    return (
        f"{path} has a format that is not read: {seems}{advice.get(seems, '')}; Zarr, NetCDF, HDF5, TIFF, FITS and "
        ".npy are read, raw elements by open_files(…) if you give shape= and dtype=, and what xarray opens by "
        "rechunk(xr.open_dataset(…, chunks={}), …)"
    )


def check_format(path: str) -> None:
    """Raise if a local path is a file in an unsupported format, or names a member of such a file."""
    before = path.rpartition(":/")[0]
    file = before if before and os.path.isfile(before) else path
    while not os.path.lexists(file):
        file = os.path.dirname(file)
    if not os.path.isfile(file):
        return
    head = head_of(file)
    if kind_of(head) is None and bool(head) == bool(os.path.getsize(file)):  # else it cannot be read
        raise NotFoundError(not_read(path if path == file else f"{path}: {file}", head))
