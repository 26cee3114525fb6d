"""What streams hold, counted by Python itself, beside the memory that they were given."""

from __future__ import annotations

import gc
import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from hypothesis import Phase, example, given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError
from tests.profiles import examples

pytestmark = pytest.mark.long

MIB = 2**20
STEPS = 6
KINDS = ["level", "strided", "masked", "events"]


def calls(kind: str, cells: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """What a program writes, made before anything is counted."""
    made: list[dict[str, Any]] = []
    for step in range(STEPS):
        if kind == "events":
            count = 2 * cells
            made.append({"values": np.arange(float(count)), "at": (cells * rng.random(count) ** 4).astype(np.int64)})
        elif kind == "masked":
            made.append({"values": np.full(cells, float(step)), "where": np.arange(cells) % 3 != step % 3})
        elif kind == "strided":
            made.append({"values": np.full(2 * cells, float(step))[::2]})
        else:
            made.append({"values": np.full(cells, float(step))})
    return made


@pytest.fixture(autouse=True, scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Have everything imported and made, in all ways of writing and reading, which takes memory once."""
    place = tmp_path_factory.mktemp("warm") / "s.zarr"
    with ooc.streams.open_streams(place, "w", shape=1000, dtype="f8", ranks=2) as s:
        for kind in KINDS:
            for call in calls(kind, 1000, np.random.default_rng(0)):
                s.write(**call)
    with ooc.streams.open_streams(place) as s:
        while not s.eof().all():
            s.read(2)


@examples(6, phases=[Phase.explicit, Phase.generate])  # to shrink takes minutes
@given(
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=3),
    cells=st.integers(1_000, 8_000),
    budget=st.sampled_from([2, 4, 8]),
    ranks=st.integers(1, 3),
)
@example(kinds=["level", "level", "events"], cells=4939, budget=4, ranks=1)
def test_what_is_held_is_at_most_the_memory_given(kinds: list[str], cells: int, budget: int, ranks: int) -> None:
    rng = np.random.default_rng(0)
    given_calls = [call for kind in kinds for call in calls(kind, cells, rng)]
    memory = budget * MIB
    with tempfile.TemporaryDirectory() as folder, dask.config.set({"oocarrays.durable": False}):
        place = f"{folder}/s.zarr"
        tracemalloc.start()
        try:
            with ooc.streams.open_streams(place, "w", shape=cells, dtype="f8", memory=memory, ranks=ranks) as s:
                for call in given_calls:
                    s.write(**call)
            assert tracemalloc.get_traced_memory()[1] <= memory
            tracemalloc.reset_peak()
            with ooc.streams.open_streams(place, memory=memory) as s:
                while not s.eof().all():
                    got = s.read(2)
                    del got
            results = 4 * 8 * 2 * cells  # what is returned, counts of items among it
            assert tracemalloc.get_traced_memory()[1] <= memory + results
        except BudgetError:
            assert tracemalloc.get_traced_memory()[1] <= memory
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_held_is_freed_with_the_streams_at_once(tmp_path: Path, kind: str) -> None:
    """Closed streams leave nothing to the garbage collector, which may run long after the next ones are opened."""
    given_calls = calls(kind, 4000, np.random.default_rng(0))
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        with ooc.streams.open_streams(tmp_path / "s.zarr", "w", shape=4000, dtype="f8", memory=4 * MIB) as s:
            for call in given_calls:
                s.write(**call)
        del s
        assert tracemalloc.get_traced_memory()[0] <= MIB // 4
        with ooc.streams.open_streams(tmp_path / "s.zarr", memory=4 * MIB) as s:
            while not s.eof().all():
                s.read(2)
        del s
        assert tracemalloc.get_traced_memory()[0] <= MIB // 4
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("dtype", ["u1", "i2", "c16"])
def test_events_of_any_size_are_sorted_in_the_memory_given(tmp_path: Path, dtype: str) -> None:
    """What is held of an event beside its items is as much whatever their size: of bytes it is most of all."""
    rng, events, memory = np.random.default_rng(0), 2**20, 8 * MIB
    at, values = rng.integers(0, 1000, events), np.ones(events, dtype)
    tracemalloc.start()
    try:
        with ooc.streams.open_streams(tmp_path / "s.zarr", "w", shape=1000, dtype=dtype, memory=memory) as s:
            before = tracemalloc.get_traced_memory()[0]
            for k in range(0, events, 2**14):
                s.write(values[k : k + 2**14], at=at[k : k + 2**14])
        assert tracemalloc.get_traced_memory()[1] - before <= memory
    finally:
        tracemalloc.stop()
    counts = np.bincount(at, minlength=1000)
    assert ooc.streams.open_streams(tmp_path / "s.zarr").lengths.tolist() == (counts * values.itemsize).tolist()
