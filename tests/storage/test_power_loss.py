"""Power is lost at any moment: of what POSIX may leave, what is marked finished is right, and the rest goes on."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import OocError, TargetError
from oocarrays.storage.local import syncing
from oocarrays.storage.local.syncing import Syncer
from tests.flat import flat
from tests.power import Disk, watched
from tests.profiles import is_nightly
from tests.seams import RECHUNK_METHODS, is_finished, set_constants

pytestmark = pytest.mark.long

DATA = np.arange(1.0, 33.0).reshape(4, 8)
OLD = -DATA
MEMORY = "64MiB"


@pytest.fixture(autouse=True)
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays have many parts, too, each written down as soon as it can be, as in runs that last."""
    set_constants(monkeypatch, batch_bytes=1, record_seconds=0.0)


def rechunk(folder: Path, **options: Any) -> ooc.Job:
    made = {"chunks": (4, 2), "memory": MEMORY, "ranks": 2} | options
    return flat(ooc.rechunk, folder / "s.zarr", folder / "disk" / "t.zarr", **made)


def twice(block: np.ndarray) -> np.ndarray:
    return 2 * block


def doubled(folder: Path, **options: Any) -> Any:
    return flat(
        ooc.map_slabs,
        twice,
        folder / "s.zarr",
        folder / "disk" / "t.zarr",
        memory=MEMORY,
        resources=ooc.Resources(ranks=2),
        **options,
    )


def prepare(folder: Path) -> None:
    (folder / "disk").mkdir()
    zarr.create_array(folder / "s.zarr", data=DATA, chunks=(1, 8), compressors=None)


def record(folder: Path, begin: Callable[..., Any], *, whole: bool = True) -> Disk:
    """What a run does to the disk."""
    with watched(folder / "disk", whole=whole) as disk:
        begin(folder).run()
    return disk


def recovered(folder: Path, begin: Callable[..., Any], go_on: Callable[[], Any], right: list[np.ndarray]) -> str:
    """Go on with what is left, or begin again; how that went."""
    target = folder / "disk" / "t.zarr"
    if is_finished(target):
        return "finished" if any(holds(target, each) for each in right) else "wrong though finished"
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*are written again", RuntimeWarning)
            go_on().run()
        how = "resumed"
    except OocError:
        try:
            begin(folder, overwrite=True).run()
        except TargetError:
            return "refused"
        how = "begun again"
    return how if holds(target, right[0]) else f"wrong when {how}"


def holds(target: Path, data: np.ndarray) -> bool:
    """Whether an array can be read, and is right."""
    try:
        return np.array_equal(ooc.open_array(target)[...], data)
    except OocError:
        return False


def outcomes(
    folder: Path,
    disk: Disk,
    begin: Callable[..., Any],
    *right: np.ndarray,
    resume: Any = None,
    draws: int = 1,
    until: str = "",
) -> Counter[str]:
    """What came of the states that may be left, or of those up to the first of a kind."""
    found: Counter[str] = Counter()
    go_on = partial(ooc.resume, folder / "disk" / "t.zarr") if resume is None else resume
    with dask.config.set({"oocarrays.durable": False}), pytest.MonkeyPatch.context() as patch:  # nobody loses it again
        patch.setattr(syncing, "boot", lambda: "the next one")
        for state in disk.states(seed=16, draws=draws):
            disk.restore(state)
            found[recovered(folder, begin, go_on, list(right))] += 1
            if found[until]:
                break
    return found


ALWAYS_RESUMED = ("finished", "resumed")
"""Where ``resume=True`` is asked for, which begins what has not been begun."""


def check(found: Counter[str], ends: tuple[str, ...] = ("finished", "resumed", "begun again")) -> None:
    assert {"finished"} < set(found) <= set(ends), found
    assert set(found) == set(ends) or not is_nightly(), found


def check_rechunk(folder: Path, method: str, whole: bool, draws: int, **options: Any) -> None:
    prepare(folder)
    begin = partial(rechunk, method=method, **options)
    check(outcomes(folder, record(folder, begin, whole=whole), begin, DATA, draws=draws))


each_way = pytest.mark.parametrize("whole", [True, False], ids=["file system", "file by file"])


@each_way
@pytest.mark.parametrize("method", RECHUNK_METHODS)
def test_a_rechunk(tmp_path: Path, method: str, whole: bool) -> None:
    """One draw a moment here; 25 of them, by hand, found nothing else in 2,000 states."""
    check_rechunk(tmp_path, method, whole, 1)


@each_way
def test_a_rechunk_that_is_over_before_anything_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    set_constants(monkeypatch, record_seconds=60.0)
    prepare(tmp_path)
    disk = record(tmp_path, rechunk, whole=whole)
    assert len(disk.moments) <= 8 or not whole, (
        "the device is asked for the journal, the draft, their names, that of their folder, all at once, and the end"
    )
    check(outcomes(tmp_path, disk, rechunk, DATA, draws=4))


@pytest.mark.sampled(2)
@pytest.mark.long
@each_way
@pytest.mark.parametrize("method", RECHUNK_METHODS)
def test_a_rechunk_into_format_2(tmp_path: Path, method: str, whole: bool) -> None:
    check_rechunk(tmp_path, method, whole, 2, zarr_format=2, compressors=None)


@pytest.mark.filterwarnings("ignore:Both zarr.json:zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_a_rechunk_over_another_array(tmp_path: Path, zarr_format: int) -> None:
    prepare(tmp_path)
    zarr.create_array(tmp_path / "disk" / "t.zarr", data=OLD, chunks=(2, 2), zarr_format=zarr_format)
    begin = partial(rechunk, overwrite=True)
    check(outcomes(tmp_path, record(tmp_path, begin), rechunk, DATA, OLD))


def test_a_pass_over_slabs(tmp_path: Path) -> None:
    prepare(tmp_path)
    resume = partial(doubled, tmp_path, resume=True)
    check(outcomes(tmp_path, record(tmp_path, doubled), doubled, 2 * DATA, resume=resume), ALWAYS_RESUMED)


def halved(block: np.ndarray) -> np.ndarray:
    return block / 2


def swept(folder: Path, **options: Any) -> Any:
    return flat(
        ooc.iterate,
        halved,
        folder / "s.zarr",
        folder / "disk" / "t.zarr",
        sweeps=3,
        memory=MEMORY,
        resources=ooc.Resources(fuse=1, ranks=2),
        **options,
    )


def test_an_iteration(tmp_path: Path) -> None:
    prepare(tmp_path)
    resume = partial(swept, tmp_path, resume=True)
    check(outcomes(tmp_path, record(tmp_path, swept), swept, DATA / 8, resume=resume), ALWAYS_RESUMED)


def gathered(folder: Path, **options: Any) -> ooc.Job:
    return flat(ooc.ranks.gather_files, folder / "l", folder / "disk" / "t.zarr", memory=MEMORY, **options)


@each_way
def test_a_gather(tmp_path: Path, whole: bool) -> None:
    prepare(tmp_path)
    files = ooc.create_array(
        tmp_path / "l", shape=DATA.shape, dtype=DATA.dtype, placement="local", layout="(block, *)", ranks=2
    )
    files[...] = DATA
    found = outcomes(tmp_path, record(tmp_path, gathered, whole=whole), gathered, DATA, draws=0)
    check(found)


def early(self: Syncer, prepare: Callable[[], Callable[[], None]], *, ahead: int = 1) -> None:
    prepare()()


@each_way
def test_what_is_written_down_too_early_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool) -> None:
    prepare(tmp_path)
    monkeypatch.setattr(Syncer, "then", early)
    until, begin = "wrong when resumed", partial(rechunk, method="independent")
    found = outcomes(tmp_path, record(tmp_path, begin, whole=whole), begin, DATA, draws=0, until=until)
    assert found[until], found


def test_without_syncing_a_finished_target_may_be_wrong(tmp_path: Path) -> None:
    prepare(tmp_path)
    with dask.config.set({"oocarrays.durable": False}):
        disk = record(tmp_path, rechunk)
    until = "wrong though finished"
    assert outcomes(tmp_path, disk, rechunk, DATA, draws=0, until=until)[until]
