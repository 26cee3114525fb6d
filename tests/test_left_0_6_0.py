"""Runs, arrays, streams, striped files, traces, plans and settings that version 0.6.0 left are read and finished.

tests/data/left_0_6_0.tar.xz: RUN/PATH, of runs that were killed at a point and of a folder `finished`;
                              index.json: of each folder its kind, and the modification times of its files
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tarfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import oocarrays as ooc
from tests.flat import flat
from tests.unfinished import left_behind

ARCHIVE = Path(__file__).parent / "data" / "left_0_6_0.tar.xz"
THERE = Path("/tmp/oocarrays-0.6.0")
"""The folder that journals, traces and stripes name: everything is put back where it was."""
DATA = np.arange(1, 513, dtype="i2").reshape(32, 16)
HERE: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}


@cache
def archive() -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the index of the archive and the bytes of each of its files."""
    with tarfile.open(ARCHIVE) as tar:
        files = {member.name: file.read() for member in tar if (file := tar.extractfile(member))}
    return json.loads(files.pop("index.json")), files


RUNS = sorted(name for name in archive()[0] if name != "finished")


@pytest.fixture
def put_back() -> Iterator[Callable[[str], Path]]:
    """Write a folder with the times that its files had; one test of the machine has `THERE` at a time."""
    THERE.mkdir(exist_ok=True)
    lock = os.open(THERE, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    folders: list[Path] = []

    def put(name: str) -> Path:
        folders.append(THERE / name)
        shutil.rmtree(folders[-1], ignore_errors=True)
        for key, time in archive()[0][name]["files"].items():
            path = folders[-1] / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(archive()[1][f"{name}/{key}"])
            os.utime(path, ns=(time, time))
        return folders[-1]

    yield put
    for folder in folders:
        shutil.rmtree(folder)
    os.close(lock)


# ---------------------------------------------------------------------- runs that were killed


def by_maximum() -> np.ndarray:
    return np.stack([DATA[group::3].max(axis=0) for group in range(3)])


EXPECTED: dict[str, dict[str, np.ndarray]] = {
    "group": {"target/air": DATA, "target/deep/sea": -DATA, "target/lat": DATA[0]},
    "dataset": {"target/air": DATA, "target/lat": DATA[0]},
    "map_slabs": {"target": -DATA},
    "map_slabs two": {"target": np.zeros_like(DATA, "f4"), "second": DATA.astype("f4")},
    "map_slabs local": {"target": -DATA},
    "iterate": {"target": -DATA},
    "iterate local": {"target": -DATA},
    "reduce": {"target": DATA.sum(axis=0, dtype="i8")},
    "reduce by": {"target": by_maximum()},
    "pyramid": {f"target/{level}": DATA[:: 2**level, :: 2**level] for level in range(3)},
}
"""Stored results by kind of run; otherwise `DATA`."""


LEFT_TO_CLEAN = ("shift", "write_sections", "dataset")
"""Kinds of which partial files in the user's own array, or scratch, stay until `clean`."""


def go_on(kind: str, folder: Path) -> Any:
    """Return the job that finishes a run."""
    target = folder / "target"
    if kind == "from_dask":
        x = da.from_array(DATA, chunks=(4, 16))
        return ooc.rechunk(x, target, chunks=(32, 2), resume=True, **HERE)
    if kind == "write_sections":
        return ooc.resume(target, parts=[DATA[:16], DATA[16:]])
    if kind == "shift":
        return ooc.resume(target)
    if kind == "dataset":  # whose Dask arrays no journal keeps: its error names this call
        air = ("y", "x"), da.from_array(DATA, chunks=(4, 16))
        data = xr.Dataset({"air": air, "lat": (("x",), DATA[0])}, attrs={"title": "fields"})
        return ooc.rechunk(data, target, chunks={"air": (32, 2)}, overwrite=True, **HERE)
    if kind in ("map_slabs local", "iterate local"):
        return ooc.resume(target, source=folder / "local")
    source = folder / ("local" if kind == "gather" else "source")
    return ooc.resume(target, source=source.rename(folder / "moved"))  # its files have other inodes now: named anew


@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_is_finished(put_back: Callable[[str], Path], name: str) -> None:
    folder, kind = put_back(name), archive()[0][name]["kind"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of chunks that are written again
        go_on(kind, folder).run()
    for path, data in EXPECTED.get(kind, {"target": DATA}).items():
        np.testing.assert_array_equal(ooc.open_array(folder / path)[...], data)
    assert kind in LEFT_TO_CLEAN or left_behind(folder) == []


# ---------------------------------------------------------------------- what was finished

VALUES = np.arange(24, dtype="f8").reshape(4, 6)
STREAMS = {
    "NB": [[v, v + 1] for v in VALUES.ravel()],
    "CB": [[v, v + 1, v + 2, v + 3] for v in VALUES.ravel()],
    "IB": [[v, v + 1, v + 2] for v in VALUES.ravel()],
}
STREAMS["IB"][3] += [7, 8]
STREAMS["IB"][5] += [9]


@pytest.fixture
def finished(put_back: Callable[[str], Path]) -> Path:
    """The folder of what was finished."""
    return put_back("finished")


@pytest.mark.parametrize(
    "name", ["global-row", "global-column", "local-row", "local-column", "sharded", "format-2", "rechunked"]
)
def test_arrays_are_read_and_written_again(finished: Path, name: str) -> None:
    a: Any = ooc.open_array(finished / name)
    np.testing.assert_array_equal(a[...], DATA)
    assert dict(a.attrs) == ({"units": "K"} if name in ("sharded", "format-2") else {})
    write = ooc.ranks.gather_files if name.startswith("local") else ooc.rechunk
    flat(write, finished / name, finished / "again", chunks=(8, 16), scheduler="threads").run()
    np.testing.assert_array_equal(zarr.open_array(finished / "again", mode="r")[...], DATA)


def test_descriptors_keep_layouts(finished: Path) -> None:
    layout = ooc.Layout.of(DATA.shape, "(block, *)", ranks=2)
    for name in ("global-row", "global-column", "local-row", "local-column"):
        a: Any = ooc.open_array(finished / name)
        assert a.layout == layout
        assert a.depth == ((1, 0) if name.startswith("local") else (0, 0))
        assert a.orientation == ((0, 1) if name.endswith("row") else (1, 0))
        assert isinstance(a, ooc.ranks.LocalArrays) == name.startswith("local")


def test_a_finished_target_is_brought_up_to_date(finished: Path) -> None:
    """Files that were put back have other inodes: all is read once, and then only what has changed."""
    source = zarr.open_array(finished / "source", mode="r+")
    np.testing.assert_array_equal(ooc.update(finished / "rechunked", scheduler="threads").run()[...], DATA)
    source[5, 7] = -1
    job = ooc.update(finished / "rechunked", scheduler="threads")
    assert job.plan.changed == (ooc.Section((4, 0), (8, 16)),)
    np.testing.assert_array_equal(job.run()[...], source[...])


@pytest.mark.parametrize("mode", STREAMS)
def test_streams_are_read_and_appended(finished: Path, mode: str) -> None:
    place = finished / f"streams-{mode}"
    with ooc.streams.open_streams(place) as s:
        assert [list(cell) for row in s.read(-1).to_list() for cell in row] == STREAMS[mode]
    with ooc.streams.open_streams(place, "a") as s:
        s.write(VALUES)
    with ooc.streams.open_streams(place) as s:
        assert s.read(-1)[3, 5].tolist() == [*STREAMS[mode][23], 23]


def test_streams_of_ragged_values_are_read(finished: Path) -> None:
    with ooc.streams.open_streams(finished / "ragged") as s:
        assert s.read(-1).to_list() == [[0, 1], [], [2, 3, 4]]


def test_striped_files_and_arrays_are_read(finished: Path) -> None:
    disks = [finished / name for name in "cab"]
    with ooc.disks.open_striped("bytes", disks=disks) as file:
        assert file.read() == bytes(range(250)) * 3
    np.testing.assert_array_equal(ooc.open_array(ooc.disks.StripedStore([disk / "array" for disk in disks]))[...], DATA)


@pytest.mark.parametrize("name", ["trace", "accesses"])
def test_traces_give_advice(finished: Path, name: str) -> None:
    found = ooc.advise.Trace.load(finished / f"{name}.json")
    assert {Path(each.dataset).name for each in found.accesses} >= {"source"}
    assert ooc.advise.Trace.from_json(found.as_json()).accesses == found.accesses
    assert "source" in repr(found.advise())


@pytest.mark.parametrize("name", ["direct", "auto"])
def test_plans_are_loaded_and_run(finished: Path, name: str) -> None:
    plan = ooc.ranks.load_plan(finished / f"plan-{name}.json")
    source, target = (
        ooc.Layout.of(DATA.shape, text, ranks=n) for text, n in (("(block, *)", 2), ("(*, cyclic(3))", 4))
    )
    assert plan == ooc.ranks.plan_redistribution(source, target, "i2", method=name)


def test_settings_are_understood(finished: Path) -> None:
    (kept,) = dask.config.collect_yaml([str(finished / "oocarrays.yaml")])
    gone = {"steps-below"}  # a rank runs a round in one task, however many there are
    assert kept["oocarrays"].keys() - gone <= dask.config.get("oocarrays").keys()
    assert kept["oocarrays"]["cost"].keys() <= dask.config.get("oocarrays.cost").keys()
    with dask.config.set(kept):
        job = ooc.rechunk(finished / "source", finished / "again", chunks=(8, 8), scheduler="threads")
        np.testing.assert_array_equal(job.run()[...], DATA)
