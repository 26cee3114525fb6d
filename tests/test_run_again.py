"""A job that failed is run again after its source was changed: nothing of the old source stays, whoever can see it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import CorruptChunkError, DiskFullError, KernelError
from tests.flat import flat
from tests.seams import replace_step, step
from tests.small import each_method
from tests.sweeping import jacobi
from tests.unfinished import CHUNKS, FIELD, STORE_MORE, fail, options_of

pytestmark = pytest.mark.long

EMPTY = FIELD.copy()
EMPTY[:, :512] = 0
"""Half of it has no chunks."""


def array_in(store: Any, data: np.ndarray, name: str = "") -> zarr.Array:
    return zarr.create_array(store, name=name or None, data=data, chunks=(64, 1024), compressors=None, overwrite=True)


@pytest.fixture(params=["memory", "folder"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """Of memory nobody sees whether it has changed."""
    return MemoryStore() if request.param == "memory" else str(tmp_path / "changing.zarr")


def more(method: str) -> dict[str, Any]:
    """A source that is not a local file wants more memory."""
    options = options_of(method)
    return options | {"memory": options["memory"] + 2**22 + STORE_MORE}


def change(array: zarr.Array, data: np.ndarray) -> None:
    """Other values, the same metadata."""
    array[...] = data


@pytest.mark.sampled(2)
@each_method
def test_a_rechunk(store: Any, target: Path, method: str) -> None:
    source = array_in(store, FIELD)
    job = flat(ooc.rechunk, source, target, scheduler="threads", **more(method))
    fail(job, after=12)
    change(source, EMPTY)
    np.testing.assert_array_equal(job.run()[...], EMPTY)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("after", [12, 20, 40], ids=["in the first", "in the second", "as it is copied"])
def test_a_group(store: Any, target: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """One array may be finished; others are copied as they are."""
    group = zarr.create_group(store)
    arrays = {name: array_in(store, FIELD, name) for name in ("one", "two", "copied")}
    options = more("independent") | {"chunks": dict.fromkeys(("one", "two"), CHUNKS), "scheduler": "threads"}
    job = flat(ooc.rechunk, group, target, **options)
    if after == 40:
        replace_step(monkeypatch, "count request", full_of(8))
        with pytest.raises(DiskFullError):
            job.run()
        monkeypatch.undo()
    else:
        fail(job, after=after)
    for name in arrays:
        change(arrays[name], EMPTY)
    made = job.run()
    for name in arrays:
        np.testing.assert_array_equal(made[name][...], EMPTY, err_msg=name)


def full_of(calls: int) -> Any:
    left, before = [calls], step("count request")

    def add(self: Any, **counts: int) -> None:
        if "copied_objects" in counts:
            left[0] -= 1
            if left[0] < 0:
                raise DiskFullError("no space left on the device")
        before(self, **counts)

    return add


@each_method
def test_a_group_of_which_one_array_was_mended(tmp_path: Path, target: Path, method: str) -> None:
    """What was finished and is read from what has not changed stays as it is."""
    group = zarr.create_group(tmp_path / "source")
    for name in ("one", "two"):
        array_in(tmp_path / "source", FIELD, name)
    chunk = tmp_path / "source/two/c/9/0"
    data = chunk.read_bytes()
    chunk.write_bytes(data[:-1])
    options = more(method) | {"chunks": dict.fromkeys(("one", "two"), CHUNKS), "scheduler": "threads"}
    job = flat(ooc.rechunk, group, target, **options)
    with pytest.raises(CorruptChunkError):
        job.run()
    before = {path: path.stat().st_mtime_ns for path in target.joinpath("one/c").rglob("*")}
    chunk.write_bytes(data)
    made = job.run()
    for name in ("one", "two"):
        np.testing.assert_array_equal(made[name][...], FIELD)
    assert {path: path.stat().st_mtime_ns for path in target.joinpath("one/c").rglob("*")} == before


class Switched:
    """A kernel that fails after some calls, until it is mended."""

    def __init__(self, kernel: Any, calls: int) -> None:
        self.kernel, self.calls = kernel, calls

    def __call__(self, block: np.ndarray) -> np.ndarray:
        self.calls -= 1
        if self.calls == 0:
            raise ValueError("enough")
        made: np.ndarray = self.kernel(block)
        return made


@pytest.mark.parametrize("sweeps", [0, 2])
def test_a_kernel(store: Any, target: Path, sweeps: int) -> None:
    source = array_in(store, FIELD)
    options: dict[str, Any] = {"memory": "64MiB", "height": 64, "ranks": 1, "scheduler": "threads"}
    kernel = Switched(jacobi if sweeps else np.negative, 10 if sweeps else 5)
    if sweeps:
        job: Any = flat(ooc.iterate, kernel, source, target, sweeps=sweeps, resources=ooc.Resources(fuse=1), **options)
    else:
        job = flat(ooc.map_slabs, kernel, source, target, **options)
    with pytest.raises(KernelError):
        job.run()
    change(source, EMPTY)
    got = job.run()[...]
    fresh = MemoryStore()
    want = flat(ooc.iterate, jacobi, array_in({}, EMPTY), fresh, sweeps=sweeps, **options) if sweeps else None
    np.testing.assert_array_equal(got, want.run()[...] if want else -EMPTY)
