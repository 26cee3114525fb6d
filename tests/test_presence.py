"""A place that cannot be reached is an error and never the fill value: at every entry point, in every kind of chunk."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import RunError, StoreFailure
from tests import entries, seams
from tests.entries import ENTRIES, FAULTS, JOBS, STORED, THREADS
from tests.flat import flat
from tests.graphs.clusters import until
from tests.small import DATA, make

pytestmark = pytest.mark.long

SOME = ("rechunk, independent", "rechunk, two-phase", "map_slabs", "a[...]", "to_dask")
"""Entry points that read in different ways."""
each_entry = pytest.mark.parametrize("entry", ENTRIES)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An array in a folder of its own; the test is in another one."""
    (tmp_path / "data").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    make(tmp_path / "data" / "s.zarr")
    return tmp_path / "data" / "s.zarr"


@each_entry
def test_a_relative_path_is_that_of_the_folder_in_which_it_was_named(
    entry: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "else" / "where").mkdir(parents=True)
    read = ENTRIES[entry]("../data/s.zarr", tmp_path, THREADS)
    monkeypatch.chdir(tmp_path / "else" / "where")
    np.testing.assert_array_equal(read(), DATA)
    assert not os.listdir(), "all is where it was asked for"


@pytest.mark.parametrize("handed_in", ["array", "store", "store path", "wrapped store"])
def test_what_is_handed_in_open_stays_where_it_is(
    handed_in: str, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = zarr.storage.LocalStore("../data/s.zarr")
    given = {
        "array": lambda: zarr.open_array("../data/s.zarr", mode="r"),
        "store": lambda: store,
        "store path": lambda: zarr.storage.StorePath(zarr.storage.LocalStore("../data"), "s.zarr"),
        "wrapped store": lambda: zarr.storage.WrapperStore(store),
    }[handed_in]()
    a, job = ooc.open_array(given), flat(ooc.rechunk, given, "t.zarr", chunks=(96, 10), memory="64MiB", **THREADS)
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(a[...], DATA)
    np.testing.assert_array_equal(job.run()[:], DATA)


def test_a_group_that_is_handed_in_open_stays_where_it_is(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zarr.create_group(source.parent)
    group = ooc.open_group(zarr.open_group("../data", mode="r"))
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(group["s.zarr"][:], DATA)


def test_an_array_that_is_written_stays_where_it_is(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = ooc.open_array("../data/s.zarr", mode="r+")
    (tmp_path / "else" / "where").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "else" / "where")
    a[:16] = 7
    assert (zarr.open_array(source)[:17, 0] == 7).tolist() == [True] * 16 + [False]
    assert not os.listdir()


@pytest.mark.parametrize(
    ("entry", "fault"),
    [*product(ENTRIES, FAULTS[:2]), *product(SOME, FAULTS[2:])],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_source_that_has_gone_is_an_error(
    entry: str, fault: Callable[[Path], None], source: Path, tmp_path: Path
) -> None:
    read = ENTRIES[entry](str(source), tmp_path, THREADS)
    fault(source)
    with pytest.raises(RunError, match=r"s\.zarr"):
        read()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fault", [entries.moved, entries.emptied], ids=lambda fault: fault.__name__)
@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("entry", SOME)
def test_whatever_its_chunks_are(
    entry: str, stored: str, fault: Callable[[Path], None], source: Path, tmp_path: Path
) -> None:
    shutil.rmtree(source)
    make(source, **STORED[stored])
    read = ENTRIES[entry](str(source), tmp_path, THREADS)
    fault(source)
    with pytest.raises(RunError, match=r"s\.zarr"):
        read()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("entry", "stored"), [*product(ENTRIES, ["plain"]), *product(SOME, list(STORED)[1:])])
def test_chunks_that_nobody_has_written_are_fill_values(entry: str, stored: str, source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source)
    z = zarr.create_array(source, shape=DATA.shape, dtype="f4", fill_value=3, **{"chunks": (8, 80)} | STORED[stored])
    z[16:32] = DATA[16:32]
    wanted = z[:]
    np.testing.assert_array_equal(ENTRIES[entry](str(source), tmp_path, THREADS)(), wanted)


@pytest.mark.parametrize("dtype", ["M8[s]", ">m8[ns]", "?", "f4"])
@pytest.mark.parametrize("method", ["independent", "assembled"])
def test_without_a_fill_value_zarrs_own_is_read_and_written(tmp_path: Path, dtype: str, method: Any) -> None:
    """In format 2: times are NaT, and others zero."""
    source = tmp_path / "s.zarr"
    z = zarr.create_array(source, shape=(10, 9), chunks=(3, 4), dtype=np.dtype(dtype), fill_value=None, zarr_format=2)
    z[3:6, 4:8] = np.zeros((3, 4), z.dtype)
    a, wanted = ooc.open_array(source), z[...]
    assert a[...].tobytes() == a.to_dask().compute().tobytes() == wanted.tobytes()
    made = flat(
        ooc.rechunk, source, tmp_path / "t.zarr", chunks=(10, 2), method=method, memory="64MiB", **THREADS
    ).run()
    assert zarr.open_array(made.store)[...].tobytes() == wanted.tobytes()
    b = zarr.create_array({}, shape=(10, 9), chunks=(3, 4), dtype=z.dtype, fill_value=None, zarr_format=2)
    ooc.open_array(b, mode="r+")[4:5, 5:6] = 0
    wanted[...] = wanted[0, 0]
    wanted[4, 5] = 0
    assert b[...].tobytes() == wanted.tobytes()


@each_entry
def test_an_array_without_chunks_is_fill_values(entry: str, source: Path, tmp_path: Path) -> None:
    entries.emptied(source)
    assert (ENTRIES[entry](str(source), tmp_path, THREADS)() == 0).all()


@pytest.mark.parametrize("entry", ["rechunk, independent", "a[...]", "map_slabs"])
def test_an_array_may_grow_and_get_other_attributes_meanwhile(entry: str, source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source / "c" / "3")
    wanted = zarr.open_array(source)[:]
    read = ENTRIES[entry](str(source), tmp_path, THREADS)
    z = zarr.open_array(source)
    z.attrs["more"] = 1
    z.resize((104, 80))
    np.testing.assert_array_equal(read(), wanted)


@pytest.mark.parametrize("entry", [entry for entry in JOBS if entry.startswith(("rechunk", "group"))])
def test_a_run_goes_on_when_its_source_is_back(entry: str, source: Path, tmp_path: Path) -> None:
    job_reads = ENTRIES[entry](str(source), tmp_path, THREADS)
    away = tmp_path / "away"
    source.rename(away)
    with pytest.raises(RunError):
        job_reads()
    away.rename(source)
    np.testing.assert_array_equal(job_reads(), DATA)


def test_a_source_that_goes_while_a_run_is_at_work_leaves_a_target_that_can_be_resumed(
    source: Path, tmp_path: Path
) -> None:
    away, seen = tmp_path / "away", []

    def kernel(block: np.ndarray) -> np.ndarray:
        if seen.append(block.shape) is None and len(seen) == 3 and not away.exists():
            source.rename(away)
        return block

    how: Any = {"memory": "64MiB", "height": 8, "axis": 0, "ranks": 1, "prefetch": 1, **THREADS}
    with pytest.raises(RunError, match=r"s\.zarr"):
        flat(ooc.map_slabs, kernel, str(source), "t.zarr", **how).run()
    with pytest.raises(ooc.errors.UnfinishedError):
        ooc.open_array("t.zarr")
    away.rename(source)
    away.mkdir()
    again = flat(ooc.map_slabs, kernel, str(source), "t.zarr", resume=True, **how)
    np.testing.assert_array_equal(again.run()[:], DATA)


def test_a_source_that_is_replaced_by_one_that_lacks_nothing_is_found_before_the_end(
    source: Path, tmp_path: Path
) -> None:
    seen: list[int] = []

    def kernel(block: np.ndarray) -> np.ndarray:
        if seen.append(1) is None and len(seen) == 3:
            shutil.rmtree(source)
            make(source, DATA.astype("f4") + 1, fill_value=5)
        return block

    how: Any = {"memory": "64MiB", "height": 8, "axis": 0, "ranks": 1, "prefetch": 0, **THREADS}
    with pytest.raises(RunError, match=r"s\.zarr is not the array that was opened"):
        flat(ooc.map_slabs, kernel, str(source), "t.zarr", **how).run()
    assert len(seen) == 12, "every chunk was found"
    with pytest.raises(ooc.errors.UnfinishedError):
        ooc.open_array("t.zarr")


@pytest.mark.parametrize(
    ("fault", "options"),
    [(entries.moved, []), (entries.moved, ["--as-is"]), (entries.moved, ["--again"]), (entries.emptied, [])],
)
def test_the_command_line_goes_on_with_nothing_that_has_gone(
    fault: Callable[[Path], None], options: list[str], source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    seams.begin(flat(ooc.rechunk, source, "t.zarr", chunks=(96, 10), memory="64MiB", **THREADS))
    fault(source)
    assert main(["resume", "t.zarr", *options]) == 2
    assert re.fullmatch(r"oocarrays: .*s\.zarr.*\n", capfd.readouterr().err)
    with pytest.raises(ooc.errors.UnfinishedError):
        ooc.open_array("t.zarr")


# ---------------------------------------------------------------------- what is written


LAZY = da.from_array(DATA, chunks=30)


def _written(key: Any, values: Any, **how: Any) -> Callable[[Path], Callable[[], Any]]:
    return lambda source: partial(ooc.open_array(source, mode="r+").write, key, values, **how)


WRITES: dict[str, Callable[[Path], Callable[[], Any]]] = {
    "whole chunks": _written(np.s_[:16], 7),
    "a part of a chunk": _written(np.s_[3, 3], 7),
    "fill values": _written(np.s_[:16], 0),
    "write_sections": lambda source: (
        flat(
            ooc.ranks.write_sections,
            ooc.open_array(source, mode="r+"),
            [np.s_[:20], np.s_[20:]],
            [DATA[:20], DATA[20:]],
            **THREADS,
        ).run
    ),
    "store": lambda source: partial(
        ooc.store(da.from_array(DATA, chunks=30), source, compute=False).compute, **THREADS
    ),
}


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("write", WRITES)
def test_a_folder_that_was_taken_away_is_not_made_again(write: str, stored: str, source: Path) -> None:
    shutil.rmtree(source)
    make(source, **STORED[stored])
    writes = WRITES[write](source)
    entries.moved(source)
    with pytest.raises(RunError, match=r"s\.zarr"):
        writes()
    assert not source.exists()


def test_nothing_is_changed_in_place_of_what_has_gone(source: Path) -> None:
    write = _written(np.s_[:3], 7, method="direct")(source)
    entries.moved(source)
    with pytest.raises(RunError, match=r"s\.zarr"):
        write()
    assert not source.exists()


def test_blocks_are_not_written_where_their_target_was(tmp_path: Path) -> None:
    target = tmp_path / "t.zarr"

    def block(values: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info[0]["chunk-location"] == (11, 0):
            until((target / "c").exists)  # blocks are computed before there is a target, too
            target.rename(tmp_path / "taken")
        return values

    x = da.from_array(DATA, chunks=(8, 80)).map_blocks(block, dtype="f4", meta=DATA[:0])
    with pytest.raises(RunError):
        flat(ooc.rechunk, x, target, chunks=(8, 80), memory="64MiB", **THREADS).run()
    assert not target.exists()


def test_a_target_that_is_taken_away_is_an_error_and_not_made_again(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "t.zarr"

    def kernel(block: np.ndarray) -> np.ndarray:
        if target.exists() and (target / "c" / "2").exists():
            target.rename(tmp_path / "taken")
        return block

    job = flat(
        ooc.map_slabs,
        kernel,
        source,
        target,
        memory="64MiB",
        window={0: 8},
        resources=ooc.Resources(ranks=1, prefetch=1),
        **THREADS,
    )
    with pytest.raises(RunError):
        job.run()
    assert not target.exists()


# ---------------------------------------------------------------------- what else a file system can say


@pytest.mark.parametrize("fault", ["ELOOP", "ENOTDIR"])
@pytest.mark.parametrize("entry", SOME)
def test_only_a_chunk_that_is_not_there_is_missing(entry: str, fault: str, source: Path, tmp_path: Path) -> None:
    chunk = source / "c" / "5"
    shutil.rmtree(chunk)
    if fault == "ELOOP":
        chunk.symlink_to(chunk)
    else:
        chunk.write_bytes(b"")
    read = ENTRIES[entry](str(source), tmp_path, THREADS)
    with pytest.raises(StoreFailure, match=r"c/5"):
        read()


def test_a_chunk_whose_name_is_too_long_is_not_missing(tmp_path: Path) -> None:
    """Its array's folder has a name just short enough: ENAMETOOLONG."""
    made = tmp_path / "made"
    zarr.create_array(made, shape=(1,) * 12, dtype="f4", chunk_key_encoding={"name": "v2", "separator": "."})
    deep, length = tmp_path, 4095 - len("/zarr.json")
    while length - len(str(deep)) > 400:
        deep = deep / ("d" * 200)
    deep = deep / ("d" * 190)
    deep.mkdir(parents=True)
    folder = deep / ("s" * (length - len(str(deep)) - 1))
    made.rename(folder)
    a = ooc.open_array(folder)
    with pytest.raises(StoreFailure, match="File name too long"):
        a[...]


def test_a_chunk_that_may_not_be_read_is_not_missing(source: Path) -> None:
    a = ooc.open_array(source)
    (source / "c" / "5" / "0").chmod(0)
    others = ctypes.CDLL(None).setfsuid if os.geteuid() == 0 else None  # what this thread alone may do with files
    if others:
        others(65534)
    try:
        with pytest.raises(StoreFailure, match="Permission denied"):
            a[...]
    finally:
        if others:
            others(0)


@pytest.fixture
def mounted(source: Path) -> Iterator[Callable[[], None]]:
    """What mounts an empty disk over the array, as it is where a disk is not mounted."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount")
    there: list[bool] = []

    def mount() -> None:
        done = subprocess.run(["mount", "-t", "tmpfs", "none", str(source)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("mounting is not allowed here")
        there.append(True)

    yield mount
    if there:
        subprocess.run(["umount", "-l", str(source)], check=False)


@pytest.mark.parametrize("entry", SOME)
def test_a_disk_that_is_not_mounted_is_an_error(
    entry: str, source: Path, tmp_path: Path, mounted: Callable[[], None]
) -> None:
    read = ENTRIES[entry](str(source), tmp_path, THREADS)
    mounted()
    with pytest.raises(RunError, match=r"s\.zarr"):
        read()


@pytest.fixture
def fixed(source: Path) -> Iterator[Path]:
    """The array on a disk that cannot be written."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root may mount")
    bound = ["mount", "--bind", str(source), str(source)], ["mount", "-o", "remount,bind,ro", str(source)]
    done = [subprocess.run(words, capture_output=True, check=False).returncode for words in bound]
    try:
        if any(done):
            pytest.skip("mounting is not allowed here")
        yield source
    finally:
        if not done[0]:
            subprocess.run(["umount", "-l", str(source)], check=False)


def test_a_source_that_cannot_be_written_is_read_and_stays(fixed: Path, tmp_path: Path) -> None:
    values = ooc.open_array(fixed)[...]
    job = flat(ooc.rechunk, fixed, tmp_path / "new.zarr", chunks=values.shape, **THREADS)
    np.testing.assert_array_equal(job.run()[...], values)
    with pytest.raises(StoreFailure, match="Read-only file system"):
        ooc.open_array(fixed, mode="r+")[...] = 7
    np.testing.assert_array_equal(ooc.open_array(fixed)[...], values)


@pytest.mark.parametrize("leads_to", ["zarr.json", "/proc/self/mem"], ids=["ELOOP", "EIO"])
def test_a_metadata_document_that_cannot_be_read_is_no_reason_for_fill_values(source: Path, leads_to: str) -> None:
    if not os.path.exists(source / leads_to):
        pytest.skip("there is no such file here")
    a = ooc.open_array(source)
    shutil.rmtree(source / "c" / "3")
    document = source / "zarr.json"
    document.unlink()
    document.symlink_to(leads_to)
    with pytest.raises(StoreFailure, match=r"zarr\.json"):
        a[...]
