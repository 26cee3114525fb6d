"""HDF5 files with datasets that Zarr cannot hold, beside those that it can; h5py is the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import SkippedArraysWarning, UnsupportedError

h5py = pytest.importorskip("h5py")

pytestmark = [
    pytest.mark.long,
    pytest.mark.sampled(1),
    pytest.mark.filterwarnings("ignore:The data type"),
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
]
STRUCTURES: dict[str, Any] = {
    "pair": [("a", "i4"), ("b", "f8")],
    "big": [("a", ">i4"), ("b", ">f8")],
    "padded": np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"], "offsets": [3, 16], "itemsize": 32}),
    "nested": [("a", "i4"), ("p", [("x", "i2"), ("y", ">i2")])],
    "text": [("a", "i4"), ("s", "S3")],
}
LEFT_OUT = {
    "null": r"holds nothing \(a null dataspace\)",
    "references": "holds references to objects",
    "regions": "holds references to objects",
    "lists": "holds lists of unequal lengths",
    "subarray": r"holds elements of type \[",
    "texts": r"holds elements of type \[",
}


def values(dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Elements that differ in every number, nested ones too."""
    made, number = np.zeros(shape, dtype), np.arange(np.prod(shape)).reshape(shape)
    for name in made.dtype.names or ():
        if made[name].dtype.names:
            made[name] = values(made[name].dtype, shape)
        else:
            made[name] = number % 100 + len(name)
    return made


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "odd.h5", "w") as file:
        file.create_dataset("good", data=np.arange(60.0).reshape(12, 5), chunks=(4, 5), compression="gzip")
        for name, dtype in STRUCTURES.items():
            file.create_dataset(f"kept/{name}", data=values(dtype, (7, 3)), chunks=(4, 2))
            file.create_dataset(f"plain/{name}", data=values(dtype, (7,)))
        file.create_dataset("kept/opaque", data=np.array([b"ab", b"cd"], "V2"))
        file.create_dataset("kept/enum", data=np.array([0, 1], h5py.enum_dtype({"A": 0, "B": 1}, basetype="u1")))
        file.create_dataset("kept/bool", data=np.array([True, False]))
        file["null"] = h5py.Empty("f4")
        file.create_dataset("references", (1,), h5py.ref_dtype)[0] = file["good"].ref
        file.create_dataset("regions", (1,), h5py.regionref_dtype)[0] = file["good"].regionref[:2]
        file.create_dataset("lists", (2,), h5py.vlen_dtype("i4"))[0] = [1, 2]
        file["subarray"] = np.zeros(2, [("a", "i4"), ("v", "f4", (3,))])
        file["texts"] = np.array([(1, "x")], [("a", "i4"), ("s", h5py.string_dtype())])
    return tmp_path / "odd.h5"


def test_arrays_that_zarr_holds_are_read_as_h5py_reads_them(odd: Path) -> None:
    with pytest.warns(SkippedArraysWarning, match="6 left out"):
        group = ooc.open_group(odd)
    with h5py.File(odd) as file:
        paths: list[str] = []
        file.visititems(lambda path, node: paths.append(path) if isinstance(node, h5py.Dataset) else None)
        assert sorted(group) == sorted(set(paths) - LEFT_OUT.keys())
        for name in group:
            found, expected = group[name][...], file[name][...]
            assert found.dtype.names == expected.dtype.names
            for field in expected.dtype.names or (None,):
                one, other = (found, expected) if field is None else (found[field], expected[field])
                assert one.tolist() == other.tolist(), (name, field)
            if expected.ndim == 2:
                assert group[name][1:6:2, 1:].tolist() == file[name][1:6:2, 1:].tolist()


@pytest.mark.parametrize(("name", "why"), LEFT_OUT.items(), ids=LEFT_OUT)
def test_an_array_that_is_left_out_says_why_where_it_is_named(
    odd: Path, name: str, why: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UnsupportedError, match=f"^{name} in .*odd.h5 {why}.*, which Zarr does not have"):
        ooc.open_array(f"{odd}/{name}")
    with pytest.warns(SkippedArraysWarning, match=f"{name} {why}"):
        ooc.open_group(odd)
    assert main(["info", f"{odd}/{name}"]) == 2
    said = capfd.readouterr().err
    assert said.startswith("oocarrays: ")
    assert said.count("\n") == 1


def test_info_names_what_is_left_out(odd: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(odd)]) == 0
    said, err = capfd.readouterr()
    for name in LEFT_OUT:
        assert f"left out: {name} holds" in said
    assert "Traceback" not in err
    assert main(["info", "--json", str(odd)]) == 0
    assert json.loads(capfd.readouterr().out)["skipped"].keys() == LEFT_OUT.keys()


def test_a_group_is_rechunked_without_them(odd: Path, tmp_path: Path) -> None:
    with pytest.warns(SkippedArraysWarning):
        ooc.rechunk(odd, tmp_path / "a.zarr", chunks={"good": (12, 2)}, memory="64MiB", scheduler="threads").run()
    made = zarr.open_group(tmp_path / "a.zarr", mode="r")
    with h5py.File(odd) as file:
        assert (made["good"][...] == file["good"][...]).all()
        assert made["kept/nested"][...].tolist() == file["kept/nested"][...].tolist()


# ------------------------------------------------------------------------------- files as programs write them


def anndata(file: Any) -> None:
    file.attrs["encoding-type"] = "anndata"
    file.create_dataset("X/data", data=np.arange(9, dtype="f4"))
    file.create_dataset("X/indices", data=np.arange(9, dtype="i4") % 4)
    file.create_dataset("obs/_index", data=np.array(["a", "b"], dtype=object), dtype=h5py.string_dtype())
    file.create_dataset("obs/kind/codes", data=np.zeros(2, "i1"))
    file.create_dataset("uns/empty", data=h5py.Empty("f8"))


def nwb(file: Any) -> None:
    file.create_dataset("acquisition/ecephys/data", data=np.arange(400, dtype="i2").reshape(100, 4), chunks=(25, 4))
    file.create_dataset("electrodes/group", (2,), h5py.ref_dtype)[0] = file["acquisition"].ref
    file.create_dataset("units/timeseries", (2,), [("start", "i4"), ("count", "i4"), ("of", h5py.ref_dtype)])
    file["session_start_time"] = "2020-01-01"


def gedi(file: Any) -> None:
    file.create_dataset("BEAM0000/rh", data=np.arange(200, dtype="f4").reshape(20, 10), chunks=(5, 10))
    file.create_dataset("BEAM0000/shot_number", data=np.arange(20, dtype="u8"))
    file.create_dataset("METADATA/DatasetIdentification", data=h5py.Empty("S1"))


def pytables(file: Any) -> None:
    file.attrs["CLASS"] = np.bytes_("GROUP")
    rows = np.array([(1, 2.0, b"x")] * 9, [("i", "<i8"), ("f", "<f4"), ("s", "S8")])
    file.create_dataset("table", data=rows, chunks=(4,), maxshape=(None,))
    file.create_dataset("vlarray", (2,), h5py.vlen_dtype("f8"))
    file.create_dataset("earray", data=np.arange(8.0), chunks=(4,), maxshape=(None,))


def matlab(file: Any) -> None:
    made = file.create_dataset("field", data=np.arange(6.0).reshape(3, 2))
    made.attrs["MATLAB_class"] = np.bytes_("double")
    file.create_dataset("cell", (1, 2), h5py.ref_dtype)[0, 0] = made.ref
    file.create_dataset("text", data=np.array([[104], [105]], "u2")).attrs["MATLAB_class"] = np.bytes_("char")
    file.create_dataset("#refs#/a", data=np.zeros(2, "u8"))


@pytest.mark.parametrize("build", [anndata, nwb, gedi, pytables, matlab])
@pytest.mark.filterwarnings("ignore::oocarrays.errors.SkippedArraysWarning")
def test_files_of_well_known_programs_open(tmp_path: Path, build: Any, capfd: pytest.CaptureFixture[str]) -> None:
    block = 512 if build is matlab else 0
    with h5py.File(tmp_path / "a.mat", "w", userblock_size=block) as file:
        build(file)
    group = ooc.open_group(tmp_path / "a.mat")
    assert group
    with h5py.File(tmp_path / "a.mat") as file:
        for name, array in group.items():
            expected = file[name]
            texts = h5py.check_string_dtype(expected.dtype) is not None
            found = array.zarr[...] if texts else array[...]
            assert np.asarray(found).tolist() == np.asarray(expected.asstr()[...] if texts else expected[...]).tolist()
    assert main(["info", str(tmp_path / "a.mat")]) == 0
    assert "Traceback" not in capfd.readouterr().err


# ------------------------------------------------------------------------------------------------ stored bytes


def stored(place: Path, capsys: pytest.CaptureFixture[str]) -> int:
    assert main(["info", "--json", str(place)]) == 0
    told = json.loads(capsys.readouterr().out)
    return int((told["members"]["x"] if "members" in told else told)["stored_bytes"])


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_bytes_stored_are_those_of_the_file(
    tmp_path: Path, compression: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tifffile = pytest.importorskip("tifffile")
    data = np.zeros((6, 64, 64), "u2")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=data, chunks=(1, 64, 64), compression=compression)
    with h5py.File(tmp_path / "a.h5") as file:
        assert stored(tmp_path / "a.h5", capsys) == file["x"].id.get_storage_size()
    how = {"compression": "zlib", "predictor": 2} if compression else {}
    tifffile.imwrite(tmp_path / "a.ome.tif", data, **how, tile=(32, 32))
    assert 0 < stored(tmp_path / "a.ome.tif", capsys) <= (tmp_path / "a.ome.tif").stat().st_size
    np.save(tmp_path / "a.npy", data)
    assert stored(tmp_path / "a.npy", capsys) == data.nbytes
