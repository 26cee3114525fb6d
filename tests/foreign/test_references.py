"""References of kerchunk and of VirtualiZarr to files of NetCDF-4."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from kerchunk.hdf import SingleHdf5ToZarr
from zarr.storage import StorePath

import oocarrays as ooc
from oocarrays.errors import RunError
from tests.flat import flat

AIR = np.random.default_rng(7).normal(280, 10, (24, 20, 30)).astype("f4")
HERE: dict[str, Any] = {"scheduler": "threads", "memory": "64MiB"}


@pytest.fixture
def day(tmp_path: Path) -> Path:
    data = xr.Dataset({"air": (("time", "lat", "lon"), AIR)}, coords={"lat": np.arange(20.0), "time": np.arange(24)})
    encoding = {"air": {"zlib": True, "shuffle": True, "chunksizes": (6, 20, 10)}}
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding=encoding)
    return tmp_path / "a.nc"


@pytest.fixture
def referenced(day: Path) -> dict[str, Any]:
    made = SingleHdf5ToZarr(str(day), inline_threshold=0).translate()
    (day.parent / "refs.json").write_text(json.dumps(made))
    return {"fo": f"{day.parent}/refs.json", "remote_protocol": "file", "asynchronous": True}


def test_ranges_of_local_files_are_read_by_pread_and_decoded_by_numcodecs(
    tmp_path: Path, referenced: dict[str, Any]
) -> None:
    a = ooc.open_array("reference://air", storage_options=referenced)
    assert (a._file.stored.local, a._file.stored.codec) == (True, "shuffle+zlib")
    np.testing.assert_array_equal(a[...], AIR)
    np.testing.assert_array_equal(a[3, 5:9, ::7], AIR[3, 5:9, ::7])
    job = ooc.rechunk(
        "reference://air",
        tmp_path / "b.zarr",
        chunks=(24, 5, 5),
        storage_options=referenced,
        resources=ooc.Resources(ranks=1),
        **HERE,
    )
    np.testing.assert_array_equal(job.run()[...], AIR)
    assert (job.meter.read_requests, job.meter.decoded_bytes) == (12, AIR.nbytes)


def test_a_group_of_references_is_a_source(tmp_path: Path, referenced: dict[str, Any]) -> None:
    how: Any = {"storage_options": referenced, **HERE}
    flat(ooc.rechunk, "reference://", tmp_path / "g.zarr", chunks={"air": (24, 5, 5)}, **how).run()
    made = ooc.open_group(tmp_path / "g.zarr")
    np.testing.assert_array_equal(made["air"][...], AIR)
    np.testing.assert_array_equal(made["lat"][...], np.arange(20.0))


def test_a_file_that_has_changed_is_an_error(day: Path, referenced: dict[str, Any]) -> None:
    a = ooc.open_array("reference://air", storage_options=referenced)
    assert a[0, 0, 0] == AIR[0, 0, 0]
    day.write_bytes(day.read_bytes()[:-100])
    with pytest.raises(RunError, match="has changed since it was opened"):
        a[...]


def test_bytes_that_a_file_lacks_are_an_error_and_no_fill_value(tmp_path: Path) -> None:
    AIR.tofile(tmp_path / "a.raw")
    encoding = {"shape": AIR.shape, "chunks": (6, 20, 30), "dtype": "<f4", "order": "C", "fill_value": None}
    refs = {".zarray": json.dumps({"zarr_format": 2, "compressor": None, "filters": None, **encoding})}
    refs |= {f"{k}.0.0": [f"{tmp_path}/a.raw", k * AIR.nbytes // 4, AIR.nbytes // 4] for k in range(4)}
    (tmp_path / "refs.json").write_text(json.dumps({"version": 1, "refs": refs}))
    how = {"fo": f"{tmp_path}/refs.json", "remote_protocol": "file", "asynchronous": True}
    np.testing.assert_array_equal(ooc.open_array("reference://", storage_options=how)[...], AIR)
    (tmp_path / "a.raw").write_bytes(AIR.tobytes()[:-100])
    with pytest.raises(ooc.OocError):
        ooc.open_array("reference://", storage_options=how)[...]


@pytest.mark.filterwarnings("ignore")
def test_a_store_of_manifests_is_a_source(day: Path, tmp_path: Path) -> None:
    parsers = pytest.importorskip("virtualizarr.parsers")
    registries = pytest.importorskip("obspec_utils.registry")
    from obstore.store import LocalStore

    registry = registries.ObjectStoreRegistry({"file:///": LocalStore()})
    manifests = parsers.HDFParser()(url=f"file://{day}", registry=registry)
    np.testing.assert_array_equal(ooc.open_array(StorePath(manifests, "air"))[2:5], AIR[2:5])
    job = ooc.rechunk(StorePath(manifests, "air"), tmp_path / "b.zarr", chunks=(24, 5, 5), **HERE)
    np.testing.assert_array_equal(job.run()[...], AIR)
    made = ooc.rechunk(manifests, tmp_path / "g.zarr", chunks={"air": (24, 5, 5)}, **HERE).run()
    np.testing.assert_array_equal(made["air"][...], AIR)
    np.testing.assert_array_equal(made["lat"][...], np.arange(20.0))
