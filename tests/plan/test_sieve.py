"""Sieves beside a brute-force map of bytes, and the counts that the thesis prints."""

from __future__ import annotations

import csv
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.mapping.selection import Axes, Taken
from oocarrays.plan.sections.read import SectionPlan
from oocarrays.plan.sections.sieve import Sieve

pytestmark = pytest.mark.once

TABLE = Path(__file__).parents[1] / "data" / "thesis_table5_3.csv"
ROWS = list(csv.DictReader(TABLE.read_text().splitlines()))


@st.composite
def taken(draw: st.DrawFn, extent: int, *, least: int = 0) -> Taken:
    """What is taken of an axis, as a range or as sorted indices."""
    if draw(st.booleans()):
        chosen = draw(st.sets(st.integers(0, extent - 1), min_size=least, max_size=12)) if extent else set()
        return np.array(sorted(chosen), np.int64)
    start = draw(st.integers(0, max(extent - 1, 0)))
    found = range(start, draw(st.integers(min(start + least, extent), extent)), draw(st.integers(1, 7)))
    return range(found.start, found[-1] + 1, found.step if len(found) > 1 else 1) if found else range(0)


@st.composite
def sections(draw: st.DrawFn, *, least: int = 0) -> tuple[ChunkGrid, Axes]:
    """A grid of up to five axes, and what is taken of the array."""
    shape = draw(st.lists(st.integers(max(least, 0), 9), max_size=5).map(tuple))
    chunks = tuple(draw(st.integers(1, max(n, 1) + 2)) for n in shape)
    return ChunkGrid.of(shape, chunks), tuple(draw(taken(n, least=least)) for n in shape)


def plan_of(grid: ChunkGrid, axes: Axes, itemsize: int = 4, **options: object) -> SectionPlan:
    return SectionPlan(stored=Stored(grid=grid, itemsize=itemsize, local=True), axes=axes, **options)  # type: ignore[arg-type]


def wanted_bytes(grid: ChunkGrid, axes: Axes, itemsize: int) -> dict[tuple[int, ...], np.ndarray]:
    """Of each chunk that is touched, a flag for every byte."""
    found: dict[tuple[int, ...], np.ndarray] = {}
    for element in product(*(np.asarray(each, int).tolist() for each in axes)):
        index = tuple(i // c for i, c in zip(element, grid.chunks, strict=True))
        inside = tuple(i % c for i, c in zip(element, grid.chunks, strict=True))
        flags = found.setdefault(index, np.zeros((*grid.chunks, itemsize), bool))
        flags[inside] = True
    return {index: flags.reshape(-1) for index, flags in found.items()}


def runs(flags: np.ndarray, gap: float) -> list[tuple[int, int]]:
    """Runs of flags as (first, one past the last), holes up to ``gap`` filled."""
    edges = np.flatnonzero(np.diff(np.r_[False, flags, False].astype(int))).reshape(-1, 2).tolist()
    merged = [edges[0]]
    for start, stop in edges[1:]:
        if start - merged[-1][1] <= gap:
            merged[-1] = [merged[-1][0], stop]
        else:
            merged.append([start, stop])
    return [(start, stop) for start, stop in merged]


@given(sections(least=1))
def test_without_a_gap_no_byte_too_many_is_asked_for(section: tuple[ChunkGrid, Axes]) -> None:
    grid, axes = section
    wanted = wanted_bytes(grid, axes, 4)
    found: dict[tuple[int, ...], list[tuple[int, int]]] = {}
    for batch in plan_of(grid, axes).batches():
        for index in product(*batch.chunks):
            (part,) = batch.parts
            ranges = zip(part.sieve.starts.tolist(), part.sieve.lengths.tolist(), strict=True)
            found[index] = [(start, start + nbytes) for start, nbytes in ranges]
    for index, flags in wanted.items():
        asked = np.zeros(len(flags), int)
        for start, stop in found.pop(index):
            asked[start:stop] += 1
        np.testing.assert_array_equal(asked, flags)
    assert not found


@given(sections(), st.sampled_from([0, 5, 16, 40, math.inf]), st.sampled_from([1, 24, 100, 10**6]))
def test_every_byte_that_is_wanted_is_asked_for_once(
    section: tuple[ChunkGrid, Axes], gap: float, buffer_bytes: int
) -> None:
    grid, axes = section
    plan = plan_of(grid, axes, gap=gap, buffer_bytes=buffer_bytes)
    wanted = wanted_bytes(grid, axes, 4)
    asked = {index: np.zeros(len(flags), int) for index, flags in wanted.items()}
    requests = 0
    for batch in plan.batches():
        assert all(
            batch.size * part.buffer_bytes <= buffer_bytes or part.sieve.useful_bytes == 4 for part in batch.parts
        )
        for index, part in product(product(*batch.chunks), batch.parts):
            for start, nbytes in zip(part.sieve.starts.tolist(), part.sieve.lengths.tolist(), strict=True):
                asked[index][start : start + nbytes] += 1
                requests += 1
    assert all((asked[index][flags] == 1).all() for index, flags in wanted.items())
    assert (plan.requests, plan.asked_bytes) == (requests, sum(int(each.sum()) for each in asked.values()))
    assert plan.useful_bytes == sum(int(flags.sum()) for flags in wanted.values())
    assert plan.chunks == len(wanted)


@given(st.sets(st.integers(0, 60), min_size=1), st.sampled_from([0, 3, 11, 60]))
def test_no_choice_of_holes_costs_less(chosen: set[int], gap: int) -> None:
    taken = np.array(sorted(chosen))
    sieve = Sieve.within((taken,), (61,), 1, gap, np.inf)
    assert sieve is not None
    flags = np.zeros(61, bool)
    flags[taken] = True
    ranges = zip(sieve.starts.tolist(), sieve.lengths.tolist(), strict=True)
    assert [(start, start + nbytes) for start, nbytes in ranges] == runs(flags, gap)


@given(sections(least=1), st.sampled_from([0, 3, 11, 60]))
def test_auto_costs_no_more_than_direct_or_sieve(section: tuple[ChunkGrid, Axes], gap: int) -> None:
    grid, axes = section
    auto, *others = (plan_of(grid, axes, gap=each) for each in (gap, 0, math.inf))
    cost = [gap * plan.requests + plan.asked_bytes for plan in (auto, *others)]
    assert cost[0] == min(cost)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['section_fortran']} {row['method']}")
def test_requests_and_elements_of_table_5_3(row: dict[str, str]) -> None:
    """2048 x 32 elements by columns are 32 rows of 2048; 16 columns fit in memory."""
    columns, rows = (range(*(int(row[f"{name}_{axis}"]) for name in ("lower", "upper", "stride"))) for axis in (1, 0))
    direct = row["method"] == "direct"
    grid = ChunkGrid.of((32, 2048), (32, 2048))
    plan = plan_of(grid, (columns, rows), gap=0 if direct else math.inf, buffer_bytes=16 * 2048 * 4)
    assert plan.requests == int(row["requests"])
    elements, printed = plan.asked_bytes // 4, int(row["elements_read"])
    assert elements == printed if direct else elements <= printed
