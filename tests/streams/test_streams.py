"""Stream files byte by byte, as other readers see them, after a crash, and with wrong input."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from zarr.storage import LocalStore

import oocarrays as ooc
from oocarrays.cli.main import main
from oocarrays.errors import (
    BudgetError,
    ChunksError,
    CorruptChunkError,
    InputError,
    JournalError,
    NotFoundError,
    SelectionError,
    TargetError,
    UnsupportedError,
)
from tests.dying import Server
from tests.seams import LONGEST_RUN, POINTER_BITS

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("quick")]


def strided(values: np.ndarray) -> np.ndarray:
    return np.repeat(values, 2, axis=-1)[..., ::2]


def test_figure_3_two_values_of_8_bytes_in_buffers_of_10(place: Path) -> None:
    one, two = np.arange(4, dtype="f8"), np.arange(4, 8, dtype="f8")
    with ooc.streams.open_streams(place, "w", shape=4, dtype="f8", blocks={"cb_block": 10}) as s:
        s.write(strided(one))
        part = s._part
        assert s.mode == "CB"
        assert part.cb.nbytes == 8
        part.cb.drain()
        assert part.cb.buffers.data.reshape(4, 10)[:, :8].tobytes() == one.tobytes()
        s.write(strided(two))
        part.cb.drain()
        assert part.cb.nbytes == 16
        assert part.cb.count == 1
        assert part.cb.buffers.data.reshape(4, 10)[:, :6].tobytes() == two.view("u1").reshape(4, 8)[:, 2:].tobytes()
    rows = np.asarray(zarr.open_array(place / "cb", mode="r")[...])
    streams = np.stack((one, two), 1).view("u1").reshape(4, 16)
    assert rows.shape == (2, 4, 10)
    np.testing.assert_array_equal(rows[0], streams[:, :10])
    np.testing.assert_array_equal(rows[1, :, :6], streams[:, 10:])
    assert ooc.streams.open_streams(place)._file.meta.cb.nbytes == 16


def test_figure_4_three_segments(place: Path) -> None:
    """NB, then CB, then blocks of IB in the order in which they came, which the directory tells apart."""
    steps = np.arange(12, dtype="i4").reshape(3, 4)
    blocks = {"cb_block": 8, "ib_block": 8, "ib_pointers": 2, "superblock": 32}
    with ooc.streams.open_streams(place, "w", shape=4, dtype="i4", blocks=blocks, ranks=2) as s:
        modes = []
        for values, where in [
            (steps[0], None),
            (steps[1], None),
            (strided(steps[2]), None),
            (strided(steps[2] + 1), None),
            (steps[0] + 100, [True, False, True, True]),
        ]:
            s.write(values, where=where)
            modes.append(s.mode)
        s.write(np.array([7, 8, 9], "i4"), at=np.array([3, 0, 3]))
        assert modes == ["NB", "NB", "CB", "CB", "IB"]
        assert s.segments["NB"] == {"block": 4, "bytes": 32}
        assert s.segments["IB"]["bytes"] == 24
    np.testing.assert_array_equal(zarr.open_array(place / "nb", mode="r")[...], steps[:2])
    np.testing.assert_array_equal(zarr.open_array(place / "cb", mode="r")[...], [np.stack((steps[2], steps[2] + 1), 1)])
    data = np.asarray(zarr.open_array(place / "ib", mode="r")[...]).reshape(-1)
    first, length = (np.asarray(zarr.open_array(place / name, mode="r")[...]) for name in ("first", "length"))
    directory = np.asarray(zarr.open_array(place / "directory", mode="r")[...]).reshape(-1, 4)
    found = {}
    for cell in range(4):
        entry, stream = int(first[cell]), b""
        while entry >= 0:
            assert directory[entry, 0] == cell
            for pointer in directory[entry, 2:][directory[entry, 2:] >= 0].tolist():
                start = (pointer >> POINTER_BITS) * 8
                stream += data[start : start + (pointer & (LONGEST_RUN - 1))].tobytes()
            entry = int(directory[entry, 1])
        assert len(stream) == length[cell]
        found[cell] = np.frombuffer(stream, "i4").tolist()
    assert found == {0: [100, 8], 1: [], 2: [102], 3: [103, 7, 9]}


def test_directories_are_dealt_to_ranks_and_linked_over_many_superblocks(place: Path) -> None:
    rng = np.random.default_rng(0)
    blocks = {"ib_block": 8, "ib_pointers": 1, "superblock": 64}
    want: list[list[int]] = [[] for _ in range(40)]
    with ooc.streams.open_streams(place, "w", shape=(8, 5), dtype="i8", blocks=blocks, ranks=3) as s:
        for turn in range(12):
            cells = rng.integers(0, 40, 50)
            s.write(np.arange(50) + 1000 * turn, at=cells)
            s.flush()
            for cell, value in zip(cells, np.arange(50) + 1000 * turn, strict=True):
                want[cell].append(int(value))
    with ooc.streams.open_streams(place) as s:
        assert s[7, 4].tolist() == want[39]
        assert s[0, 0].tolist() == want[0]
        assert s.to_ragged().to_list() == [want[k : k + 5] for k in range(0, 40, 5)]


def test_a_cell_at_random_takes_one_request_a_superblock(place: Path) -> None:
    rng = np.random.default_rng(0)
    with ooc.streams.open_streams(place, "w", shape=5000, dtype="f8", blocks={"superblock": 4096}) as s:
        for _ in range(4):
            s.write(rng.random(20000), at=rng.integers(0, 5000, 20000))
            s.flush()
    for cell in (3, 4999, 1234):
        with ooc.streams.open_streams(place) as s:
            before = s.meter.read_requests
            extents = s._part.ib.reader._found(np.array([cell]))
            with ooc.streams.open_streams(place) as other:
                assert len(other[cell]) * 8 == s.lengths[cell]
                touched = len(set((extents.place // 4096).tolist()))
                entries = {int(extents.owner.size)}
                assert entries
                assert other.meter.read_requests - before <= 2 * touched + 8


def test_text_is_printed_and_scanned_cell_by_cell(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=(2, 2), dtype="u1") as s:
        s.printf("cell %d is %.2f\n", np.arange(4).reshape(2, 2), 0.5)
        s.printf("odd %d", np.arange(4).reshape(2, 2), where=np.array([[False, True], [False, True]]))
        assert s.mode == "IB"
    with ooc.streams.open_streams(place) as s:
        counts, (numbers, values) = s.scanf("cell %d is %f")
        assert counts.tolist() == [[2, 2], [2, 2]]
        assert numbers.tolist() == [[0, 1], [2, 3]]
        assert (values == 0.5).all()
        counts, (odd,) = s.scanf(" odd %d")
        assert counts.tolist() == [[-1, 1], [-1, 1]]  # -1: the text ended, as C's EOF
        assert odd.tolist() == [[0, 1], [0, 3]]
    lines = ooc.streams.open_streams(place).each(lambda cell: cell.readline() + cell.readline())
    assert lines is not None
    assert lines[1, 1] == "cell 3 is 0.50\nodd 3"
    assert lines[0, 0] == "cell 0 is 0.50\n"


def test_elemental_functions_read_what_they_wrote(place: Path) -> None:
    def count_up(cell: Any, times: int) -> int:
        for number in range(times):
            cell.write([number])
        cell.seek(0)
        return int(cell.read(-1).sum())

    with ooc.streams.open_streams(place, "w", shape=3, dtype="i4") as s:
        s.write(np.array([10, 20, 30], "i4"))
        totals = s.each(count_up, [1, 3, 5])
        assert totals is not None
        assert totals.tolist() == [10, 23, 40]
        assert s.mode == "IB"
        assert s.to_ragged().to_list() == [[10, 0], [20, 0, 1, 2], [30, 0, 1, 2, 3, 4]]


def test_nothing_written_by_an_elemental_function_moves_no_position(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=2, dtype="i4") as s:
        s.write(np.array([1, 2], "i4"))
    with ooc.streams.open_streams(place, "a") as s:
        s.seek(0)
        s.each(lambda cell: cell.write([cell.number] * cell.number))
        assert s.tell().tolist() == [0, 8]
        assert s.to_ragged().to_list() == [[1], [2, 1]]


def test_counts_are_short_at_the_end(place: Path) -> None:
    ooc.streams.streams_from_ragged(place, [3, 1], np.arange(4.0))
    with ooc.streams.open_streams(place) as s:
        assert s.read().tolist() == [0, 3]
        got = s.read(2)
        assert isinstance(got, ooc.streams.Ragged)
        assert got.to_list() == [[1, 2], []]
        assert s.eof().all()
        assert s.tell().tolist() == [24, 8]
        s.seek([8, 0])
        assert s.read(1).tolist() == [[1], [3]]


def test_a_read_over_the_border_of_a_row_in_part_and_blocks_of_cells(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=4, dtype="i4") as s:
        s.write(np.repeat(np.arange(5, 9, dtype="i4"), 2)[::2])
        assert s.mode == "CB"
        s.write([1, 2, 3, 4])
        s.write([7, 8, 9, 6], at=[0, 1, 2, 3])
        assert s.mode == "IB"
    want = np.array([[5, 1, 7], [6, 2, 8], [7, 3, 9], [8, 4, 6]])
    for n in (1, 2, 3):
        with ooc.streams.open_streams(place) as s:
            found = np.concatenate([s.read(min(n, 3 - start)) for start in range(0, 3, n)], axis=-1)
            np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize("is_flushed", [True, False])
def test_reading_from_rows_runs_into_buffers_of_all_cells(place: Path, is_flushed: bool) -> None:
    values = np.arange(16, dtype="u1").reshape(4, 4)
    with ooc.streams.open_streams(place, "w", shape=4, dtype="u1") as s:
        s.write(values[:, :2].copy())
        assert s.mode == "NB"
        s.write(values[:, 2])
        if is_flushed:
            s.flush()
        s.write(values[:, 3])
        s.seek(0)
        np.testing.assert_array_equal(np.stack([s.read() for _ in range(4)], 1), values)


def test_a_masked_write_that_appends_moves_the_cells_that_write(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=3, dtype="i4") as s:
        s.write(np.ones((3, 2), "i4"))
    with ooc.streams.open_streams(place, "a") as s:
        s.seek(0)
        s.write([7, 8, 9], where=[True, False, True])
        assert s.tell().tolist() == [12, 0, 12]
        s.write(np.empty(0, "i4"), at=[])
        assert s.tell().tolist() == [12, 0, 12]
        s.write([5], at=[1])
        assert s.tell().tolist() == [12, 12, 12]
        s.seek(4)
        s.write([0, 0, 0])
        assert s.tell().tolist() == [16, 16, 16]
    assert ooc.streams.open_streams(place).to_ragged().to_list() == [[1, 1, 7, 0], [1, 1, 5, 0], [1, 1, 9, 0]]


def test_a_stream_without_axes_is_read_after_it_is_changed(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=(), dtype="i4") as s:
        s.write([1, 2, 3])
        s.seek(0)
        s.write(7)
        got = s.read()
        assert got.shape == ()
        assert got == 2


def test_one_value_for_all_cells_is_a_regular_write(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=(3, 2), dtype="f8") as s:
        s.write(5.0)
        s.write([1, 2])
        assert s.segments["NB"] == {"block": 8, "bytes": 96}
        assert s.mode == "NB"
    np.testing.assert_array_equal(zarr.open_array(place / "nb", mode="r")[1], [[1, 2]] * 3)


def test_items_of_several_fields_and_of_mixed_types(place: Path, tmp_path: Path) -> None:
    event = np.dtype([("t", "f8"), ("charge", "i4"), ("xy", "u2", (2,))])
    events = np.zeros(5, event)
    events["t"], events["charge"] = np.arange(5), 7
    with ooc.streams.open_streams(place, "w", shape=3, dtype=event) as s:
        s.write(events, at=[0, 2, 2, 0, 2])
    assert ooc.streams.open_streams(place)[2]["t"].tolist() == [1, 2, 4]
    with ooc.streams.open_streams(tmp_path / "m.zarr", "w", shape=2, dtype="u1") as s:
        s.write(np.array([1.5, 2.5]))
        s.write(np.array([3, 4], "i2"))
    with ooc.streams.open_streams(tmp_path / "m.zarr") as s:
        assert s.read(dtype="f8").tolist() == [1.5, 2.5]
        assert s.read(dtype="i2").tolist() == [3, 4]
    np.testing.assert_array_equal(zarr.open_array(tmp_path / "m.zarr" / "nb", mode="r")[...], [[1.5, 2.5]])


def test_any_array_is_a_stream_file_and_streams_become_one(place: Path, tmp_path: Path) -> None:
    values = np.arange(60, dtype="i4").reshape(10, 3, 2)
    coded = zarr.create_array(tmp_path / "a.zarr", shape=(10, 3, 2), chunks=(4, 2, 2), dtype="i4")
    coded[...] = values
    with ooc.streams.open_streams(tmp_path / "a.zarr") as s:
        assert s.shape == (3, 2)
        np.testing.assert_array_equal(s.read(), values[0])
        np.testing.assert_array_equal(s.read(4), np.moveaxis(values[1:5], 0, -1))
        np.testing.assert_array_equal(s[2, 1], values[:, 2, 1])
    named = zarr.create_array(tmp_path / "n.zarr", shape=(3, 5), dtype="i4", dimension_names=("x", "stream"))
    named[...] = values[:5, :, 0].T
    np.testing.assert_array_equal(ooc.streams.open_streams(tmp_path / "n.zarr")[1], values[:5, 1, 0])
    ooc.streams.streams_from_ragged(place, np.array([[2, 0], [1, 3]]), np.arange(6.0))
    with ooc.streams.open_streams(place) as s:
        array = s.to_zarr(tmp_path / "z.zarr", fill=-1)
    np.testing.assert_array_equal(array[:, 0, 0], [0, 1, -1])
    np.testing.assert_array_equal(array[:, 1, 1], [3, 4, 5])
    np.testing.assert_array_equal(ooc.streams.open_streams(tmp_path / "z.zarr")[0, 1], [-1, -1, -1])


@pytest.mark.parametrize(
    "asked",
    [
        {"chunks": (3, 2, 2)},
        {"chunks": (7, 4, -1), "compressors": "auto"},
        {"chunks": {0: 2, 1: 5}, "shards": (4, 10, 6), "compressors": zarr.codecs.ZstdCodec(level=1)},
        {"compressors": numcodecs.Blosc()},
    ],
)
def test_streams_become_an_array_in_chunks_shards_and_codecs(place: Path, tmp_path: Path, asked: Any) -> None:
    counts = np.random.default_rng(0).integers(0, 50, (30, 6))
    want = ooc.streams.Ragged(counts, np.arange(float(counts.sum())))
    ooc.streams.streams_from_ragged(place, want, memory="2MiB")
    for memory in ("512MiB", 2**18):
        with ooc.streams.open_streams(place, memory=memory) as s:
            array = s.to_zarr(tmp_path / f"{memory}.zarr", fill=-1, **asked)
        np.testing.assert_array_equal(np.moveaxis(array[...], 0, -1), want.padded(-1))
        assert bool(array.compressors) == ("compressors" in asked)
        assert array.shards == asked.get("shards")
    with ooc.streams.open_streams(tmp_path / "512MiB.zarr") as s:
        np.testing.assert_array_equal(s.to_ragged().padded(), want.padded(-1))
        np.testing.assert_array_equal(s.to_dask().compute().padded(), want.padded(-1))
    for mode in ("a", "r+"):
        with pytest.raises(UnsupportedError, match="plain Zarr array: its streams are read, not written"):
            ooc.streams.open_streams(tmp_path / "512MiB.zarr", mode)  # type: ignore[arg-type]
    with pytest.raises(TargetError, match="exists"):
        ooc.streams.open_streams(tmp_path / "512MiB.zarr", "w", shape=3, dtype="f8", overwrite=True)


@pytest.mark.parametrize(
    ("kind", "words", "asked"),
    [
        (ChunksError, "has 3 axes", {"chunks": (3, 4, 5)}),
        (ChunksError, "must be multiples of the chunks", {"chunks": (3, 2), "shards": (4, 2)}),
        (UnsupportedError, "Zarr does not accept", {"compressors": 7}),
        (BudgetError, "in units of", {"chunks": (50_000, 3)}),
    ],
)
def test_wrong_chunks_are_told_before_an_array_is_made(
    place: Path, tmp_path: Path, kind: Any, words: str, asked: Any
) -> None:
    with ooc.streams.open_streams(place, "w", shape=3, dtype="f8", memory="4MiB") as s:
        s.write((np.full(3, 50_000), np.ones(150_000)))
        with pytest.raises(kind, match=words):
            s.to_zarr(tmp_path / "z.zarr", **asked)
    assert not (tmp_path / "z.zarr").exists()


def test_two_writers_are_refused_and_readers_are_not(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=2, dtype="f4") as s:
        s.write(np.ones(2, "f4"))
        with pytest.raises(TargetError, match="open for writing elsewhere"):
            ooc.streams.open_streams(place, "a")
        with pytest.raises(TargetError, match="open for writing elsewhere"):
            ooc.streams.open_streams(place, "w", shape=2, dtype="f4", overwrite=True)
        assert len(ooc.streams.open_streams(place)[0]) == 0
    assert ooc.streams.open_streams(place)[0].tolist() == [1]
    with pytest.raises(TargetError, match="exists"):
        ooc.streams.open_streams(place, "w", shape=2, dtype="f4")


@pytest.mark.parametrize("turns", [1, 4])
def test_a_file_whose_writer_was_killed(
    place: Path, runs: Server, turns: int, capsys: pytest.CaptureFixture[str]
) -> None:
    child = runs.start("tests.apart:writes_streams", place)
    while len(child.out.splitlines()) < turns and not child.ended:
        time.sleep(0.005)
    flushed = 5 * turns
    assert child.kill() == -signal.SIGKILL, child.err

    def check(least: int) -> int:
        with ooc.streams.open_streams(place) as s:
            lists = s.to_ragged().to_list()
        total = 0
        for cell, stream in enumerate(lists):
            mine = [event for event in range(100) if event * 7 % 50 == cell]
            want = [-1, *(event + 100 * turn for turn in range(len(stream)) for event in mine)]
            assert stream == want[: len(stream)]
            assert len(stream) >= 1 + 2 * least
            total += len(stream)
        return total

    had = check(flushed)
    main(["info", str(place)])
    assert "no: somebody writes it, or died" in capsys.readouterr().out
    assert main(["resume", str(place)]) == 0
    assert "is whole" in capsys.readouterr().out
    assert check(flushed) >= had
    with ooc.streams.open_streams(place, "a", ranks=3) as s:
        s.write(np.full(50, 10**6))
    assert all(stream[-1] == 10**6 for stream in ooc.streams.open_streams(place).to_ragged().to_list())
    main(["info", str(place)])
    assert "superblocks" in capsys.readouterr().out


@pytest.mark.parametrize("first", ["NB", "CB", "IB"])
def test_what_was_begun_and_never_flushed_is_begun_anew(place: Path, first: str) -> None:
    """Whoever was killed had made the arrays of a mode, with other blocks, items and cells to a chunk."""
    blocks = {"cb_block": 24, "ib_block": 24, "superblock": 72}
    s = ooc.streams.open_streams(place, "w", shape=6, dtype="u1", blocks=blocks)
    values = np.ones(6, "f4")
    if first == "NB":
        s.write(values)
    elif first == "CB":
        s.write(np.repeat(values, 2)[::2])
    else:
        s.write(values, where=np.arange(6) > 2)
    s._part.end()
    s._file.release()
    want = np.arange(24, dtype="i2").reshape(6, 4)
    with ooc.streams.open_streams(place, "a") as s:
        s.write(want)
        s.write(want[:, ::2])
        s.write(want[:3, 0], where=np.arange(6) < 3)
    with ooc.streams.open_streams(place) as s:
        streams = s.to_ragged()
        assert [streams[k].view("i2").tolist() for k in (0, 5)] == [[*want[0], 0, 2, 0], [*want[5], 20, 22]]
    if first != "IB":
        np.testing.assert_array_equal(zarr.open_array(place / "nb", mode="r")[0], want)


@pytest.mark.parametrize(("cells", "least"), [(19, 4), (20, 3)], ids=["entries of cells", "level entries"])
def test_a_damaged_directory_is_told_and_rebuilt_as_far_as_it_goes(place: Path, cells: int, least: int) -> None:
    """The last four entries are gone: those of four cells, or of up to 12 cells each."""
    blocks = {"ib_block": 8, "ib_pointers": 1, "superblock": 96}
    with ooc.streams.open_streams(place, "w", shape=20, dtype="i8", blocks=blocks) as s:
        for turn in range(5):
            s.write(np.full(cells, turn), at=np.arange(cells))
            s.flush()
    (last := sorted((place / "directory").glob("c.*"), key=lambda path: int(path.name.split(".")[1]))[-1]).unlink()
    assert last.name
    with pytest.raises(CorruptChunkError, match=r"directory|missing"):
        ooc.streams.open_streams(place).to_ragged()
    assert main(["resume", str(place)]) == 0
    for stream in ooc.streams.open_streams(place).to_ragged().to_list()[:cells]:
        assert stream == list(range(len(stream)))
        assert len(stream) >= least


@pytest.mark.sampled
@pytest.mark.parametrize("cells", [19, 20], ids=["entries of cells", "level entries"])
@pytest.mark.parametrize("is_closed", [True, False])
@pytest.mark.parametrize("word", [0, 1, 2])
@pytest.mark.parametrize("value", [10**6, -(10**6), -1, 2**62, 0])
def test_a_directory_whose_words_are_others_gives_one_line_or_what_was_there(
    place: Path, cells: int, is_closed: bool, word: int, value: int
) -> None:
    blocks = {"ib_block": 8, "ib_pointers": 1, "superblock": 96}
    s = ooc.streams.open_streams(place, "w", shape=20, dtype="i8", blocks=blocks)
    for turn in range(5):
        s.write(np.full(cells, turn), at=np.arange(cells))
        s.flush()
    if is_closed:
        s.close()
    else:
        s._file.release()
    directory = zarr.open_array(place / "directory", mode="r+")
    directory[1, 2, word] = value
    with suppress(CorruptChunkError), ooc.streams.open_streams(place) as streams:
        streams.to_ragged()
        assert len(streams[3]) <= 6
    assert main(["resume", str(place)]) == 0
    with ooc.streams.open_streams(place) as streams:
        streams.to_ragged()
        assert streams[2].tolist() == list(range(len(streams[2]))) or word == 2


WRONG: dict[str, tuple[type[Exception], str, Any]] = {
    "values of another shape": (InputError, "do not fit streams of shape", lambda s: s.write(np.ones((3, 3)))),
    "another type": (InputError, "no items of dtype", lambda s: s.write(np.array(["a", "b"]))),
    "a mask of another shape": (InputError, "no mask of shape", lambda s: s.write(1.0, where=[True])),
    "a mask of numbers": (InputError, "no mask of shape", lambda s: s.write(1.0, where=[1, 0])),
    "cells that are not there": (SelectionError, "there are 2", lambda s: s.write([1.0], at=[2])),
    "fewer values than cells": (InputError, "names 2 cells", lambda s: s.write([1.0], at=[0, 1])),
    "where and at": (InputError, "one of them", lambda s: s.write([1.0], at=[0], where=[True, False])),
    "counts that do not add up": (InputError, "add up to 3", lambda s: s.write(([1, 2], [1.0]))),
    "ragged of another shape": (InputError, "do not fit", lambda s: s.write(ooc.streams.Ragged([1], [1.0]))),
    "before the beginning": (SelectionError, "before the beginning", lambda s: s.seek(-1)),
    "a wrong whence": (InputError, "whence=7", lambda s: s.seek(0, 7)),
    "no number": (InputError, "no whole number", lambda s: s.seek(0.5)),
    "text in numbers": (UnsupportedError, "dtype='u1'", lambda s: s.printf("%d", 1)),
    "before the beginning of one": (SelectionError, "to byte -8 is before", lambda s: s.seek([0, -8])),
    "before the beginning from the end": (SelectionError, "before the beginning", lambda s: s.seek(-8, 2)),
    "offsets of another shape": (InputError, "nor one for each cell", lambda s: s.seek([0, 0, 0])),
    "before the beginning of a cell": (SelectionError, "to byte -1", lambda s: s.each(lambda cell: cell.seek(-1))),
    "a wrong whence of a cell": (InputError, "whence=3", lambda s: s.each(lambda cell: cell.seek(0, 3))),
    "another type in a cell": (InputError, "no items of dtype", lambda s: s.each(lambda cell: cell.write(["x"]))),
    "as many for each, of another shape": (InputError, "do not fit streams", lambda s: s.write(np.ones((2, 3, 4)))),
    "values that fit no mask": (InputError, "fit neither", lambda s: s.write(np.ones(3), where=[True, False])),
    "a list of other cells": (InputError, "3 cells does not fit", lambda s: s.write([[1.0], [], [2.0, 3.0]])),
    "a list of no numbers": (InputError, "has an invalid item", lambda s: s.write([["x"], [1.0, 2.0]])),
    "counts below 0": (InputError, "down to -1", lambda s: s.write((np.array([-1, 2]), np.ones(1)))),
    "counts of another shape": (InputError, "no counts of shape", lambda s: s.read(np.array([1]))),
    "a mask to read of another shape": (InputError, "no mask of shape", lambda s: s.read(1, where=[True])),
    "values for each of another shape": (InputError, "do not fit", lambda s: s.each(lambda cell, x: x, np.ones(3))),
    "a negative count": (InputError, "n=-2", lambda s: s.read(-2)),
    "no cell": (SelectionError, "no cell of shape", lambda s: s[2]),
    "lists of different lengths as a mask": (InputError, "different lengths", lambda s: s.write(1, where=[[True], []])),
    "lists of different lengths as cells": (InputError, "different lengths", lambda s: s.write(1.0, at=[[1], []])),
    "lists of different lengths as counts": (InputError, "different lengths", lambda s: s.read([[1], []])),
    "lists of different lengths as offsets": (InputError, "different lengths", lambda s: s.seek([[1], []])),
    "several whences": (InputError, "whence=", lambda s: s.seek(0, np.array([0, 1]))),
    "no function": (InputError, "takes a function", lambda s: s.each(7)),
    "no count of a cell": (InputError, "n=1.5", lambda s: s.each(lambda cell: cell.read(1.5))),
    "no offset of a cell": (InputError, "offset='a'", lambda s: s.each(lambda cell: cell.seek("a"))),
    "too far in a cell": (SelectionError, "beyond", lambda s: s.each(lambda cell: cell.seek(2**70))),
}


@pytest.mark.parametrize(("kind", "words", "call"), WRONG.values(), ids=WRONG)
def test_wrong_input_gets_one_line_and_nothing_is_written(place: Path, kind: Any, words: str, call: Any) -> None:
    with ooc.streams.open_streams(place, "w", shape=2, dtype="f8") as s:
        with pytest.raises(kind, match=words):
            call(s)
        assert s.lengths.tolist() == [0, 0]
        s.write(np.ones(2))
        assert s.mode == "NB"


TEXT: dict[str, tuple[type[Exception], str, Any]] = {
    "another kind": (InputError, "does not fit 1 value", lambda s: s.printf("%d", "text")),
    "too few": (InputError, "does not fit 1 value", lambda s: s.printf("%d %d", [1, 2])),
    "too many": (InputError, "does not fit 2 values", lambda s: s.printf("%d", 1, [1, 2])),
    "no conversion": (InputError, "does not fit", lambda s: s.printf("%y", 1)),
    "the second cell's": (InputError, "does not fit", lambda s: s.printf("%d", np.array([1, "x"], object))),
    "values of another shape": (InputError, "do not fit streams", lambda s: s.printf("%d", [1, 2, 3])),
    "where of another shape": (InputError, "no mask", lambda s: s.printf("%d", 1, where=[True])),
    "no text": (InputError, "must be text", lambda s: s.printf(5)),
    "no text to be read": (InputError, "must be text", lambda s: s.scanf(None)),
    "of a cell": (InputError, "does not fit", lambda s: s.each(lambda cell: cell.printf("%d", "x"))),
    "to be read": (InputError, "conversion at 3", lambda s: s.scanf("%d %y")),
    "to be read by a cell": (InputError, "conversion at 0", lambda s: s.each(lambda cell: cell.scanf("%"))),
}


@pytest.mark.parametrize(("kind", "words", "call"), TEXT.values(), ids=TEXT)
def test_formats_that_do_not_fit_get_one_line(place: Path, kind: Any, words: str, call: Any) -> None:
    with ooc.streams.open_streams(place, "w", shape=2, dtype="u1") as s:
        with pytest.raises(kind, match=words) as error:
            call(s)
        assert "\n" not in str(error.value)
        assert s.lengths.tolist() == [0, 0]
        s.printf("%d", [1, 2])
        assert s.lengths.tolist() == [1, 1]


def test_past_the_end_nothing_is_read_and_positions_stay(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=2, dtype="i4") as s:
        s.write([[1, 2], [3, 4]])
    with ooc.streams.open_streams(place) as s:
        s.seek([40, 4])
        assert s.eof().tolist() == [True, False]
        assert s.read(5).to_list() == [[], [4]]
        assert s.tell().tolist() == [40, 8]
        assert s.each(lambda cell: cell.read(3).size).tolist() == [0, 0]


def test_streams_that_another_process_writes(place: Path) -> None:
    opened = "s = ooc.streams.open_streams(sys.argv[1], 'w', shape=2, dtype='i4')"
    code = f"import sys, oocarrays as ooc; {opened}; print(1, flush=True); input()"
    words = [sys.executable, "-c", code, str(place)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        for mode in ("a", "r+"):
            with pytest.raises(TargetError, match="open for writing elsewhere"):
                ooc.streams.open_streams(place, mode)  # type: ignore[arg-type]
        with pytest.raises(TargetError, match="open for writing elsewhere"):
            ooc.streams.streams_from_ragged(place, [1, 1], np.ones(2, "i4"), mode="a")
        child.communicate("\n")
    ooc.streams.streams_from_ragged(place, [1, 1], np.ones(2, "i4"), mode="a")


def test_wrong_openings(place: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no streams"):
        ooc.streams.open_streams(place)
    with pytest.raises(InputError, match="give shape= and dtype="):
        ooc.streams.open_streams(place, "w")
    with pytest.raises(InputError, match="mode='x'"):
        ooc.streams.open_streams(place, "x")  # type: ignore[arg-type]
    with pytest.raises(BudgetError, match="streams of 1000000 cells"):
        ooc.streams.open_streams(place, "w", shape=10**6, dtype="f8", memory="16MiB")
    with (
        ooc.streams.open_streams(place, "w", shape=2, dtype="u1") as s,
        pytest.raises(InputError, match="does not fit"),
    ):
        s.printf("%d", "text")
    with pytest.raises(UnsupportedError, match="open for reading"):
        ooc.streams.open_streams(place).write(np.ones(2, "u1"))
    with pytest.raises(InputError, match="has streams of shape"):
        ooc.streams.open_streams(place, shape=3)
    with pytest.raises(UnsupportedError, match="is closed"):
        s.read()


def test_cells_that_are_at_their_ends_are_read_beside_others_of_one_length(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=200, dtype="f8") as s:
        s.write(np.arange(398.0), at=np.arange(398) // 2)
    with ooc.streams.open_streams(place) as s:
        assert s.read(2).to_list() == [*([2.0 * k, 2.0 * k + 1] for k in range(199)), []]


def test_many_cells_that_are_all_at_their_ends_have_nothing_more(place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=200, dtype="f8") as s:
        s.write(np.arange(10.0), at=np.arange(10))
    with ooc.streams.open_streams(place) as s:
        assert s.read(64).counts.sum() == 10
        assert s.read(64).to_list() == [[]] * 200


def test_resume_rebuilds_a_file_that_was_not_closed(place: Path) -> None:
    s = ooc.streams.open_streams(place, "w", shape=4, dtype="i8")
    s.write(np.arange(3), at=[0, 1, 1])
    s.flush()
    with pytest.raises(TargetError, match="open for writing elsewhere"):
        ooc.resume(place).run()
    s._file.release()
    with pytest.raises(JournalError, match="not by rechunk"):
        ooc.resume(place, kind="rechunk")
    job = ooc.resume(place, kind="open_streams")
    assert job.left == 1
    assert "was not closed" in job.explain()
    assert job.run().nbytes == 24
    assert job.left == 0
    assert ooc.streams.open_streams(place).to_ragged().to_list() == [[0], [1, 2], [], []]


def test_streams_that_are_dropped_warn_and_are_closed(place: Path) -> None:
    s = ooc.streams.open_streams(place, "w", shape=3, dtype="i4", ranks=2)
    s.write([1, 2, 3], where=[True, False, True])
    with pytest.warns(ResourceWarning, match="dropped unclosed"):
        del s
    with ooc.streams.open_streams(place, "a") as s:
        s.write([4, 5, 6])
    del s
    reader = ooc.streams.open_streams(place)
    assert reader.to_ragged().to_list() == [[1, 4], [5], [3, 6]]
    del reader


def test_streams_that_are_open_when_a_process_ends_are_closed(place: Path) -> None:
    code = """
        import sys, oocarrays as ooc
        s = ooc.streams.open_streams(sys.argv[1], "w", shape=3, dtype="i4", ranks=2)
        s.write([1, 2, 3], where=[True, False, True])
    """
    words = [sys.executable, "-W", "always::ResourceWarning", "-c", textwrap.dedent(code), str(place)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "dropped unclosed" in done.stderr
    assert "Traceback" not in done.stderr
    streams = ooc.streams.open_streams(place)
    assert streams._file.meta.is_closed
    assert streams.to_ragged().to_list() == [[1], [], [3]]


class Failing(LocalStore):
    """A folder on a device that fails at one chunk."""

    async def set(self, key: str, value: Any) -> None:
        if key == "c/2/0":
            raise OSError(5, "Input/output error")
        await super().set(key, value)


def test_an_array_of_steps_that_is_not_finished_is_no_array(tmp_path: Path, place: Path) -> None:
    with ooc.streams.open_streams(place, "w", shape=4, dtype="i4") as s:
        s.write(np.arange(20, dtype="i4").reshape(4, 5))
    with ooc.streams.open_streams(place) as s:
        with pytest.raises(OSError, match="Input/output error"):
            s.to_zarr(Failing(tmp_path / "z.zarr"))
        for opened in (ooc.open_array, zarr.open_array):
            with pytest.raises((ooc.OocError, FileNotFoundError)):
                opened(tmp_path / "z.zarr")
        assert s.to_zarr(tmp_path / "z.zarr", overwrite=True)[:, 1].tolist() == [5, 6, 7, 8, 9]


def test_a_write_that_is_interrupted_leaves_what_was_flushed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, left = os.pwrite, [3]

    def interrupted(file: int, data: Any, offset: int) -> int:
        if len(data) >= 4096:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
        return write(file, data, offset)

    values, half = np.arange(1.0, 1001), np.arange(1000) % 2 == 0
    how: Any = {"shape": 1000, "dtype": "f8", "blocks": {"superblock": 4096}, "memory": "1MiB"}
    with ooc.streams.open_streams(place, "w", **how) as s:
        s.write(values, where=half)
        s.flush()
        monkeypatch.setattr(os, "pwrite", interrupted)
        steps = (s.write(values + step, where=half) for step in range(200))
        with pytest.raises(KeyboardInterrupt):
            list(steps)
        with pytest.raises(UnsupportedError, match="has failed"):
            s.write(values)
    got = ooc.streams.open_streams(place).to_ragged()
    assert got.counts.tolist() == half.astype(int).tolist()
    assert got.values.tolist() == values[half].tolist()
