"""Power is lost while groups, datasets and local array files are written: what is left is whole, old, or unfinished."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

import oocarrays as ooc
from oocarrays.errors import NotFoundError, OocError, TargetError, UnfinishedError
from tests.flat import flat
from tests.power import Disk, watched
from tests.profiles import is_nightly
from tests.seams import set_constants

pytestmark = pytest.mark.long

DATA = np.arange(1.0, 33.0).reshape(4, 8)
NAMES = ("a", "b", "deep/d")
MEMORY = "64MiB"
RIGHT = {"finished", "resumed", "begun again"}

each_way = pytest.mark.parametrize("whole", [True, False], ids=["file system", "file by file"])


@pytest.fixture(autouse=True)
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays have many parts, too, each written down as soon as it can be, as in runs that last."""
    set_constants(monkeypatch, batch_bytes=1, record_seconds=0.0)


def write_group(place: Path, data: np.ndarray, *, zarr_format: Any = 3) -> None:
    """An array that is rewritten, and two that are copied."""
    root = zarr.create_group(place, zarr_format=zarr_format, attributes={"title": "a test"})
    for name in NAMES:
        root.create_array(name, data=data, chunks=(1, 8), compressors=None)


def regrouped(folder: Path, **options: Any) -> ooc.Job:
    return flat(
        ooc.rechunk, folder / "s.zarr", folder / "disk" / "t.zarr", chunks={"a": (4, 2)}, memory=MEMORY, **options
    )


def dataset(folder: Path, **options: Any) -> Any:
    lazy = da.from_array(DATA, chunks=(2, 8))
    ds = xr.Dataset({"a": (("y", "x"), lazy), "b": (("y", "x"), 2 * lazy)}, {"x": np.arange(8)}, {"title": "a test"})
    return flat(ooc.rechunk, ds, folder / "disk" / "t.zarr", chunks={"x": 4, "y": 2}, memory=MEMORY, **options)


def scattered(folder: Path, **options: Any) -> Any:
    target = folder / "disk" / "t.zarr"
    return flat(
        ooc.ranks.scatter_files, folder / "s.zarr" / "a", "(block, *)", target, ranks=2, memory=MEMORY, **options
    )


def group_of(target: Path) -> list[np.ndarray]:
    """All arrays of a group."""
    group = ooc.open_group(target)
    return [group[name][...] for name in NAMES]


def dataset_of(target: Path) -> list[np.ndarray]:
    """All variables, as xarray sees them."""
    ooc.open_group(target)
    with xr.open_zarr(target, chunks=None) as ds:
        return [ds["a"].values, ds["b"].values / 2, ds["a"].values + 0 * ds["x"].values]


def files_of(target: Path) -> list[np.ndarray]:
    """All of an array of local array files."""
    return [ooc.open_array(target)[...]]


def state_of(target: Path, read: Callable[[Path], list[np.ndarray]]) -> str:
    """Whether a target is finished, right, as it was before, or nothing that can be taken for one."""
    try:
        found = read(target)
    except UnfinishedError:
        return "unfinished"
    except (NotFoundError, FileNotFoundError):
        return "nothing"
    if all(np.array_equal(each, DATA) for each in found):
        return "finished"
    return "old" if all(np.array_equal(each, -DATA) for each in found) else "wrong though finished"


def recovered(folder: Path, begin: Callable[..., Any], read: Callable[[Path], list[np.ndarray]]) -> str:
    """Go on with what is left, or begin again; how that went."""
    target = folder / "disk" / "t.zarr"
    state = state_of(target, read)
    if state in ("finished", "old", "wrong though finished"):
        return state
    how = "resumed"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*are written again", RuntimeWarning)
            ooc.resume(target, memory=MEMORY).run()
    except OocError:
        how = "begun again"
        try:
            begin(folder, overwrite=True).run()
        except TargetError:
            return "refused"
    found = state_of(target, read)
    return how if found == "finished" else f"{found} when {how}"


def check(
    folder: Path,
    begin: Callable[..., Any],
    read: Callable[[Path], list[np.ndarray]],
    ends: set[str],
    *,
    whole: bool = True,
    draws: int = 0,
    again: Callable[..., Any] | None = None,
) -> None:
    """Record a run, and go on with states that may be left: they end as is said, at night each way at least once."""
    with watched(folder / "disk", whole=whole) as disk:
        begin(folder).run()
    found = outcomes(folder, disk, again or begin, read, draws)
    assert {"finished"} < set(found) <= ends, found
    assert set(found) == ends or not is_nightly(), found


def outcomes(folder: Path, disk: Disk, begin: Callable[..., Any], read: Any, draws: int) -> Counter[str]:
    """What came of the states that may be left."""
    with dask.config.set({"oocarrays.durable": False}):  # nobody loses power again
        found: Counter[str] = Counter()
        for state in disk.states(seed=16, draws=draws):
            disk.restore(state)
            found[recovered(folder, begin, read)] += 1
    return found


def prepare(folder: Path, **options: Any) -> None:
    (folder / "disk").mkdir()
    write_group(folder / "s.zarr", DATA, **options)


@each_way
def test_a_group(tmp_path: Path, whole: bool) -> None:
    prepare(tmp_path)
    check(tmp_path, regrouped, group_of, RIGHT, whole=whole)


@pytest.mark.filterwarnings("ignore:Both zarr.json:zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize(
    ("whole", "zarr_format"),
    [(True, 3), *(pytest.param(*each, marks=pytest.mark.long) for each in [(True, 2), (False, 2), (False, 3)])],
)
def test_a_group_over_another_one(tmp_path: Path, whole: bool, zarr_format: int) -> None:
    prepare(tmp_path)
    write_group(tmp_path / "disk" / "t.zarr", -DATA, zarr_format=zarr_format)
    check(tmp_path, partial(regrouped, overwrite=True), group_of, RIGHT | {"old"}, whole=whole, again=regrouped)


@each_way
def test_a_dataset(tmp_path: Path, whole: bool) -> None:
    prepare(tmp_path)
    check(tmp_path, dataset, dataset_of, {"finished", "begun again", "refused"}, whole=whole)


@each_way
def test_local_array_files(tmp_path: Path, whole: bool) -> None:
    prepare(tmp_path)
    check(tmp_path, scattered, files_of, {"finished", "resumed", "begun again"}, whole=whole)


@pytest.mark.long
@each_way
def test_local_array_files_over_others(tmp_path: Path, whole: bool) -> None:
    prepare(tmp_path)
    old = {"shape": DATA.shape, "dtype": DATA.dtype, "placement": "local", "layout": "(*, block)", "ranks": 2}
    files = flat(ooc.create_array, tmp_path / "disk" / "t.zarr", **old)
    files[...] = -DATA
    begin = partial(scattered, overwrite=True)
    ends = {"finished", "resumed", "begun again", "old"}
    check(tmp_path, begin, files_of, ends, whole=whole, again=scattered)
