"""Sessions of icechunk, as targets: committed by their owner, read by any session."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from zarr.storage import StorePath

import oocarrays as ooc
from oocarrays.errors import TargetError
from oocarrays.stored.array import placer

icechunk = pytest.importorskip("icechunk")
DATA = np.arange(12000.0).reshape(100, 120)
HERE: dict[str, Any] = {"scheduler": "threads", "memory": "64MiB"}


@pytest.fixture
def repository() -> Any:
    return icechunk.Repository.create(icechunk.in_memory_storage())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    zarr.create_array(tmp_path / "a.zarr", data=DATA, chunks=(10, 120))
    return tmp_path / "a.zarr"


def committed(repository: Any, session: Any, path: str = "") -> np.ndarray:
    session.commit("done")
    store = repository.readonly_session("main").store
    assert [key for key in zarr.open(store, mode="r").attrs if "oocarrays" in key] == []
    found: np.ndarray = ooc.open_array(StorePath(store, path))[...]
    return found


@pytest.mark.parametrize("method", ["auto", "independent", "two-phase"])
def test_an_array_is_written_to_a_session(repository: Any, source: Path, method: str) -> None:
    session = repository.writable_session("main")
    ooc.rechunk(source, session.store, chunks=(100, 10), method=method, **HERE).run()
    np.testing.assert_array_equal(committed(repository, session), DATA)


def test_results_of_a_kernel_and_of_dask_are_written_to_a_group_of_a_session(repository: Any, source: Path) -> None:
    session = repository.writable_session("main")
    zarr.create_group(session.store)
    ooc.map_slabs(np.negative, source, StorePath(session.store, "n"), **HERE).run()
    ooc.from_dask(da.from_array(DATA, (50, 60)), StorePath(session.store, "d"), **HERE).run()
    np.testing.assert_array_equal(committed(repository, session, "n"), -DATA)
    np.testing.assert_array_equal(ooc.open_array(StorePath(session.store, "d"))[...], DATA)


def test_what_is_there_is_not_overwritten_unless_asked(repository: Any, source: Path) -> None:
    session = repository.writable_session("main")
    ooc.rechunk(source, session.store, chunks=(100, 10), **HERE).run()
    with pytest.raises(TargetError, match="exists"):
        ooc.rechunk(source, session.store, chunks=(100, 10), **HERE)
    ooc.rechunk(source, session.store, chunks=(50, 10), overwrite=True, **HERE).run()
    np.testing.assert_array_equal(committed(repository, session), DATA)


def test_another_process_has_no_session(repository: Any) -> None:
    store = placer(None)(repository.writable_session("main").store)
    with pytest.raises(TargetError, match="session of icechunk, which only this process can write to"):
        pickle.dumps(store)
