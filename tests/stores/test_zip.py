"""Zip files: read whether or not they have been opened; no target of a run, for nothing in them can be replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from zarr.storage import ZipStore

import oocarrays as ooc
from oocarrays.errors import NotFoundError, TargetError

DATA = np.arange(144.0).reshape(12, 12)
HERE: dict[str, Any] = {"scheduler": "threads"}


@pytest.fixture
def zipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zip file of an array, in the folder in which the test works."""
    monkeypatch.chdir(tmp_path)
    with ZipStore(tmp_path / "a.zip", mode="w") as store:
        zarr.create_array(store, data=DATA, chunks=(3, 12))
    return tmp_path / "a.zip"


READS: dict[str, Callable[[ZipStore], Any]] = {
    "open": lambda store: ooc.open_array(store)[...],
    "lazy": lambda store: ooc.open_array(store).to_dask().compute(**HERE),
    "rechunk": lambda store: ooc.rechunk(store, "new.zarr", chunks=(12, 3), **HERE).run()[...],
    "sections": lambda store: ooc.read_sections(store, [...], **HERE).compute()[0],
    "scatter": lambda store: ooc.scatter_files(store, "(block, *)", "files", ranks=2, **HERE).run()[...],
    "slabs": lambda store: ooc.map_slabs(abs, store, "new.zarr", **HERE).run()[...],
}


@pytest.mark.usefixtures("zipped")
@pytest.mark.parametrize("read", READS)
def test_one_that_was_never_opened_is_read(read: str) -> None:
    np.testing.assert_array_equal(READS[read](ZipStore("a.zip")), DATA)


@pytest.mark.usefixtures("zipped")
def test_one_that_is_not_there_or_is_none_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("no zip file")
    for name, says in {"no.zip": "no such store: zip://", "text.zip": "cannot be opened as a zip file"}.items():
        for call in (ooc.open_array, ooc.open_group):
            with pytest.raises(NotFoundError, match=says):
                call(ZipStore(name))


WRITES: dict[str, Callable[[ZipStore], Any]] = {
    "rechunk": lambda store: ooc.rechunk("a.zarr", store, chunks=(12, 3), **HERE),
    "slabs": lambda store: ooc.map_slabs(abs, "a.zarr", store, **HERE),
    "from_dask": lambda store: ooc.from_dask(da.zeros((12, 12)), store, **HERE),
    "gather": lambda store: ooc.gather_files("files", store, **HERE),
    "group": lambda store: ooc.rechunk("group.zarr", store, chunks={"a": 4}, **HERE),
    "resume": lambda store: ooc.resume(store, **HERE),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("is_open", [False, True], ids=["never opened", "open"])
def test_none_is_a_target(zipped: Path, tmp_path: Path, write: str, is_open: bool) -> None:
    zarr.create_array("a.zarr", data=DATA, chunks=(3, 12))
    zarr.create_group("group.zarr").create_array("a", data=DATA, chunks=(3, 12))
    ooc.create_array("files", shape=(12, 12), dtype="f8", layout="(block, *)", ranks=2, placement="local")
    target = ZipStore(tmp_path / "new.zip", mode="w")
    if is_open:
        target._sync_open()
    with pytest.raises(TargetError, match="nothing can be replaced or removed, such as a zip file: write to a folder"):
        WRITES[write](target)
    assert (tmp_path / "new.zip").exists() == is_open


def test_lazy_arrays_are_not_stored_in_one(zipped: Path) -> None:
    with pytest.raises(TargetError, match="write to a folder"):
        ooc.store(da.zeros((12, 12), chunks=3), ZipStore(zipped, mode="a"), **HERE)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_is_made_in_one(tmp_path: Path) -> None:
    store = ZipStore(tmp_path / "new.zip", mode="w")
    ooc.create_array(store, shape=(4,), dtype="f4")[...] = np.arange(1, 5)
    store.close()
    np.testing.assert_array_equal(ooc.open_array(ZipStore(tmp_path / "new.zip"))[...], np.arange(1, 5))
