"""Streams whose ranks are on the workers of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.errors import InputError, SelectionError, TargetError
from tests.graphs.clusters import cluster

pytestmark = pytest.mark.long

SHAPE = (10, 3)


@pytest.fixture(scope="module")
def client() -> Any:
    with cluster(2) as client:
        yield client


def steps(number: int) -> np.ndarray:
    return np.arange(30.0).reshape(SHAPE) + 100 * number


def test_every_mode_on_workers_is_read_here_and_there(client: Any, tmp_path: Path) -> None:
    place = tmp_path / "s.zarr"
    mask = np.arange(30).reshape(SHAPE) % 4 == 0
    modes = []
    with ooc.streams.open_streams(place, "w", shape=SHAPE, dtype="f8", scheduler=client) as s:
        assert s.ranks == 2
        for number in range(3):
            s.write(da.from_array(steps(number), chunks=(4, 3)))
            modes.append(s.mode)
        s.write(np.stack((steps(3), steps(4)), -1))
        modes.append(s.mode)
        s.flush()
        with pytest.raises(TargetError):
            ooc.streams.open_streams(place, "a")
        s.write(steps(5), where=mask)
        modes.append(s.mode)
        s.write(steps(6))
        s.each(lambda cell: cell.write([float(cell.number)]) if cell.number == 1 else None)
        with pytest.raises(InputError):
            s.write(np.ones(3))
    assert modes == ["NB", "NB", "NB", "CB", "IB"]
    with ooc.streams.open_streams(place) as s:
        for row in range(10):
            for column in range(3):
                cell = row, column
                want = [steps(number)[cell] for number in (0, 1, 2, 3, 4)]
                want += [steps(5)[cell]] * bool(mask[cell]) + [steps(6)[cell]]
                got = s[cell].tolist()
                assert got[: len(want)] == want
                assert got[len(want) :] == [1.0] * (cell == (0, 1))
    with ooc.streams.open_streams(place, scheduler=client, ranks=3) as s:
        first = s.read()
        assert isinstance(first, da.Array)
        assert first.numblocks[0] == s.ranks
        np.testing.assert_array_equal(first.compute(), steps(0))
        np.testing.assert_array_equal(s.read(3).compute()[..., 1], steps(2))
        s.seek(8)
        np.testing.assert_array_equal(s.read().compute(), steps(1))
        assert (s.tell() == 16).all()
        with pytest.raises(SelectionError, match="items left"):
            s.read(20)


def test_workers_append_to_what_was_written_here(client: Any, tmp_path: Path) -> None:
    place = tmp_path / "s.zarr"
    with ooc.streams.open_streams(place, "w", shape=SHAPE, dtype="f8", ranks=3) as s:
        s.write(steps(0))
    with ooc.streams.open_streams(place, "a", scheduler=client) as s:
        s.write(steps(1))
        s.write(steps(2), where=steps(0) > 10)
    with ooc.streams.open_streams(place) as s:
        np.testing.assert_array_equal(s.read(2)[..., 1], steps(1))
        assert s[9, 2].tolist() == [29, 129, 229]
        assert s.segments["NB"]["bytes"] == 2 * 240


def test_cells_on_workers_have_their_numbers_and_events_go_to_theirs(client: Any, tmp_path: Path) -> None:
    place = tmp_path / "s.zarr"
    with ooc.streams.open_streams(place, "w", shape=6, dtype="i4", scheduler=client) as s:
        s.write(7)
        s.write([10, 11, 12], at=[5, 0, 5])
        s.each(lambda cell: cell.write([cell.number, *cell.index]))
        with pytest.raises(SelectionError, match="there are 6"):
            s.write([1], at=[6])
        with pytest.raises(InputError, match="300000000000 does not fit"):
            s.write([300000000000] * 6)
    events = [[11], [], [], [], [], [10, 12]]
    with ooc.streams.open_streams(place) as s:
        assert s.to_ragged().to_list() == [[7, *events[k], k, k] for k in range(6)]


def test_streams_on_workers_that_are_dropped_warn(client: Any, tmp_path: Path) -> None:
    place = tmp_path / "s.zarr"
    s = ooc.streams.open_streams(place, "w", shape=4, dtype="i4", scheduler=client)
    s.write([1, 2, 3, 4])
    s.flush()
    with pytest.raises(InputError, match="n='a'"):
        s.read("a")
    with pytest.warns(ResourceWarning, match="only what was flushed is there"):
        del s
    with ooc.streams.open_streams(place, "a") as s:
        s.write([5, 6, 7, 8])
    assert ooc.streams.open_streams(place).to_ragged().to_list() == [[1, 5], [2, 6], [3, 7], [4, 8]]


@pytest.mark.parametrize(
    "wrong",
    [
        {"values": np.full(SHAPE, "x")},
        {"values": np.ones(3)},
        {"values": np.ones(SHAPE), "where": np.ones(3, bool)},
        {"values": np.where(np.arange(10)[:, None] < 5, 1.0, np.full(SHAPE, "x", object))},  # of one rank
    ],
    ids=["dtype", "shape", "mask", "one rank"],
)
def test_a_wrong_argument_costs_nothing_that_was_written(client: Any, tmp_path: Path, wrong: dict[str, Any]) -> None:
    place = tmp_path / "s.zarr"
    with ooc.streams.open_streams(place, "w", shape=SHAPE, dtype="f8", scheduler=client) as s:
        s.write(steps(0))
        with pytest.raises(InputError):
            s.write(**wrong)
        s.write(steps(1))
    with ooc.streams.open_streams(place) as s:
        np.testing.assert_array_equal(s.read(2), np.stack((steps(0), steps(1)), -1))
