"""Zip files: read whether or not they have been opened, and written once, by one process."""

from __future__ import annotations

import signal
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster
from zarr.storage import StorePath, ZipStore

import oocarrays as ooc
from oocarrays.errors import NotFoundError, PlacementError, RunError, TargetError
from tests.dying import Server
from tests.flat import flat

pytestmark = pytest.mark.long

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
    "sections": lambda store: ooc.ranks.read_sections(store, [...], **HERE).compute()[0],
    "scatter": lambda store: ooc.ranks.scatter_files(store, "(block, *)", "files", ranks=2, **HERE).run()[...],
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


def _sources(tmp_path: Path) -> None:
    zarr.create_array("a.zarr", data=DATA, chunks=(3, 12))
    zarr.create_group("group.zarr").create_array("a", data=DATA, chunks=(3, 12))
    ooc.create_array("files", shape=(12, 12), dtype="f8", layout="(block, *)", ranks=2, placement="local")[...] = DATA


WRITES: dict[str, Callable[..., Any]] = {
    "rechunk": lambda store, how=HERE: flat(ooc.rechunk, "a.zarr", store, chunks=(12, 3), **how),
    "staged": lambda store, how=HERE: flat(ooc.rechunk, "a.zarr", store, chunks=(12, 3), method="staged", **how),
    "assembled": lambda store, how=HERE: flat(ooc.rechunk, "a.zarr", store, chunks=(12, 3), method="assembled", **how),
    "format 2": lambda store, how=HERE: flat(
        ooc.rechunk, "a.zarr", ooc.Target(store, zarr_format=2), chunks=(12, 3), **how
    ),
    "slabs": lambda store, how=HERE: flat(ooc.map_slabs, abs, "a.zarr", store, **how),
    "iterate": lambda store, how=HERE: flat(ooc.iterate, abs, "a.zarr", store, sweeps=2, depth=0, **how),
    "from_dask": lambda store, how=HERE: flat(ooc.rechunk, da.from_array(DATA, (5, 12)), store, chunks=4, **how),
    "gather": lambda store, how=HERE: flat(ooc.ranks.gather_files, "files", store, **how),
    "scatter": lambda store, how=HERE: flat(ooc.ranks.scatter_files, "a.zarr", "(block, *)", store, ranks=2, **how),
    "group": lambda store, how=HERE: flat(ooc.rechunk, "group.zarr", store, chunks={"a": (12, 3)}, **how),
}
PATHS = {"group": "a", "scatter": "rank-0000"}


def check_written(path: Path, inner: str) -> None:
    """Zarr and zipfile find each key once, the values, and nothing of ours."""
    names = zipfile.ZipFile(path).namelist()
    assert len(names) == len(set(names))
    assert not [name for name in names if "oocarrays" in name]
    with ZipStore(path, mode="r") as store:
        found = zarr.open_array(store, mode="r", path=inner)
        np.testing.assert_array_equal(found[...], DATA[: found.shape[0]])
        assert "oocarrays:unfinished" not in found.attrs


@pytest.mark.sampled
@pytest.mark.usefixtures("zipped")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("named", ["by path", "open"])
def test_one_that_is_new_is_a_target(tmp_path: Path, write: str, named: str) -> None:
    _sources(tmp_path)
    target = ZipStore(tmp_path / "new.zip", mode="w") if named == "open" else tmp_path / "new.zip"
    job = WRITES[write](target)
    assert not (tmp_path / "new.zip").exists(), "looking makes no file"
    made = job.run()
    np.testing.assert_array_equal((made["a"] if write == "group" else made)[...], DATA)
    if isinstance(target, ZipStore):
        target.close()
    check_written(tmp_path / "new.zip", PATHS.get(write, ""))


@pytest.mark.usefixtures("zipped")
def test_arrays_are_added_to_one(tmp_path: Path) -> None:
    _sources(tmp_path)
    WRITES["rechunk"](tmp_path / "new.zip" / "first").run()
    with ZipStore(tmp_path / "new.zip", mode="a") as store:
        WRITES["slabs"](StorePath(store, "second")).run()
    check_written(tmp_path / "new.zip", "first")
    check_written(tmp_path / "new.zip", "second")


@pytest.mark.sampled
@pytest.mark.usefixtures("zipped")
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_in_one_is_replaced(tmp_path: Path, write: str, overwrite: bool) -> None:
    _sources(tmp_path)
    with pytest.raises(TargetError, match="nothing can be replaced or removed, such as a zip file that is there"):
        WRITES[write](tmp_path / "a.zip", HERE | {"overwrite": overwrite})
    with (
        ZipStore(tmp_path / "a.zip", mode="a") as store,
        pytest.raises(TargetError, match="nothing can be replaced|not overwritten" if overwrite else "exist"),
    ):
        WRITES[write](store, HERE | {"overwrite": overwrite}).run()


@pytest.mark.usefixtures("zipped")
def test_a_run_into_one_is_not_gone_on_with(tmp_path: Path) -> None:
    _sources(tmp_path)

    def fails(block: np.ndarray) -> np.ndarray:
        raise ValueError("no")

    with pytest.raises(RunError, match="no"):
        ooc.map_slabs(fails, "a.zarr", "new.zip", **HERE).run()
    with pytest.raises(NotFoundError, match=r"nothing to resume: .* is a zip file, which a single run"):
        ooc.resume("new.zip", **HERE)
    with pytest.raises(NotFoundError):
        ooc.open_array("new.zip")


@pytest.mark.usefixtures("zipped")
def test_what_a_killed_run_leaves_is_no_zip_file(tmp_path: Path, runs: Server) -> None:
    zarr.create_array("long.zarr", data=np.ones((60, 12)), chunks=(3, 12))
    assert runs.start("tests.apart:dies_of_a_zip_file").wait() == -signal.SIGKILL
    assert (tmp_path / "new.zip").stat().st_size > 0
    for call in (ooc.open_array, ooc.resume):
        with pytest.raises(NotFoundError, match="a killed run does not leave a readable zip file"):
            call("new.zip")


@pytest.mark.usefixtures("zipped")
def test_several_workers_do_not_write_to_one(tmp_path: Path) -> None:
    _sources(tmp_path)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        for name in ("rechunk", "slabs", "from_dask", "group", "gather"):
            with pytest.raises(PlacementError, match="is a zip file, which one process can write to"):
                WRITES[name](tmp_path / "new.zip", {"scheduler": client})
        source = ZipStore(tmp_path / "a.zip", mode="a")
        made = ooc.rechunk(source, "new.zarr", chunks=(12, 3), scheduler=client).run()
    np.testing.assert_array_equal(made[...], DATA)


@pytest.mark.usefixtures("zipped")
def test_lazy_arrays_are_not_stored_in_an_array_that_is_there(zipped: Path) -> None:
    with pytest.raises(TargetError, match="write to a new one"):
        ooc.store(da.zeros((12, 12), chunks=3), ZipStore(zipped, mode="a"), **HERE)
    ooc.store(da.from_array(DATA, 12), "new.zip", **HERE)
    check_written(zipped.parent / "new.zip", "")


@pytest.mark.usefixtures("zipped")
def test_an_array_is_made_in_one(tmp_path: Path) -> None:
    for target in (ZipStore(tmp_path / "open.zip", mode="w"), tmp_path / "path.zip"):
        made = ooc.create_array(target, shape=(12, 12), dtype="f8", chunks=(3, 12))
        made[:6], made[6:] = DATA[:6], DATA[6:]
        np.testing.assert_array_equal(made[...], DATA)
        if isinstance(target, ZipStore):
            target.close()
    check_written(tmp_path / "open.zip", "")
    check_written(tmp_path / "path.zip", "")


def test_part_of_a_chunk_is_appended_as_zarr_does(tmp_path: Path) -> None:
    made = ooc.create_array(tmp_path / "a.zip", shape=(12, 12), dtype="f8", chunks=(6, 12))
    made[:3] = DATA[:3]
    with pytest.warns(UserWarning, match="Duplicate name: 'c/0/0'"):
        made[3:] = DATA[3:]
    np.testing.assert_array_equal(ooc.open_array(tmp_path / "a.zip")[...], DATA)
