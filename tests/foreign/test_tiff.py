"""TIFF files, written by tifffile, against what it reads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import tifffile
import zarr

import oocarrays as ooc
from oocarrays.errors import NotFoundError, RunError, StoreFailure

RNG = np.random.default_rng(5)
IMAGE = RNG.integers(0, 60000, (300, 200)).astype("u2")
STACK = RNG.integers(0, 250, (7, 96, 80)).astype("u1")
COLOUR = RNG.integers(0, 250, (96, 80, 3)).astype("u1")
HERE: dict[str, Any] = {"scheduler": "threads", "memory": "64MiB"}
WAYS: dict[str, tuple[Any, dict[str, Any], str | None]] = {
    "in one piece": (IMAGE, {}, None),
    "tiles": (IMAGE, {"tile": (64, 48)}, None),
    "tiles, deflated": (IMAGE, {"tile": (64, 48), "compression": "zlib"}, "zlib"),
    "strips": (IMAGE, {"rowsperstrip": 60}, None),
    "strips, the last one short": (IMAGE, {"rowsperstrip": 64}, None),
    "strips, deflated": (IMAGE, {"rowsperstrip": 60, "compression": "zlib"}, "zlib"),
    "strips, deflated, the last one short": (IMAGE, {"rowsperstrip": 64, "compression": "zlib"}, "tifffile"),
    "big": (IMAGE, {"bigtiff": True, "tile": (64, 48)}, None),
    "the other end first": (IMAGE, {"byteorder": ">", "tile": (64, 48)}, "zarr"),
    "predicted": (IMAGE, {"tile": (64, 48), "compression": "zlib", "predictor": True}, "tifffile"),
    "stack": (STACK, {"photometric": "minisblack"}, None),
    "stack of tiles": (STACK, {"photometric": "minisblack", "tile": (32, 32), "compression": "zlib"}, "zlib"),
    "colour": (COLOUR, {"photometric": "rgb"}, None),
    "colour, tiles": (COLOUR, {"photometric": "rgb", "tile": (32, 48)}, None),
    "colours apart": (np.moveaxis(COLOUR, 2, 0), {"photometric": "rgb", "planarconfig": "separate"}, None),
    "ImageJ": (STACK, {"imagej": True}, None),
    "OME": (STACK, {"ome": True, "photometric": "minisblack", "tile": (32, 32)}, None),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_store_an_image_is_read_as_tifffile_reads_it(tmp_path: Path, way: str) -> None:
    data, how, codec = WAYS[way]
    path = tmp_path / ("a.ome.tif" if how.get("ome") else "a.tif")
    tifffile.imwrite(path, data, **{k: v for k, v in how.items() if k != "ome"})
    expected = tifffile.imread(path)
    a = ooc.open_array(path, missing="error")
    assert a._file.stored.codec == codec
    np.testing.assert_array_equal(a[...], expected)
    np.testing.assert_array_equal(a[..., 5:50:3, 2], expected[..., 5:50:3, 2])
    job = ooc.rechunk(path, tmp_path / "b.zarr", chunks=tuple(min(n, 33) for n in a.shape), **HERE)
    np.testing.assert_array_equal(job.run()[...], expected)


READS: dict[str, Callable[[Any], Any]] = {
    "open": lambda store: ooc.open_array(store)[...],
    "strided": lambda store: ooc.open_array(store)[:300, :200][...],
    "sections": lambda store: ooc.ranks.read_sections(store, [...], **HERE).compute()[0],
    "lazy": lambda store: ooc.open_array(store).to_dask().compute(scheduler="threads"),
}


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("read", READS)
def test_a_store_that_answers_whole_keys_only_is_a_source(tmp_path: Path, compression: Any, read: str) -> None:
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, tile=(64, 48), compression=compression)
    with tifffile.imread(tmp_path / "a.tif", aszarr=True) as store:
        np.testing.assert_array_equal(READS[read](store), IMAGE)
        job = ooc.rechunk(store, tmp_path / "b.zarr", chunks=(300, 10), **HERE)
        np.testing.assert_array_equal(job.run()[...], IMAGE)


def test_levels_and_series_are_a_group(tmp_path: Path) -> None:
    with tifffile.TiffWriter(tmp_path / "a.ome.tif") as file:
        file.write(IMAGE, tile=(64, 64), subifds=1, photometric="minisblack")
        file.write(IMAGE[::2, ::2], tile=(64, 64), subfiletype=1, photometric="minisblack")
    group = ooc.open_group(tmp_path / "a.ome.tif")
    assert {name: array.shape for name, array in group.items()} == {"0": (300, 200), "1": (150, 100)}
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "a.ome.tif/1")[...], IMAGE[::2, ::2])
    with pytest.raises(NotFoundError):
        ooc.open_array(tmp_path / "a.ome.tif/7")


def test_an_image_is_filtered_as_scipy_does_it(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", IMAGE, tile=(64, 48), compression="zlib")
    job = ooc.map_slabs(
        partial(scipy.ndimage.median_filter, size=3),
        tmp_path / "a.tif",
        tmp_path / "b.zarr",
        depth=1,
        boundary="reflect",
        **HERE,
    )
    np.testing.assert_array_equal(job.run()[...], scipy.ndimage.median_filter(IMAGE, 3, mode="reflect"))
    assert zarr.open_array(tmp_path / "b.zarr", mode="r").shape == IMAGE.shape


def test_a_compression_that_tifffile_cannot_decode_is_an_error_and_no_fill_value(tmp_path: Path) -> None:
    """Deflated strips that are said to be of LZW, for which tifffile needs another package."""
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.ones((80, 80), "u2"), compression="zlib")
    with tifffile.TiffFile(path) as file:
        at = file.pages[0].tags["Compression"].valueoffset
    whole = bytearray(path.read_bytes())
    whole[at : at + 2] = (5).to_bytes(2, "little")
    path.write_bytes(whole)
    with pytest.raises(StoreFailure, match=r"cannot read c/0/0 of .*a\.tif: ") as caught:
        ooc.open_array(path)[...]
    assert "\n" not in str(caught.value)
    with pytest.raises(RunError):
        ooc.rechunk(path, tmp_path / "a.zarr", chunks=(8, 8), memory="64MiB", scheduler="threads").run()


@pytest.mark.parametrize("way", ["in one piece", "tiles", "strips, the last one short", "tiles, deflated"])
def test_elements_that_a_file_lacks_are_an_error_and_no_fill_value(tmp_path: Path, way: str) -> None:
    tifffile.imwrite(tmp_path / "a.tif", WAYS[way][0], **WAYS[way][1])
    whole = (tmp_path / "a.tif").read_bytes()
    (tmp_path / "a.tif").write_bytes(whole[:-1000])
    with pytest.raises(ooc.OocError, match=r"a\.tif is truncated: its elements end at byte \d+, and it has \d+"):
        ooc.open_array(tmp_path / "a.tif")[...]


def test_an_image_whose_pages_are_in_several_files_is_read_from_all_of_them(tmp_path: Path) -> None:
    names = ["a.ome.tif", "b.ome.tif"]
    parts = "".join(
        f'<TiffData FirstZ="{z}" FirstC="0" FirstT="0" IFD="0" PlaneCount="1">'
        f'<UUID FileName="{name}">urn:uuid:{z}</UUID></TiffData>'
        for z, name in enumerate(names)
    )
    said = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:{}"><Image ID="Image:0"><Pixels '
        'ID="Pixels:0" DimensionOrder="XYZCT" Type="uint16" SizeX="200" SizeY="300" SizeZ="2" SizeC="1" SizeT="1">'
        f'<Channel ID="Channel:0:0" SamplesPerPixel="1"/>{parts}</Pixels></Image></OME>'
    )
    for z, name in enumerate(names):
        tifffile.imwrite(tmp_path / name, IMAGE + z, description=said.format(z), metadata=None, ome=False)
    np.testing.assert_array_equal(tifffile.imread(tmp_path / names[0]), np.stack([IMAGE, IMAGE + 1]))
    np.testing.assert_array_equal(ooc.open_array(tmp_path / names[0])[...], np.stack([IMAGE, IMAGE + 1]))


OME = """<?xml version="1.0" encoding="UTF-8"?>
<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06" UUID="urn:uuid:{own}"><Image ID="Image:0">
<Pixels ID="Pixels:0" DimensionOrder="XYZCT" Type="uint8" SizeX="80" SizeY="96" SizeZ="7" SizeC="1" SizeT="1">
<Channel ID="Channel:0:0" SamplesPerPixel="1"/>{planes}</Pixels></Image></OME>"""
PLANE = '<TiffData FirstZ="{0}" IFD="0" PlaneCount="1"><UUID FileName="z{0}.ome.tif">urn:uuid:{0}</UUID></TiffData>'


def planes_apart(folder: Path) -> Path:
    """Return the first of the files of one image, each of a plane; every one describes the whole."""
    planes = "".join(map(PLANE.format, range(len(STACK))))
    for z, plane in enumerate(STACK):
        tifffile.imwrite(folder / f"z{z}.ome.tif", plane, description=OME.format(own=z, planes=planes), metadata=None)
    return folder / "z0.ome.tif"


def test_an_image_whose_planes_are_in_several_files_is_read_from_any_of_them(tmp_path: Path) -> None:
    first = planes_apart(tmp_path)
    a = ooc.open_array(first, missing="error")
    assert a.dimension_names == ("z", "y", "x")
    np.testing.assert_array_equal(a[...], STACK)
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "z3.ome.tif")[2:4, 5], STACK[2:4, 5])
    job = ooc.rechunk(first, tmp_path / "b.zarr", chunks=(7, 33, 33), **HERE)
    np.testing.assert_array_equal(job.run()[...], STACK)


def test_an_image_of_which_a_file_is_missing_is_refused(tmp_path: Path) -> None:
    first = planes_apart(tmp_path)
    (tmp_path / "z5.ome.tif").unlink()
    with pytest.raises(NotFoundError, match=r"z0\.ome\.tif has planes in 1 other file not beside it: z5\.ome\.tif"):
        ooc.open_array(first)


def test_a_file_that_was_renamed_is_read(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.ome.tif", STACK, description=_whole("a.ome.tif"), metadata=None)
    (tmp_path / "a.ome.tif").rename(tmp_path / "b.ome.tif")
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "b.ome.tif")[...], STACK)


def _whole(name: str) -> str:
    planes = f'<TiffData IFD="0" PlaneCount="7"><UUID FileName="{name}">urn:uuid:0</UUID></TiffData>'
    return OME.format(own=0, planes=planes)
