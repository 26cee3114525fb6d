"""xarray's own tests of its engines for Zarr and NetCDF, of what our engine opens.

writing      by xarray: Zarr, h5netcdf, scipy; what its tests write by netCDF4 is written by h5netcdf
opening      by our engine, whichever engine a test names
left out     stores in memory and consolidated twice over, netCDF4's, pydap's and remote files: each is another engine's
differing    the tests in differences.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from xarray.backends import plugins
from xarray.tests import conftest as fixtures, test_backends as backends, test_backends_datatree as trees

from oocarrays.xarray import stored_in
from tests.peers import engine
from tests.peers.conftest import COLLECTED
from tests.peers.differences import LEFT_OUT, LISTED, covers

xr.set_options(warn_for_unclosed_files=False)  # to import xarray's tests sets that, for the tests of other files, too
pytestmark = [
    pytest.mark.long,
    pytest.mark.sampled,
    pytest.mark.filterwarnings("ignore:Consolidated metadata"),
    pytest.mark.filterwarnings("ignore:The data type"),
]
FIXTURES = ("use_dask", "backend", "time_unit", "create_test_datatree", "simple_datatree", "byte_attrs_dataset")
globals().update({name: getattr(fixtures, name) for name in FIXTURES if hasattr(fixtures, name)})
default_zarr_format = backends.default_zarr_format
unaligned_datatree_zarr_factory = trees.unaligned_datatree_zarr_factory


@pytest.fixture(autouse=True)
def ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Open by our engine, whichever a test names."""
    monkeypatch.setattr(plugins, "get_backend", lambda _: engine.Ours())
    monkeypatch.setattr(plugins, "guess_engine", lambda *_, **__: "oocarrays")
    for module in (backends, trees):
        monkeypatch.setattr(module, "nc4", engine, raising=False)
    monkeypatch.chdir(tmp_path)
    np.random.seed(0)  # xarray's tests draw of it


class TestZarr(backends.TestZarrWriteEmpty):
    """Groups in folders."""


class TestNetCDF(backends.TestH5NetCDFData):
    """NetCDF-4 files."""


class TestNetCDF3(backends.TestScipyFilePath):
    """NetCDF-3 files."""


class TestZarrTrees(trees.TestZarrDatatreeIO):
    """Trees of groups in folders."""


class TestNetCDFTrees(trees.TestH5NetCDFDatatreeIO):
    """Trees of groups in NetCDF-4 files."""


def test_what_these_tests_open_is_opened_by_our_engine(tmp_path: Path) -> None:
    made = xr.Dataset({"a": ("x", np.arange(3.0))})
    made.to_zarr(tmp_path / "a.zarr")
    made.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    for found in (
        xr.open_zarr(tmp_path / "a.zarr", chunks=None),
        xr.open_dataset(tmp_path / "a.nc", engine="h5netcdf"),
        xr.open_datatree(tmp_path / "a.nc", engine="netcdf4").to_dataset(),
    ):
        assert stored_in(found.a.variable) is not None
        xr.testing.assert_identical(found, made)


def test_what_differs_is_still_among_the_tests(request: pytest.FixtureRequest) -> None:
    names = [*LISTED, *LEFT_OUT]
    for name in names:
        suite, test = name.split("[")[0].split(".")
        assert hasattr(globals()[suite], test), name
    collected = request.config.stash.get(COLLECTED, None)
    if collected is not None:
        assert not [name for name in names if not any(covers(name, test) for test in collected)]
