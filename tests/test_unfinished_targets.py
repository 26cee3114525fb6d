"""An unfinished target is no readable array, whoever opens it; and each state in which a run can stop has a way out."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr
from zarr.storage import MemoryStore

import oocarrays as ooc
from oocarrays.errors import DiskFullError, InputError, NotFoundError, OocError, TargetError, UnfinishedError
from tests.dying import Server
from tests.flat import flat
from tests.pairs import pairs
from tests.seams import JOURNAL_FOLDER, JOURNAL_PLAN, replace_step, set_constants, step
from tests.unfinished import break_disk

pytestmark = pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
DATA = np.arange(1, 1025, dtype="i4").reshape(32, 32)
THREADS: dict[str, Any] = {"memory": "64MiB", "scheduler": "threads"}


@pytest.fixture(autouse=True)
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small arrays have many parts, each written down as soon as it can be, as in runs that last."""
    set_constants(monkeypatch, batch_bytes=1, round_bytes=2**11, box_bytes=2**11, record_seconds=0.0)


def source(folder: Path, zarr_format: int = 3) -> Path:
    zarr.create_array(folder / "s", data=DATA, chunks=(4, 32), compressors=None, zarr_format=zarr_format)  # type: ignore[arg-type]
    return folder / "s"


def group(folder: Path, zarr_format: int = 3) -> Path:
    """A dataset with an array that is rewritten, arrays that are copied, and a group in it."""
    made = xr.Dataset({"air": (("y", "x"), DATA), "rain": (("y",), DATA[0])}, {"y": np.arange(32)})
    made.chunk({"y": 4}).to_zarr(folder / "g", zarr_format=zarr_format, consolidated=True)  # type: ignore[call-overload]
    made[["rain"]].to_zarr(folder / "g", group="deep", mode="a", zarr_format=zarr_format)  # type: ignore[call-overload]
    return folder / "g"


def local(folder: Path, zarr_format: int = 3) -> Path:
    a = source(folder, zarr_format)
    ooc.ranks.scatter_files(a, "(block, *)", ooc.Target(folder / "l", chunks=(4, 32)), ranks=2, **THREADS).run()
    return folder / "l"


def rechunked(method: str) -> Callable[..., Any]:
    def made(folder: Path, target: Any, zarr_format: int = 3, **more: Any) -> Any:
        there = folder / "s" if (folder / "s").exists() else source(folder, zarr_format)
        return flat(
            ooc.rechunk,
            there,
            target,
            chunks=(32, 4),
            method=method,
            resources=ooc.Resources(ranks=2),
            **THREADS,
            **more,
        )

    return made


def job_of(make: Callable[..., Any], begin: Callable[[Path, int], Path]) -> Callable[..., Any]:
    def made(folder: Path, target: Any, zarr_format: int = 3, **more: Any) -> Any:
        there = next((folder / name for name in ("l", "g", "s") if (folder / name).exists()), None)
        there = there or begin(folder, zarr_format)
        return make(there if there.name == "g" else ooc.open_array(there), target, **more)

    return made


def lazily(s: Any, target: Any, **more: Any) -> Any:
    return flat(ooc.rechunk, s.to_dask() + 0, target, chunks=(32, 4), **THREADS, **more)


def dataset(g: Path, target: Any, **more: Any) -> Any:
    return flat(ooc.rechunk, xr.open_zarr(g).chunk({"y": 8}), target, chunks={"y": 4}, **THREADS, **more)


JOBS: dict[str, Callable[..., Any]] = {
    "independent": rechunked("independent"),
    "two-phase": rechunked("two-phase"),
    "staged": rechunked("staged"),
    "assembled": rechunked("assembled"),
    "map_slabs": job_of(
        lambda s, t, **more: flat(
            ooc.map_slabs, np.negative, s, t, window=4, resources=ooc.Resources(ranks=1), **THREADS, **more
        ),
        source,
    ),
    "iterate": job_of(
        lambda s, t, **more: flat(
            ooc.iterate,
            np.negative,
            s,
            t,
            depth=0,
            sweeps=2,
            resources=ooc.Resources(fuse=1, window=4),
            **THREADS,
            **more,
        ),
        source,
    ),
    "reduce": job_of(lambda s, t, **more: flat(ooc.reduce, s, "max", axis=1, target=t, **THREADS, **more), source),
    "from_dask": job_of(lazily, source),
    "scatter_files": job_of(
        lambda s, t, **more: flat(
            ooc.ranks.scatter_files, s, "(block, *)", ooc.Target(t, chunks=(4, 32)), ranks=2, **THREADS, **more
        ),
        source,
    ),
    "gather_files": job_of(
        lambda s, t, **more: flat(ooc.ranks.gather_files, s, ooc.Target(t, chunks=(8, 32)), **THREADS, **more), local
    ),
    "local slabs": job_of(
        lambda s, t, **more: flat(ooc.map_slabs, np.negative, s, t, window=4, **THREADS, **more), local
    ),
    "pyramid": job_of(
        lambda s, t, **more: flat(ooc.pyramid, s, ooc.Target(t, chunks=(8, 8)), levels=3, **THREADS, **more), source
    ),
    "group": job_of(lambda s, t, **more: flat(ooc.rechunk, s, t, chunks={"air": (32, 4)}, **THREADS, **more), group),
    "group, other format": job_of(
        lambda s, t, **more: flat(
            ooc.rechunk, s, ooc.Target(t, zarr_format=2), chunks={"air": (32, 4)}, **THREADS, **more
        ),
        group,
    ),
    "dataset": job_of(dataset, group),
}
LOCAL_ONLY = {"scatter_files", "local slabs", "dataset"}
BEGUN_AGAIN = {"from_dask", "dataset"}
"""Jobs whose source no journal keeps: they are written again."""


def opened_by(store: Any) -> Iterator[str]:
    """The readers by which something at a place is opened."""
    for name, read in {
        "zarr.open_array": lambda: zarr.open_array(store, mode="r"),
        "zarr.open": lambda: zarr.open(store, mode="r"),
        "zarr.open_group": lambda: zarr.open_group(store, mode="r"),
        "dask": lambda: da.from_zarr(store),
        "xarray": lambda: xr.open_zarr(store),
        "xarray, consolidated": lambda: xr.open_zarr(store, consolidated=True),
    }.items():
        try:
            read()
        except Exception:  # noqa: BLE001  each has errors of its own
            continue
        yield name


def nodes_below(target: Path) -> dict[str, Any]:
    """All arrays below a folder that plain Zarr opens, with what it reads."""
    found = {}
    for at, _, _ in os.walk(target):
        try:
            found[os.path.relpath(at, target)] = zarr.open_array(at, mode="r")[...]
        except Exception:  # noqa: BLE001
            continue
    return found


def stop(job: Any, after: int) -> None:
    """Run a job to the ``after``-th chunk, or entry of its journal, where its device is full."""
    calls, prepare = count(), step("record part")

    def full(*args: Any, **more: Any) -> Any:
        if next(calls) >= after:
            raise DiskFullError("no space left on the device for an entry")
        return prepare(*args, **more)

    with pytest.MonkeyPatch.context() as patch:
        break_disk(patch, after)
        replace_step(patch, "record part", full)
        with pytest.raises(OocError):
            job.run()


@pytest.mark.sampled
@pytest.mark.parametrize(*pairs(name=JOBS, after=[1, 3], zarr_format=[2, 3]))
def test_nobody_opens_a_target_that_a_run_has_left(tmp_path: Path, name: str, after: int, zarr_format: int) -> None:
    target = tmp_path / "t"
    job = JOBS[name](tmp_path, target, zarr_format)
    stop(job, 0 if name in ("pyramid", "reduce") else after)
    with pytest.raises(UnfinishedError, match="overwrite"):
        ooc.open_array(target)
    assert list(opened_by(target)) == []
    left = nodes_below(target)
    made = JOBS[name](tmp_path, tmp_path / "whole", zarr_format).run()
    assert made is not None
    whole = nodes_below(tmp_path / "whole")
    for path, values in left.items():  # arrays of a group that are finished by themselves
        np.testing.assert_array_equal(values, whole[path])
    JOBS[name](tmp_path, target, zarr_format, overwrite=True).run()
    again = nodes_below(target)
    assert again.keys() == whole.keys()
    for path, values in again.items():
        np.testing.assert_array_equal(values, whole[path])
    assert not list(target.rglob(JOURNAL_FOLDER))


@pytest.mark.sampled
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("name", sorted(JOBS.keys() - LOCAL_ONLY))
def test_nor_one_in_memory(tmp_path: Path, name: str, zarr_format: int) -> None:
    target = MemoryStore()
    stop(JOBS[name](tmp_path, target, zarr_format), 0 if name in ("pyramid", "reduce") else 2)
    with pytest.raises(UnfinishedError, match="overwrite"):
        ooc.open_array(target)
    assert list(opened_by(target)) == []
    JOBS[name](tmp_path, target, zarr_format, overwrite=True).run()
    assert not [key for key in target._store_dict if JOURNAL_FOLDER in key.split("/")]
    JOBS[name](tmp_path, tmp_path / "whole", zarr_format).run()
    whole = nodes_below(tmp_path / "whole")
    assert whole
    for path, values in whole.items():
        np.testing.assert_array_equal(zarr.open_array(target, path=path if path != "." else "", mode="r")[...], values)


def test_a_section_is_written_only_to_what_is_there(tmp_path: Path) -> None:
    """A run that writes to an array that is there leaves it readable, by everybody: the page says so."""
    z = zarr.create_array(tmp_path / "a", data=np.zeros_like(DATA), chunks=(4, 4), compressors=None)
    parts = ooc.ranks.read_sections(ooc.open_array(source(tmp_path)), "(block, *)", ranks=2)
    job = ooc.ranks.write_sections(ooc.open_array(tmp_path / "a", mode="r+"), "(block, *)", parts, **THREADS)
    stop(job, 5)
    assert zarr.open_array(tmp_path / "a", mode="r").shape == z.shape


# ---------------------------------------------------------------------- what is overwritten


class Killed(BaseException):
    """What nothing of ours catches."""


def kill_at(patch: pytest.MonkeyPatch, moment: int) -> Iterator[int]:
    """Die before the ``moment``-th change that makes room for a target."""
    moments = count()

    def dying(real: Any) -> Any:
        def change(*args: Any, **more: Any) -> Any:
            if next(moments) >= moment:
                raise Killed
            return real(*args, **more)

        return change

    for name in ("put documents", "remove documents", "remove old files", "remove old folder"):
        replace_step(patch, name, dying(step(name)))
    patch.setattr(os, "unlink", dying(os.unlink))
    return moments


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["two-phase", "map_slabs", "scatter_files", "gather_files", "pyramid", "group"])
@pytest.mark.parametrize("moment", [0, 1, 2, 3, 4, 5, 7])
def test_what_is_replaced_is_whole_or_not_there(tmp_path: Path, name: str, moment: int) -> None:
    target = tmp_path / "t"
    JOBS[name](tmp_path, target).run()
    old = nodes_below(target)
    job = JOBS[name](tmp_path, target, overwrite=True)
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, moment)
        with suppress(Killed):
            job.run()
    for path, values in nodes_below(target).items():
        np.testing.assert_array_equal(values, old[path])
    JOBS[name](tmp_path, target, overwrite=True).run()
    assert nodes_below(target).keys() == old.keys()
    assert not list(target.rglob(JOURNAL_FOLDER))


@pytest.mark.parametrize("name", ["two-phase", "scatter_files", "pyramid", "group"])
@pytest.mark.parametrize("where", ["", "c", "deep"])
def test_a_file_that_is_no_part_of_an_array_is_never_removed(tmp_path: Path, name: str, where: str) -> None:
    target = tmp_path / "t"
    JOBS[name](tmp_path, target).run()
    (target / where).mkdir(exist_ok=True)
    (target / where / "thesis.tex").write_text("seven years")
    with pytest.raises(TargetError, match=r"thesis\.tex"):
        JOBS[name](tmp_path, target, overwrite=True)
    assert (target / where / "thesis.tex").read_text() == "seven years"
    (target / where / "thesis.tex").unlink()
    JOBS[name](tmp_path, target, overwrite=True).run()


# ---------------------------------------------------------------------- every state can be left


def failing(patch: pytest.MonkeyPatch, kind: int, number: int) -> Iterator[int]:
    """Let the system refuse to make files from the ``number``-th on."""
    calls, opened = count(), os.open

    def refusing(path: Any, flags: int, *args: Any, **more: Any) -> int:
        if flags & os.O_CREAT and "/t" in str(path) and next(calls) >= number:
            raise OSError(kind, os.strerror(kind), str(path))
        return opened(path, flags, *args, **more)

    patch.setattr(os, "open", refusing)
    return calls


@pytest.mark.sampled
@pytest.mark.parametrize(
    *pairs(
        name=["two-phase", "map_slabs", "scatter_files", "pyramid", "group", "from_dask"],
        error=["EDQUOT", "EIO", "EMFILE", "EROFS", "ENOSPC"],
        number=range(3),
    )
)
def test_where_the_journal_cannot_be_begun_nothing_is_left(tmp_path: Path, name: str, error: str, number: int) -> None:
    """Of the first files that a run makes one is refused: its lock, its journal, the draft."""
    target = tmp_path / "t"
    job = JOBS[name](tmp_path, target)
    with pytest.MonkeyPatch.context() as patch:
        failing(patch, getattr(errno, error), number)
        with pytest.raises(OocError) as caught:
            job.run()
    assert "\n" not in str(caught.value)
    assert not target.exists()
    with pytest.raises(NotFoundError):
        ooc.open_array(target)
    JOBS[name](tmp_path, target).run()


@pytest.mark.parametrize("error", ["EDQUOT", "EROFS"])
def test_where_the_journal_cannot_be_begun_what_is_there_stays(tmp_path: Path, error: str) -> None:
    target = tmp_path / "t"
    JOBS["two-phase"](tmp_path, target).run()
    for number in range(3):
        job = JOBS["map_slabs"](tmp_path, target, overwrite=True)
        with pytest.MonkeyPatch.context() as patch:
            failing(patch, getattr(errno, error), number)
            with pytest.raises(OocError):
                job.run()
        np.testing.assert_array_equal(ooc.open_array(target)[...], DATA)
        assert not list(target.rglob(JOURNAL_FOLDER))


@pytest.mark.sampled
@pytest.mark.parametrize("plan", [b"", b"{", None], ids=["empty", "torn", "gone"])
@pytest.mark.parametrize("name", sorted(JOBS))
def test_without_a_journal_one_call_starts_over(tmp_path: Path, name: str, plan: bytes | None) -> None:
    target = tmp_path / "t"
    stop(JOBS[name](tmp_path, target), 0 if name in ("pyramid", "reduce") else 2)
    text = target / JOURNAL_FOLDER / JOURNAL_PLAN
    if plan is not None:
        text.write_bytes(plan)
    elif text.exists():
        text.unlink()
    with pytest.raises(UnfinishedError, match="overwrite"):
        ooc.open_array(target)
    for again in (False, True):
        with pytest.raises(InputError, match="start over: make the same call with overwrite=True"):
            ooc.resume(target, again=again)
    with pytest.raises(TargetError, match=r"overwrite|remove it first|another"):
        JOBS[name](tmp_path, target)
    JOBS[name](tmp_path, target, overwrite=True).run()
    assert not list(target.rglob(JOURNAL_FOLDER))


@pytest.mark.parametrize("plan", [b"", b"{", None], ids=["empty", "torn", "gone"])
def test_an_update_without_a_journal_does_not_lock_the_data(tmp_path: Path, runs: Server, plan: bytes | None) -> None:
    s, target = source(tmp_path), tmp_path / "t"
    ooc.rechunk(s, target, chunks=(32, 4), **THREADS).run()
    zarr.open_array(s, mode="r+").append(DATA[:8])
    runs.run("update", target, scheduler="threads", at="entry")
    text = target / JOURNAL_FOLDER / JOURNAL_PLAN
    text.write_bytes(plan) if plan is not None else text.unlink()
    np.testing.assert_array_equal(zarr.open_array(target, mode="r")[:32], DATA)
    with pytest.raises(UnfinishedError):
        ooc.open_array(target)
    with pytest.raises(InputError, match=r"bring it up to date again: update\("):
        ooc.resume(target)
    a = ooc.update(target, scheduler="threads").run()
    np.testing.assert_array_equal(a[...], np.concatenate([DATA, DATA[:8]]))
    assert not list(target.rglob(JOURNAL_FOLDER))


# ---------------------------------------------------------------------- who may read it


def test_nobody_else_reads_scratch_or_journals(tmp_path: Path, runs: Server) -> None:
    (tmp_path / "scratch").mkdir()
    old = os.umask(0o022)
    try:
        runs.run(
            "rechunk", source(tmp_path), tmp_path / "t", chunks=[32, 4], method="staged", ranks=2, memory="64MiB",
            scheduler="threads", at="chunk", after=9, scratch=str(tmp_path / "scratch"),
        )  # fmt: skip
    finally:
        os.umask(old)
    folders = [each for each in tmp_path.rglob(".oocarrays*") if each.is_dir()]
    assert len(folders) == 2
    for folder in folders:
        assert folder.stat().st_mode & 0o777 == 0o700
        for each in folder.rglob("*"):
            assert each.is_dir() or each.stat().st_mode & 0o777 == 0o600, each
    ooc.resume(tmp_path / "t").run()
    for name in ("zarr.json", ".oocarrays.source", "c/0/0"):
        assert (tmp_path / "t" / name).stat().st_mode & 0o044 == 0o044, name
