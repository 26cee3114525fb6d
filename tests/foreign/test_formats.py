"""Files in formats that are not read: every door says so in one line, with the format if its signature is known."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
import xarray as xr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import NotFoundError, UnsupportedError
from tests.pairs import pairs

OTHERS = {
    "a.grib": (
        b"GRIB\0\0\0\2" + bytes(64),
        "GRIB; it needs ecCodes: open it by xarray .*, or as references of kerchunk",
    ),
    "a.hdf": (b"\x0e\x03\x13\x01" + bytes(64), "HDF4"),
    "a.nc.gz": (gzip.compress(b"CDF\1" + bytes(64)), "gzip; decompress it first"),
    "a.fits.gz": (gzip.compress(b"SIMPLE  =" + bytes(64)), "gzip; decompress it first"),
    "text.fits": (b"SIMPLE was not here", "text"),
    "a.hdr": (b"ENVI\nsamples = 3\n", "an ENVI header"),
    "a.img": (bytes(range(1, 100)), "an unknown signature"),
    "text.nc": (b"<html>404 not found</html>", "text"),
    "empty.nc": (b"", "the file is empty"),
}
DOORS: dict[str, Callable[[str], object]] = {
    "open_array": ooc.open_array,
    "open_group": ooc.open_group,
    "rechunk": lambda place: ooc.rechunk(place, f"{place}.zarr", chunks=(3,), scheduler="threads"),
    "xarray": lambda place: xr.open_dataset(place, engine="oocarrays"),
}


@pytest.mark.parametrize(*pairs(name=OTHERS, door=DOORS, inner=["", ":/air", "/air"]))
def test_another_format_is_named(tmp_path: Path, name: str, door: str, inner: str) -> None:
    content, seems = OTHERS[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(NotFoundError, match=f"{name} has a format that is not read: {seems}; Zarr, NetCDF") as caught:
        DOORS[door](f"{tmp_path}/{name}{inner}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", OTHERS)
def test_info_and_files_name_it_too(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    content, seems = OTHERS[name]
    (tmp_path / name).write_bytes(content)
    assert main(["info", f"{tmp_path}/{name}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(f"{name} has a format that is not read: {seems}; ", error)
    for wild in (name, f"{name[:-1]}*"):
        with pytest.raises(UnsupportedError, match=f"{name} has a format that is not read: {seems}; "):
            ooc.open_files(tmp_path / wild)


@pytest.mark.parametrize("damage", ["ends in the header", "ends in the directory", "no directory"])
@pytest.mark.parametrize("door", DOORS)
def test_a_damaged_tiff_is_one_line(tmp_path: Path, damage: str, door: str) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.arange(6400, dtype="u2").reshape(80, 80))
    whole = path.read_bytes()
    far = whole[:4] + (2**31 - 1).to_bytes(4, "little") + whole[8:]
    path.write_bytes(
        {"ends in the header": whole[:6], "ends in the directory": whole[:100], "no directory": far}[damage]
    )
    with pytest.raises(NotFoundError, match=r"a\.tif is a damaged TIFF file: .+"):
        DOORS[door](str(path))
