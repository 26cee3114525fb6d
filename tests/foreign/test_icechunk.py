"""Sessions of icechunk, as targets: committed by their owner, read by any session."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from zarr.storage import StorePath

import oocarrays as ooc
from oocarrays.errors import PlacementError, RunError, TargetError
from tests.flat import flat
from tests.later import Later
from tests.seams import store_at

pytestmark = pytest.mark.skipif(find_spec("icechunk") is None, reason="icechunk is not installed")
icechunk = Later("icechunk")
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
    ooc.rechunk(da.from_array(DATA, (50, 60)), StorePath(session.store, "d"), **HERE).run()
    np.testing.assert_array_equal(committed(repository, session, "n"), -DATA)
    np.testing.assert_array_equal(ooc.open_array(StorePath(session.store, "d"))[...], DATA)


def test_what_is_there_is_not_overwritten_unless_asked(repository: Any, source: Path) -> None:
    session = repository.writable_session("main")
    ooc.rechunk(source, session.store, chunks=(100, 10), **HERE).run()
    with pytest.raises(TargetError, match="exists"):
        ooc.rechunk(source, session.store, chunks=(100, 10), **HERE)
    ooc.rechunk(source, session.store, chunks=(50, 10), overwrite=True, **HERE).run()
    np.testing.assert_array_equal(committed(repository, session), DATA)


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    xr = pytest.importorskip("xarray")
    air = np.arange(600.0).reshape(20, 30)
    made = xr.Dataset({"air": (("time", "lat"), air), "edge": ((), 1.5)}, {"time": np.arange(20)}, {"title": "maps"})
    made.to_zarr(tmp_path / "g.zarr", encoding={"air": {"chunks": (5, 30)}}, consolidated=False)
    return made


@pytest.mark.parametrize("path", ["", "deep/maps"])
def test_a_group_is_written_to_a_session(repository: Any, dataset: Any, tmp_path: Path, path: str) -> None:
    session = repository.writable_session("main")
    target = StorePath(session.store, path) if path else session.store
    ooc.rechunk(tmp_path / "g.zarr", target, chunks={"time": -1, "lat": 10}, **HERE).run()
    with pytest.raises(TargetError, match="exists"):
        ooc.rechunk(tmp_path / "g.zarr", target, chunks={"time": -1}, **HERE)
    ooc.rechunk(tmp_path / "g.zarr", target, chunks={"time": -1, "lat": 6}, overwrite=True, **HERE).run()
    session.commit("series")
    xr, store = pytest.importorskip("xarray"), repository.readonly_session("main").store
    found = xr.open_zarr(store, group=path or None, consolidated=False, chunks={})
    assert found.load().identical(dataset)
    assert found.air.encoding["chunks"] == (20, 6)
    with pytest.raises(TargetError, match=r"cannot create a group at .*parent"):
        ooc.rechunk(
            tmp_path / "g.zarr",
            StorePath(repository.writable_session("main").store, f"{path}/air/below".lstrip("/")),
            chunks={"time": -1},
            **HERE,
        ).run()


def test_a_group_of_a_session_is_a_source(repository: Any, dataset: Any, tmp_path: Path) -> None:
    session = repository.writable_session("main")
    dataset.to_zarr(session.store, consolidated=False)
    session.commit("maps")
    done = ooc.rechunk(
        repository.readonly_session("main").store, tmp_path / "t.zarr", chunks={"time": -1, "lat": 10}, **HERE
    ).run()
    np.testing.assert_array_equal(done["air"][...], dataset.air.values)


# ---------------------------------------------------------------------- workers write to forks

WORKERS: dict[str, Callable[..., Any]] = {
    "independent": lambda a, to, how: flat(ooc.rechunk, a, to, chunks=(100, 10), method="independent", **how),
    "two-phase": lambda a, to, how: flat(ooc.rechunk, a, to, chunks=(100, 10), method="two-phase", **how),
    "assembled": lambda a, to, how: flat(ooc.rechunk, a, to, chunks=(100, 10), method="assembled", **how),
    "slabs": lambda a, to, how: flat(ooc.map_slabs, np.abs, a, to, **how),
    "dask": lambda a, to, how: flat(ooc.rechunk, da.from_array(DATA, (33, 40)), to, chunks=(25, 40), **how),
    "blocks": lambda a, to, how: flat(ooc.rechunk, da.from_array(DATA, (25, 40)), to, **how),
}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def on_disk(tmp_path: Path) -> Any:
    made = icechunk.Repository.create(icechunk.local_filesystem_storage(str(tmp_path / "repository")))
    session = made.writable_session("main")
    zarr.create_group(session.store)
    session.commit("begun")
    return made


@pytest.mark.parametrize("way", WORKERS)
def test_workers_write_to_forks_which_are_merged(on_disk: Any, source: Path, client: Client, way: str) -> None:
    session = on_disk.writable_session("main")
    job = WORKERS[way](source, StorePath(session.store, "deep/a"), {"scheduler": client})
    assert not session.has_uncommitted_changes, "looking is free"
    job.run()
    before = {path.name for path in source.parent.iterdir()}
    np.testing.assert_array_equal(committed(on_disk, session, "deep/a"), DATA)
    assert before == {"a.zarr", "repository"}, "nothing is left in scratch"
    assert not [name for name in source.parent.iterdir() if "oocarrays" in name.name]


def test_gathered_files_too(on_disk: Any, source: Path, client: Client, tmp_path: Path) -> None:
    ooc.ranks.scatter_files(source, "(block, *)", tmp_path / "f", ranks=3, scheduler=client).run()
    session = on_disk.writable_session("main")
    ooc.ranks.gather_files(tmp_path / "f", StorePath(session.store, "a"), scheduler=client).run()
    session.commit("gathered")
    found = zarr.open_array(on_disk.readonly_session("main").store, path="a", mode="r")
    np.testing.assert_array_equal(found[...], DATA)


def test_what_a_dead_worker_wrote_is_not_taken_for_written(on_disk: Any, source: Path, tmp_path: Path) -> None:
    mark = str(tmp_path / "died")

    def dies_once(block: np.ndarray) -> np.ndarray:
        if block[0, 0] >= DATA[50, 0] and not os.path.exists(mark):
            Path(mark).touch()
            os.kill(os.getpid(), 9)
        return block

    session = on_disk.writable_session("main")
    with (
        dask.config.set({"oocarrays.patience": "1s"}),
        LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        job = ooc.map_slabs(dies_once, source, StorePath(session.store, "a"), scheduler=client, window=10)
        with pytest.raises(RunError, match=r"workers were lost, with their writes to forks of .* run it again"):
            job.run()
        assert not session.has_uncommitted_changes
        np.testing.assert_array_equal(job.run()[...], DATA)
    assert os.path.exists(mark)


def test_what_workers_cannot_do_is_one_line(on_disk: Any, repository: Any, source: Path, client: Client) -> None:
    session, how = on_disk.writable_session("main"), {"scheduler": client}
    in_memory = repository.writable_session("main")
    with pytest.raises(PlacementError, match=r"forked for workers by job\.run"):
        WORKERS["slabs"](source, StorePath(session.store, "a"), how).compute()
    group = zarr.create_group(source.parent / "g.zarr")
    group.create_array("a", data=DATA, chunks=(10, 120))
    for call in (
        lambda to: flat(ooc.rechunk, source.parent / "g.zarr", to, chunks={"a": (100, 10)}, **how),
        lambda to: flat(ooc.iterate, np.abs, source, to, sweeps=2, depth=0, **how),
        lambda to: flat(ooc.ranks.scatter_files, source, "(block, *)", to, ranks=2, **how),
    ):
        with pytest.raises(PlacementError, match="workers write single arrays in one pass"):
            call(StorePath(session.store, "a"))
    with pytest.raises((TargetError, RunError), match=r"in memory cannot|may be in memory"):
        WORKERS["slabs"](source, in_memory.store, how).run()
    assert not in_memory.has_uncommitted_changes
    ooc.map_slabs(np.abs, source, StorePath(session.store, "a"), **HERE).run()
    with pytest.raises(TargetError, match="has uncommitted changes"):
        WORKERS["slabs"](source, StorePath(session.store, "b"), how).run()
    session.commit("a")
    session = on_disk.writable_session("main")
    with pytest.raises(TargetError, match=r"a exists in .*, and forks cannot replace it"):
        WORKERS["slabs"](source, StorePath(session.store, "a"), how | {"overwrite": True}).run()
    assert not session.has_uncommitted_changes


def test_outside_of_a_run_no_other_process_has_a_session(repository: Any) -> None:
    store = store_at(repository.writable_session("main").store)
    with pytest.raises(TargetError, match=r"icechunk session, which workers can use only during job.run\(\)"):
        pickle.dumps(store)
