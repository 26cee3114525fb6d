"""Chunks of unequal lengths (Zarr's rectilinear grids): read, written and made where zarr-python knows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from distributed import Client, LocalCluster

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import ChunksError, LayoutError, OocError, PlacementError, TargetError, UnsupportedError
from tests.dying import Server
from tests.flat import flat
from tests.seams import RECTILINEAR_SETTING, knowing_uneven

pytestmark = pytest.mark.long

DATA = np.arange(2400.0).reshape(60, 40)
BLOCKS = ((10, 20, 30), (25, 15))
HERE: dict[str, Any] = {"scheduler": "threads"}


def knows() -> bool:
    try:
        zarr.config.get(RECTILINEAR_SETTING)
    except KeyError:
        return False
    return True


known = pytest.mark.skipif(not knows(), reason="zarr-python is older than 3.3")
unknown = pytest.mark.skipif(knows(), reason="zarr-python knows them")


@pytest.fixture
def uneven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An array as Zarr makes it, or would."""
    monkeypatch.chdir(tmp_path)
    if knows():
        with knowing_uneven():
            zarr.create_array("a.zarr", shape=DATA.shape, dtype="f8", chunks=list(map(list, BLOCKS)))[:] = DATA
        return tmp_path / "a.zarr"
    zarr.create_array("a.zarr", data=DATA, chunks=(10, 40))
    document = json.loads(Path("a.zarr/zarr.json").read_text())
    grid = {"name": "rectilinear", "configuration": {"kind": "inline", "chunk_shapes": BLOCKS}}
    Path("a.zarr/zarr.json").write_text(json.dumps(document | {"chunk_grid": grid}))
    return tmp_path / "a.zarr"


def by_zarr(path: str) -> zarr.Array:
    with knowing_uneven():
        return zarr.open_array(path, mode="r")


READS: dict[str, Callable[[Any], Any]] = {
    "open": lambda place: ooc.open_array(place)[...],
    "lazy": lambda place: ooc.open_array(place).to_dask().compute(**HERE),
    "rechunk": lambda place: ooc.rechunk(place, "t.zarr", chunks=(60, 3), **HERE).run()[...],
    "slabs": lambda place: ooc.map_slabs(abs, place, "t.zarr", **HERE).run()[...],
    "sections": lambda place: ooc.ranks.read_sections(place, [...], **HERE).compute()[0],
    "scatter": lambda place: ooc.ranks.scatter_files(place, "(block, *)", "f", ranks=2, **HERE).run()[...],
}


@known
@pytest.mark.parametrize("read", READS)
def test_they_are_read(uneven: Path, read: str) -> None:
    np.testing.assert_array_equal(READS[read](uneven), DATA)


@known
@pytest.mark.usefixtures("uneven")
def test_an_open_array_of_zarr_is_read() -> None:
    np.testing.assert_array_equal(READS["rechunk"](by_zarr("a.zarr")), DATA)


@known
@pytest.mark.usefixtures("uneven")
@pytest.mark.parametrize("taken", [np.s_[3:50, 2:30], np.s_[::7, 5], np.s_[59, -1], np.s_[...]])
def test_sections_are_written_as_numpy_has_them(taken: Any) -> None:
    expected = DATA.copy()
    array = ooc.open_array("a.zarr", mode="r+")
    array[taken] = expected[taken] = -1
    np.testing.assert_array_equal(array[...], expected)
    np.testing.assert_array_equal(by_zarr("a.zarr")[...], expected)


@known
@pytest.mark.usefixtures("uneven")
def test_they_are_made_of_lists_and_of_what_ranks_have() -> None:
    listed = ooc.create_array(
        ooc.Target("b.zarr", attributes={"units": "K"}), shape=DATA.shape, dtype="f8", chunks=BLOCKS
    )
    layout = "(gen_block(10,20,30), *)"
    ranks = ooc.create_array("c.zarr", shape=DATA.shape, dtype="f8", chunks="layout", layout=layout, ranks=3)
    for array, path, lengths in ((listed, "b.zarr", BLOCKS), (ranks, "c.zarr", (BLOCKS[0], (40,)))):
        array[...] = DATA
        assert by_zarr(path).read_chunk_sizes == lengths
        np.testing.assert_array_equal(by_zarr(path)[...], DATA)
    assert listed.attrs["units"] == by_zarr("b.zarr").attrs["units"] == "K"


@known
@pytest.mark.usefixtures("uneven")
def test_blocks_of_dask_are_kept() -> None:
    x = da.from_array(DATA, chunks=BLOCKS)
    ooc.store(x + 1, ooc.create_array("b.zarr", shape=x.shape, dtype=x.dtype, chunks=x.chunks), **HERE)
    assert by_zarr("b.zarr").read_chunk_sizes == x.chunks
    np.testing.assert_array_equal(by_zarr("b.zarr")[...], DATA + 1)


def many_chunks() -> None:
    """Write and rechunk more chunks of uneven lengths than Zarr has threads."""
    zarr.config.set({"threading.max_workers": 2})
    data, chunks = np.arange(144.0).reshape(12, 12), [[1, 2] * 4] * 2
    with knowing_uneven():
        zarr.create_array("u.zarr", shape=data.shape, dtype="f8", chunks=chunks)[...] = data
    array = ooc.open_array("u.zarr", mode="r+")
    np.testing.assert_array_equal(array[...], data)
    array[...] = data + 1
    made = ooc.rechunk("u.zarr", "v.zarr", chunks=tuple(map(tuple, chunks)), scheduler="threads").run()
    np.testing.assert_array_equal(made[...], data + 1)
    with knowing_uneven():
        np.testing.assert_array_equal(zarr.open_array("v.zarr", mode="r")[...], data + 1)


@known
def test_more_chunks_than_threads_of_zarr_do_not_wait_for_each_other(
    tmp_path: Path, runs: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = runs.start("tests.stores.test_uneven:many_chunks")
    assert run.ends_within(60) == 0, run.err


JOBS: dict[str, Callable[[Any], Any]] = {
    "rechunk": lambda chunks: ooc.rechunk("regular.zarr", "b.zarr", chunks=chunks, **HERE),
    "from_dask": lambda chunks: ooc.rechunk(da.from_array(DATA, chunks=(7, 40)), "b.zarr", chunks=chunks, **HERE),
    "lazy": lambda chunks: ooc.rechunk(da.from_array(DATA, chunks=BLOCKS), "b.zarr", chunks=chunks, **HERE),
    "slabs": lambda chunks: ooc.map_slabs(abs, "regular.zarr", ooc.Target("b.zarr", chunks=chunks), **HERE),
}


@pytest.mark.sampled(2)
@known
@pytest.mark.usefixtures("uneven")
@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("chunks", [BLOCKS, {0: (1, 40, 19)}, ((5, 50, 5), -1)], ids=str)
def test_jobs_write_them(job: str, chunks: Any) -> None:
    z = zarr.create_array("regular.zarr", shape=DATA.shape, dtype="f8", chunks=(11, 40), attributes={"units": "K"})
    z[...] = DATA
    done = JOBS[job](chunks).run()
    lengths = chunks if isinstance(chunks, tuple) else (chunks[0], None)
    there = by_zarr("b.zarr")
    for asked, has in zip(lengths, there.read_chunk_sizes, strict=True):
        assert asked in (None, -1, has)
    np.testing.assert_array_equal(there[...], DATA)
    np.testing.assert_array_equal(done[...], DATA)
    assert there.compressors == z.compressors
    assert dict(there.attrs) == ({} if job in ("from_dask", "lazy") else {"units": "K"})
    assert sorted(each.name for each in Path("b.zarr").iterdir()) == ["c", "zarr.json"]


@known
@pytest.mark.usefixtures("uneven")
def test_what_is_uneven_keeps_its_codecs_and_is_replaced_where_that_is_asked_for() -> None:
    ooc.rechunk("a.zarr", "b.zarr", chunks=((6, 54), 40), **HERE).run()
    with pytest.raises(TargetError, match="exists"):
        ooc.rechunk("a.zarr", "b.zarr", chunks=BLOCKS, **HERE)
    ooc.rechunk("a.zarr", "b.zarr", chunks=BLOCKS, overwrite=True, **HERE).run()
    assert by_zarr("b.zarr").read_chunk_sizes == BLOCKS
    assert by_zarr("b.zarr").compressors == by_zarr("a.zarr").compressors
    np.testing.assert_array_equal(by_zarr("b.zarr")[...], DATA)


@known
@pytest.mark.usefixtures("uneven")
def test_a_run_into_them_that_fails_leaves_what_is_marked_unfinished() -> None:
    def spoilt(block: np.ndarray) -> np.ndarray:
        if block[-1, -1] == DATA[-1, -1]:
            raise ValueError("spoilt")
        return block

    x = da.from_array(DATA, chunks=BLOCKS)
    zarr.create_array("regular.zarr", data=DATA, chunks=(10, 40))
    with pytest.raises(OocError, match="spoilt"):
        ooc.map_slabs(
            spoilt,
            "regular.zarr",
            ooc.Target("b.zarr", chunks=BLOCKS),
            window=10,
            resources=ooc.Resources(ranks=1),
            **HERE,
        ).run()
    with pytest.raises(OocError, match="unfinished"):
        ooc.open_array("b.zarr")
    np.testing.assert_array_equal(ooc.rechunk(x, "b.zarr", chunks=BLOCKS, overwrite=True, **HERE).run()[...], DATA)
    assert by_zarr("b.zarr").read_chunk_sizes == BLOCKS


@known
@pytest.mark.usefixtures("uneven")
def test_nothing_is_lost_by_mistake() -> None:
    with pytest.raises(TargetError, match="is the source itself"):
        ooc.rechunk("a.zarr", "a.zarr", chunks=(60, 4), overwrite=True, **HERE)
    with pytest.raises(TargetError, match="exists"):
        ooc.create_array("a.zarr", shape=DATA.shape, dtype="f8", chunks=BLOCKS)
    with pytest.raises(OocError, match=r"read-only|reading"):
        ooc.open_array("a.zarr")[0] = 1
    np.testing.assert_array_equal(by_zarr("a.zarr")[...], DATA)
    zarr.create_array("b.zarr", data=-DATA, chunks=(10, 40))
    done = ooc.rechunk("b.zarr", "a.zarr", chunks=(60, 4), overwrite=True, **HERE).run()
    np.testing.assert_array_equal(done[...], -DATA)


@known
@pytest.mark.usefixtures("uneven")
def test_workers_read_them_and_do_not_write_them() -> None:
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        done = ooc.rechunk("a.zarr", "t.zarr", chunks=(60, 3), scheduler=client).run()
        np.testing.assert_array_equal(done[...], DATA)
        writable = ooc.open_array("a.zarr", mode="r+")
        with pytest.raises((TargetError, PlacementError), match="one process writes"):
            ooc.store(da.zeros(DATA.shape, chunks=30), writable, scheduler=client)
        with pytest.raises(PlacementError, match="one process writes"):
            ooc.rechunk("t.zarr", "b.zarr", chunks=BLOCKS, scheduler=client)


@known
def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    how: dict[str, Any] = {"shape": DATA.shape, "dtype": "f8"}
    with pytest.raises(UnsupportedError, match="need format 3 and no shards"):
        flat(ooc.create_array, ooc.Target(tmp_path / "a", zarr_format=2), chunks=BLOCKS, **how)
    with pytest.raises(LayoutError, match="pass layout="):
        flat(ooc.create_array, tmp_path / "a", chunks="layout", **how)
    with pytest.raises(LayoutError, match="needs block"):
        flat(ooc.create_array, tmp_path / "a", chunks="layout", layout="(cyclic, *)", ranks=2, **how)
    with pytest.raises(ChunksError, match="must have equal length"):
        flat(ooc.create_array, tmp_path / "a", chunks=((10, 20, 31), (25, 15)), **how)
    assert not list(tmp_path.iterdir())
    group = zarr.create_group(tmp_path / "g.zarr")
    z = group.create_array("x", data=DATA, chunks=(10, 40))
    with pytest.raises(UnsupportedError, match=r"x: .* for a single array"):
        ooc.rechunk(tmp_path / "g.zarr", tmp_path / "t", chunks={"x": BLOCKS}, **HERE)
    with pytest.raises(UnsupportedError, match="need format 3 and no shards"):
        ooc.rechunk(z, ooc.Target(tmp_path / "t", zarr_format=2), chunks=BLOCKS, **HERE)
    assert not (tmp_path / "t").exists()


@unknown
@pytest.mark.parametrize("read", READS)
def test_an_older_zarr_says_so(uneven: Path, read: str) -> None:
    with pytest.raises(UnsupportedError, match=r"unequal lengths, which zarr .* does not know: zarr-python 3\.3"):
        READS[read](uneven)


@unknown
def test_an_older_zarr_makes_none(uneven: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UnsupportedError, match=r"does not know: zarr-python 3\.3 and Python 3\.12 or later"):
        ooc.create_array("b.zarr", shape=DATA.shape, dtype="f8", chunks=BLOCKS)
    x = da.from_array(DATA, chunks=BLOCKS)
    zarr.create_array("regular.zarr", data=DATA, chunks=(10, 40))
    for call in (
        lambda: ooc.rechunk(x, "b.zarr", chunks=x.chunks, **HERE),
        lambda: ooc.rechunk("regular.zarr", "b.zarr", chunks=BLOCKS, **HERE),
        lambda: ooc.map_slabs(abs, "regular.zarr", ooc.Target("b.zarr", chunks=BLOCKS), **HERE),
    ):
        with pytest.raises(UnsupportedError, match=r"b.zarr has chunks of unequal .* does not know: zarr-python 3\.3"):
            call()
    assert not Path("b.zarr").exists()
    assert main(["info", str(uneven)]) != 0
    assert capsys.readouterr().err.count("\n") == 1
