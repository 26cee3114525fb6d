"""FITS files, written by astropy, against what astropy reads of them."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import NotFoundError, SkippedArraysWarning, UnsupportedError
from tests.flat import flat
from tests.later import Later

fits = Later("astropy.io.fits")
HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}
TYPES = ["u1", "i2", "i4", "i8", "f4", "f8"]
"""Types of elements that FITS stores as they are."""
SIGNS = ["i1", "u2", "u4", "u8"]
"""Integers that are stored with the other kind of sign."""
SHAPES = [(11,), (9, 14), (3, 9, 14), (2, 3, 9, 14)]
STRUCTURE = ("SIMPLE", "XTENSION", "BITPIX", "EXTEND", "PCOUNT", "GCOUNT", "BSCALE", "BZERO", "BLANK")


def values(dtype: str, shape: tuple[int, ...] = (9, 14)) -> np.ndarray:
    """Values of all bits, the least and the largest number among them."""
    rng = np.random.default_rng(3)
    if dtype[0] == "f":
        made = rng.normal(size=shape).astype(dtype)
        made.flat[:3] = np.nan, np.inf, -0.0
        return made
    info = np.iinfo(dtype)
    made = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
    made.flat[:4] = info.min, info.max, 0, 1
    return made


def written(path: Path, *parts: Any) -> Path:
    fits.HDUList(list(parts)).writeto(path, overwrite=True, output_verify="silentfix")
    return path


def raw(path: Path, header: Any, stored: np.ndarray) -> None:
    """Write a header and elements as they are to be stored, which astropy would scale."""
    data = stored.astype(stored.dtype.newbyteorder(">")).tobytes()
    path.write_bytes(header.tostring().encode() + data + bytes(-len(data) % 2880))


def cards(header: Any) -> dict[str, Any]:
    """All cards that do not describe how data are stored."""
    found = {name: header[name] for name in header if name and not name.startswith("NAXIS") and name not in STRUCTURE}
    texts = {name: "\n".join(header[name]) for name in ("COMMENT", "HISTORY") if name in header}
    undefined = {name: None for name, value in found.items() if isinstance(value, fits.card.Undefined)}
    return found | texts | undefined


# ---------------------------------------------------------------------- values


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", TYPES + SIGNS)
@pytest.mark.parametrize("extension", [False, True])
def test_values_and_types_are_those_of_astropy(tmp_path: Path, dtype: str, shape: Any, extension: bool) -> None:
    data = values(dtype, shape)
    parts = [fits.PrimaryHDU(), fits.ImageHDU(data, name="SCI")] if extension else [fits.PrimaryHDU(data)]
    path, name = written(tmp_path / "a.fits", *parts), "SCI" if extension else "PRIMARY"
    expected = fits.getdata(path, name)
    array = ooc.open_array(f"{path}/{name}")
    assert array.dtype == expected.dtype.newbyteorder("=") == np.dtype(dtype)
    assert array.zarr.metadata.dimension_names == tuple("wzyx"[-len(shape) :])  # type: ignore[union-attr]
    np.testing.assert_array_equal(array[...], expected)
    keys: list[Any] = [(-1,), (slice(1, 9, 2),), (slice(0, 0),), (..., 5), (..., slice(None, None, -3))]
    keys += [(slice(1, 9, 2), ..., slice(3, 9, 2))] * (len(shape) > 1)
    for key in keys:
        np.testing.assert_array_equal(array[key], expected[key])
    again = pickle.loads(pickle.dumps(ooc.open_files(path)))
    np.testing.assert_array_equal(zarr.open_group(again, mode="r")[name][...], expected)  # type: ignore[index]


@pytest.mark.parametrize("dtype", ["i4", "u2"])
def test_an_image_larger_than_memory_is_read_in_rows(tmp_path: Path, dtype: str) -> None:
    """A sparse file of 64 GiB, whose chunks are rows of 4 MiB at most: one row of it is longer than that."""
    shape, size = (16, 2**15, 2**32 // (2**17 // 4) // np.dtype(dtype).itemsize), np.dtype(dtype).itemsize
    path = tmp_path / "a.fits"
    header = fits.PrimaryHDU(np.zeros((1, 1, 1), dtype)).header
    header["NAXIS3"], header["NAXIS2"], header["NAXIS1"] = shape
    begin = len(header.tostring())
    with path.open("wb") as file:
        file.write(header.tostring().encode())
        file.truncate(begin + size * int(np.prod(shape)))
        file.seek(begin + size * int(np.ravel_multi_index((9, 12345, 678), shape)))
        file.write(np.array([7, 8, 9], f">{dtype}" if dtype[0] == "i" else ">i2").tobytes())
    array = ooc.open_array(f"{path}/PRIMARY")
    assert array.shape == shape
    assert np.prod(array.chunks) * size <= 2**22
    zero = 0 if dtype[0] == "i" else 2**15
    assert (array[9, 12345, 676:683] - zero).tolist() == [0, 0, 7, 8, 9, 0, 0]
    assert (array[15, -1, -3:] == zero).all()


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8"])
@pytest.mark.parametrize(("scale", "zero"), [(0.5, 0.0), (1.0, 273.25), (-2.0, 32768.0), (1.0, 0.0)])
def test_scaled_integers_and_blanks_are_decoded_by_xarray(
    tmp_path: Path, dtype: str, scale: float, zero: float
) -> None:
    stored = np.random.default_rng(4).integers(0, 100, (9, 14)).astype(dtype)
    part = fits.PrimaryHDU(stored)
    part.header["BLANK"] = 55
    part.header["BSCALE"], part.header["BZERO"] = scale, zero
    stored[2, 3] = 55
    path = tmp_path / "a.fits"
    raw(path, part.header, stored)
    array = ooc.open_array(f"{path}/PRIMARY")
    np.testing.assert_array_equal(array[...], stored)
    attributes = {"scale_factor": scale} if scale != 1 else {}
    attributes |= ({"add_offset": zero} if zero else {}) | {"_FillValue": 55}
    assert array.zarr.attrs.asdict() == attributes
    with fits.open(path, ignore_missing_end=True, ignore_missing_simple=True) as opened:
        expected = opened[0].data
    expected = expected if expected.dtype.kind == "f" else np.where(stored == 55, np.nan, expected)
    assert np.isnan(expected[2, 3])
    with xr.open_dataset(path, engine="oocarrays") as found:
        np.testing.assert_allclose(found.PRIMARY.values, expected, rtol=1e-6)
        assert found.PRIMARY.encoding["_FillValue"] == 55
    ooc.rechunk(path, tmp_path / "a.zarr", chunks={"PRIMARY": (3, 7)}, **HERE).run()
    with xr.open_zarr(tmp_path / "a.zarr", consolidated=False) as found:
        np.testing.assert_allclose(found.PRIMARY.values, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", SIGNS)
def test_blanks_of_integers_of_the_other_sign_are_moved_with_them(tmp_path: Path, dtype: str) -> None:
    part = fits.PrimaryHDU(values(dtype))
    part.header["BLANK"] = {"i1": 0, "u2": -(2**15), "u4": -(2**31), "u8": -(2**63)}[dtype]
    path = tmp_path / "a.fits"
    kind = f"i{part.data.itemsize}" if dtype != "i1" else "u1"
    raw(path, part.header, (part.data.astype("O") - int(part.header["BZERO"])).astype(kind))
    array = ooc.open_array(f"{path}/PRIMARY")
    np.testing.assert_array_equal(array[...], part.data)
    assert array.zarr.attrs.asdict() == {"_FillValue": np.iinfo(dtype).min}


def test_scaled_floats_are_decoded_by_xarray(tmp_path: Path) -> None:
    part = fits.PrimaryHDU(values("f4"))
    part.header["BSCALE"], part.header["BZERO"] = 2.0, 1.0
    path = tmp_path / "a.fits"
    raw(path, part.header, part.data)
    with fits.open(path) as opened, xr.open_dataset(path, engine="oocarrays") as found:
        np.testing.assert_allclose(found.PRIMARY.values, opened[0].data, rtol=1e-6)


def test_axes_without_elements_and_parts_without_axes(tmp_path: Path) -> None:
    empty, none = fits.ImageHDU(np.zeros((0, 5), "i2"), name="EMPTY"), fits.ImageHDU(name="NONE")
    none.header["NOTE"] = "no data"
    path = written(tmp_path / "a.fits", fits.PrimaryHDU(), empty, none)
    group = ooc.open_group(path)
    assert list(group) == ["EMPTY"]
    assert group["EMPTY"].shape == (0, 5)
    assert group["EMPTY"][...].shape == (0, 5)
    below = group.zarr["NONE"]
    assert isinstance(below, zarr.Group)
    assert below.attrs["NOTE"] == "no data"
    written(tmp_path / "b.fits", fits.PrimaryHDU())
    assert list(ooc.open_group(tmp_path / "b.fits")) == []


# ---------------------------------------------------------------------- headers and names


def test_cards_are_attributes(tmp_path: Path) -> None:
    part = fits.PrimaryHDU(values("i2"))
    header = part.header
    header["OBJECT"], header["OBSERVER"], header["EMPTY"] = "M 31", "O'Hara / Smith", ""
    header["EXPTIME"], header["MJD"], header["COUNT"], header["GAIN"] = 1.5e-30, 60000.123456789, -7, 1e20
    header["FLAG"], header["OTHER"], header["NOTHING"] = True, False, None
    header["LONG"] = "abc 'quoted' " * 20
    header["HIERARCH ESO TEL AIRM START"], header["HIERARCH ESO NAME"] = 1.25, "VLT"
    header["CRVAL1"], header["CTYPE1"], header["BUNIT"] = 10.68, "RA---TAN", "s"
    header.add_comment("first")
    header.add_comment("second  word")
    header.add_history("made " * 30)
    path = written(tmp_path / "a.fits", part)
    with fits.open(path) as opened:
        expected = cards(opened[0].header)
    assert len(expected) == 18
    assert dict(ooc.open_array(f"{path}/PRIMARY").zarr.attrs) == expected
    assert ooc.open_group(path).attrs == expected


@pytest.mark.parametrize(
    ("card", "value"),
    [
        ("D       =              1.5D+03", 1500.0), ("D       = 1.5d-3 / of a second", 0.0015), ("D       =", None),
        ("D       = 'a''b    '", "a'b"), ("D       =   007", 7), ("D       = (1.0, 2.0)", "(1.0, 2.0)"),
        ("D       = 1E999", "1E999"), ("D       = '   lead'", "   lead"),
    ],
)  # fmt: skip
def test_cards_that_others_write(tmp_path: Path, card: str, value: Any) -> None:
    head = fits.PrimaryHDU(values("i2")).header.tostring(endcard=False, padding=False)
    text = f"{head}{card:80}{'D       = 9':80}{'END':80}"
    (tmp_path / "a.fits").write_bytes(f"{text:{-(-len(text) // 2880) * 2880}}".encode() + bytes(2880))
    assert ooc.open_array(tmp_path / "a.fits/PRIMARY").zarr.attrs["D"] == value


def test_parts_are_named_by_extname_and_extver_or_number(tmp_path: Path) -> None:
    named = [("SCI", 1), ("ERR", 1), ("SCI", 2), ("a/b", 1), ("", 1), ("7", 1), ("SCI", 2), ("__x", 1), ("c", 1)]
    parts = [fits.ImageHDU(np.full((3, 4), n, "f4"), name=name, ver=ver) for n, (name, ver) in enumerate(named, 1)]
    path = written(tmp_path / "a.fits", fits.PrimaryHDU(np.zeros((3, 4), "i2")), *parts)
    group = ooc.open_group(path)
    names = ["PRIMARY", "SCI_1", "ERR", "3", "4", "5", "6", "7", "8", "C"]
    assert set(group) == set(names)
    for number, name in enumerate(names):
        assert (group[name][...] == number).all()
    with pytest.raises(NotFoundError, match="no Zarr array in"):
        ooc.open_array(f"{path}/SCI")


def test_axes_of_unlike_images_have_names_of_their_own(tmp_path: Path) -> None:
    parts = [fits.ImageHDU(np.zeros(shape, "f4"), name=name) for name, shape in (("A", (3, 4)), ("B", (5, 4)))]
    path = written(tmp_path / "a.fits", fits.PrimaryHDU(), *parts)
    with xr.open_dataset(path, engine="oocarrays") as found:
        assert dict(found.sizes) == {"y_A": 3, "y_B": 5, "x": 4}


# ---------------------------------------------------------------------- jobs


def test_files_are_joined_stacked_and_rechunked(tmp_path: Path) -> None:
    for night, dtype in itertools.product(range(3), ("u2", "f4")):
        written(tmp_path / f"{dtype}{night}.fits", fits.PrimaryHDU(np.roll(values(dtype), night)))
    for dtype in ("u2", "f4"):
        paths = [tmp_path / f"{dtype}{night}.fits" for night in range(3)]
        wild, expected = f"{tmp_path}/{dtype}*.fits", [fits.getdata(path) for path in paths]
        how: dict[str, Any] = {"chunks": {"PRIMARY": (3, 3, 7)}, **HERE}
        made = flat(ooc.rechunk, ooc.open_files(wild, concat_dim="night"), tmp_path / f"{dtype}.zarr", **how).run()
        np.testing.assert_array_equal(made["PRIMARY"][...], np.stack(expected))
        long = ooc.open_group(ooc.open_files(wild, concat_dim="y"))["PRIMARY"]
        np.testing.assert_array_equal(long[...], np.concatenate(expected))
        np.testing.assert_array_equal(long[5:20:3, 2:9], np.concatenate(expected)[5:20:3, 2:9])


def test_images_of_other_packing_are_unpacked_as_they_are_joined(tmp_path: Path) -> None:
    stored = np.arange(126, dtype="i2").reshape(9, 14)
    for night, zero in enumerate((0.0, 100.0)):
        part = fits.PrimaryHDU(stored)
        part.header["BSCALE"], part.header["BZERO"] = 0.5, zero
        raw(tmp_path / f"{night}.fits", part.header, stored)
    expected = np.stack([fits.getdata(tmp_path / f"{night}.fits") for night in range(2)])
    found = ooc.open_group(ooc.open_files(tmp_path / "*.fits", concat_dim="night"))["PRIMARY"]
    np.testing.assert_allclose(found[...], expected)


def test_a_pyramid_of_an_image(tmp_path: Path) -> None:
    written(tmp_path / "a.fits", fits.PrimaryHDU(values("u2", (3, 40, 60))))
    words = [f"{tmp_path}/a.fits/PRIMARY", f"{tmp_path}/b.zarr", "--levels", "2", "--factor", "y=2,x=2", "--quiet"]
    assert main(["pyramid", *words]) == 0
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "b.zarr/0")[...], values("u2", (3, 40, 60)))


# ---------------------------------------------------------------------- what is not read


def odd(path: Path) -> Path:
    table = fits.BinTableHDU.from_columns([fits.Column("a", "E", array=np.ones(3, "f4"))], name="EVENTS")
    text = fits.TableHDU.from_columns([fits.Column("a", "I4", array=np.arange(3))], name="LIST")
    coded = fits.CompImageHDU(np.arange(400, dtype="i2").reshape(20, 20), name="CODED")
    return written(path, fits.PrimaryHDU(), table, text, coded, fits.ImageHDU(values("i2"), name="SCI"))


LEFT_OUT = {"EVENTS": "holds a table", "LIST": "holds a table", "CODED": "holds a tile-compressed image"}


def test_tables_and_compressed_images_are_left_out_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = odd(tmp_path / "a.fits")
    with pytest.warns(SkippedArraysWarning, match="3 left out.*EVENTS holds a table.*CODED holds a tile-compressed"):
        group = ooc.open_group(path)
    assert list(group) == ["SCI"]
    np.testing.assert_array_equal(ooc.open_array(f"{path}/SCI")[...], values("i2"))
    assert main(["info", str(path)]) == 0
    said = capsys.readouterr().out
    for name, why in LEFT_OUT.items():
        assert f"left out: {name} {why}" in said
        with pytest.raises(UnsupportedError, match=f"{name} in .* {why}"):
            ooc.open_array(f"{path}/{name}")


def test_random_groups_are_left_out(tmp_path: Path) -> None:
    groups = fits.GroupData(np.zeros((3, 4, 5), "f4"), bitpix=-32, parnames=["U"], pardata=[np.arange(3.0)])
    path = written(tmp_path / "a.fits", fits.GroupsHDU(groups), fits.ImageHDU(values("i2"), name="SCI"))
    with pytest.warns(SkippedArraysWarning, match="PRIMARY holds random groups"):
        group = ooc.open_group(path)
    np.testing.assert_array_equal(group["SCI"][...], fits.getdata(path, "SCI"))


def changed(whole: bytes, card: str, text: str) -> bytes:
    at = whole.index(f"{card:8}=".encode())
    return whole[:at] + f"{card:8}= {text:>20}".ljust(80).encode() + whole[at + 80 :]


DAMAGE = {
    "data end early": (lambda w: w[: 5760 + 40], "its data end at byte 6012, and the file at byte 5800"),
    "header ends early": (lambda w: w[:2000], "header 0: the file ends within it"),
    "second header ends early": (lambda w: w[:5000], "header 1: the file ends within it"),
    "BITPIX": (lambda w: changed(w, "BITPIX", "12"), "header 0: BITPIX is 12"),
    "NAXIS": (lambda w: changed(w, "NAXIS", "1"), "header 0: it has no card 'NAXIS1'"),
    "NAXIS is a text": (lambda w: changed(w, "NAXIS", "'two'"), "header 0: NAXIS is 'two'"),
    "SIMPLE": (lambda w: changed(w, "SIMPLE", "F"), "header 0: SIMPLE is False"),
    "no END": (lambda w: w.replace(b"END".ljust(80), b"AND".ljust(80)), "header 0: .*"),
    "not ASCII": (lambda w: w[:200] + b"\xff" + w[201:], "header 0: .*ascii"),
}  # fmt: skip


@pytest.mark.parametrize("door", ["open_group", "open_array", "xarray", "info"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_one_line(tmp_path: Path, damage: str, door: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "a.fits", fits.PrimaryHDU(), fits.ImageHDU(values("i2"), name="SCI"))
    harm, match = DAMAGE[damage]
    path.write_bytes(harm(path.read_bytes()))
    if door == "info":
        assert main(["info", str(path)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
        return
    how: Any = {
        "open_group": lambda: ooc.open_group(path), "open_array": lambda: ooc.open_array(f"{path}/SCI"),
        "xarray": lambda: xr.open_dataset(path, engine="oocarrays"),
    }  # fmt: skip
    with pytest.raises(NotFoundError, match=rf"a\.fits is a damaged FITS file: .*({match})") as caught:
        how[door]()
    assert "\n" not in str(caught.value)


def test_what_follows_the_last_part_is_passed_over_and_its_padding_may_be_missing(tmp_path: Path) -> None:
    path = written(tmp_path / "a.fits", fits.PrimaryHDU(values("i2")))
    whole = path.read_bytes()
    for content in (whole + b"special records" * 99, whole[: 2880 + 252], whole + bytes(10)):
        path.write_bytes(content)
        np.testing.assert_array_equal(ooc.open_array(f"{path}/PRIMARY")[...], values("i2"))


def test_a_file_that_changes_is_looked_at_again(tmp_path: Path) -> None:
    path = written(tmp_path / "a.fits", fits.PrimaryHDU(values("u2")))
    assert ooc.open_array(f"{path}/PRIMARY").shape == (9, 14)
    written(path, fits.PrimaryHDU(values("u2", (14, 9))))
    np.testing.assert_array_equal(ooc.open_array(f"{path}/PRIMARY")[...], values("u2", (14, 9)))
