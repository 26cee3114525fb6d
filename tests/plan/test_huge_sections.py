"""Sections of huge arrays, and rounds of files, are counted by axes and not by chunks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import zarr

import oocarrays as ooc
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.sections.read import REQUESTS, SectionPlan
from oocarrays.plan.sections.sieve import BUFFER_BYTES, gap_bytes
from oocarrays.plan.sections.write import plan_section_write
from tests.flat import flat
from tests.seams import set_constants

N = 10**15


def made(tmp_path: Path, shape: tuple[int, ...], chunks: tuple[int, ...]) -> Path:
    path = tmp_path / "source.zarr"
    zarr.create_array(path, shape=shape, chunks=chunks, dtype="f4", compressors=None)
    return path


def test_a_huge_section_is_counted_by_kinds_of_chunks() -> None:
    stored = Stored(grid=ChunkGrid((N,), (1000,)), itemsize=8, local=True)
    read = SectionPlan(stored=stored, axes=(range(7, N - 7),))
    assert (read.chunks, read.requests, read.asked_bytes) == (10**12, 10**12, 8 * (N - 14))
    assert read.held_bytes > 0
    write = plan_section_write(stored, (range(7, N - 7, 3),))
    assert write.reads.read_requests == write.writes.write_requests == 10**12
    one = Stored(grid=ChunkGrid((2**40, 2**20), (2**40, 2**20)), itemsize=8, local=True)
    assert SectionPlan(stored=one, axes=(range(2**40), range(8))).requests == 2**40


@pytest.mark.parametrize("way", ["scatter", "gather"])
@pytest.mark.parametrize("layout", ["(block, *)", "(block, block)", "(cyclic(2), block)"])
def test_what_axes_count_of_rounds_is_what_going_through_them_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, layout: str
) -> None:
    set_constants(monkeypatch, round_bytes=512)
    source = made(tmp_path, (23, 17), (3, 4))
    ranks = {"ranks": 4, "chunks": (5, 3), "compressors": (), "scheduler": "threads"}
    job = flat(ooc.ranks.scatter_files, source, layout, tmp_path / "files", **ranks)
    plan = job.plan
    if way == "gather":
        job.run()
        plan = ooc.ranks.gather_files(
            tmp_path / "files", ooc.Target(tmp_path / "back", chunks=(3, 4)), scheduler="threads"
        ).plan
    rounds = list(plan.rounds)
    assert len(rounds) == len(plan.rounds) > 3
    assert [plan.rounds[i] for i in range(len(rounds))] == rounds
    places = [[plan.block(rank, box) for box in rounds] for rank in range(4)]
    elements = sum(block.size for each in places for block in each if block)
    assert plan.traffic.copied_bytes == 2 * 4 * elements
    counted = [
        sum(len(list(plan.grids[rank].indices(block.place))) for block in each if block)
        for rank, each in enumerate(places)
    ]
    assert list(plan.touched) == counted
    if way == "gather":
        stored = [replace(plan.local, grid=grid) for grid in plan.grids]
        gap = gap_bytes("auto", plan.local, plan.costs, REQUESTS)
        sections = [
            SectionPlan(
                stored=stored[rank], axes=block.place.axes, gap=gap, buffer_bytes=BUFFER_BYTES, packed=True,
                costs=plan.costs,
            )
            for rank, each in enumerate(places) for block in each if block
        ]  # fmt: skip
        assert plan.traffic.read_requests == sum(section.requests for section in sections)
        assert plan.traffic.read_bytes == sum(section.asked_bytes for section in sections)
