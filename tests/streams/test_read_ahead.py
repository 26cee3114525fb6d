"""Reading ahead: the same bytes as without it, in few requests, whatever is written in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oocarrays as ooc

pytestmark = pytest.mark.usefixtures("quick")

CELLS = 300


def three_segments(place: Path, mode: str, lists: list[list[int]]) -> Any:
    """Open streams that have all segments, and another length each."""
    s = ooc.streams.open_streams(place, "w", shape=CELLS, dtype="i8", blocks={"cb_block": 24, "superblock": 4096})
    everyone = np.arange(CELLS)
    for turn in range(3):
        s.write(everyone + 1000 * turn)
    s.write(np.repeat(everyone + 5000, 2)[::2])
    some = np.repeat(everyone, everyone % 7)
    s.write(some + 9000, at=some)
    for cell, values in enumerate(lists):
        values += [cell, cell + 1000, cell + 2000, cell + 5000, *[cell + 9000] * (cell % 7)]
    if mode != "w":
        s.close()
        s = ooc.streams.open_streams(place, mode)
    return s


@pytest.mark.parametrize("mode", ["w", "r", "r+", "a"])
def test_cells_one_by_one_are_read_beside_writes(place: Path, mode: str) -> None:
    rng, lists = np.random.default_rng(0), [[] for _ in range(CELLS)]  # type: ignore[var-annotated]
    with three_segments(place, mode, lists) as s:
        for turn in range(4):
            for cell in rng.integers(0, CELLS, 200).tolist():
                assert s[cell].tolist() == lists[cell]
            s.seek(0)
            firsts = s.each(lambda cell: cell.read(2 + cell.number % 5).tolist())
            assert [*firsts] == [values[: 2 + cell % 5] for cell, values in enumerate(lists)]
            if mode == "r":
                continue
            s.seek(0, 2)
            s.write([turn, turn], at=[turn, 200])
            for cell in (turn, 200):
                lists[cell].append(turn)
            if mode != "a":
                s.seek(8)
                s.write(np.full(CELLS, -turn))
                for values in lists:
                    values[1] = -turn
    with ooc.streams.open_streams(place) as s:
        assert s.to_ragged().to_list() == lists


@pytest.mark.parametrize("kind", ["NB", "CB", "IB"])
def test_calls_for_one_cell_after_the_other_take_few_requests(place: Path, kind: str) -> None:
    values = np.arange(2000.0)
    with ooc.streams.open_streams(place, "w", shape=2000, dtype="f8") as s:
        for turn in range(16):
            given = np.repeat(values + turn, 2)[::2] if kind == "CB" else values + turn
            s.write(given, **({"at": np.arange(2000)} if kind == "IB" else {}))
        assert s.mode == kind
    with ooc.streams.open_streams(place) as s:
        sums = s.each(lambda cell: cell.read(3).sum())
        np.testing.assert_array_equal(sums, 3 * values + 3)
        assert s.meter.read_requests < 20
    with ooc.streams.open_streams(place) as s:
        for cell in range(0, 2000, 2):
            assert s[cell].tolist() == [cell + turn for turn in range(16)]
        assert s.meter.read_requests < 500


def test_reads_here_and_there_bring_little_more_than_they_want(place: Path) -> None:
    rng, values = np.random.default_rng(0), np.arange(200 * 4000.0).reshape(200, 4000)
    with ooc.streams.open_streams(place, "w", shape=200, dtype="f8") as s:
        s.write((np.full(200, 4000), values.reshape(-1)))
        s.write((np.arange(200), np.ones(199 * 100)))
    with ooc.streams.open_streams(place) as s:
        for _ in range(20):
            at = rng.integers(0, 3900, 200)
            s.seek(at * 8)
            np.testing.assert_array_equal(s.read(), values[np.arange(200), at])
            assert s._reader._window.data.nbytes <= 200 * 512
