"""Slabs for loops: what numpy cuts out of the whole array, read ahead, within a budget; no thread is left."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given, strategies as st

import oocarrays as ooc
from oocarrays.errors import BudgetError, CorruptChunkError, InputError
from tests.flat import flat
from tests.profiles import examples
from tests.whole import beyond, boundaries, padded

BOUNDARIES = ["none", "reflect", "nearest", "periodic", 3]


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("oocarrays-slabs")]


@st.composite
def loops(draw: st.DrawFn) -> tuple[np.ndarray, tuple[int, ...], dict[str, Any]]:
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=4)))
    data = np.arange(np.prod(shape)).reshape(shape)
    options = {
        "depth": tuple(draw(st.integers(0, 2 if len(shape) > 2 else 7)) for _ in shape),
        "boundary": draw(boundaries(len(shape), BOUNDARIES)),
        "prefetch": draw(st.integers(0, 3)),
        "reuse": draw(st.booleans()),
        "axis": draw(st.sampled_from([None, *range(len(shape))])),
        "height": draw(st.sampled_from([None, 1, 2, 3])),
    }
    return data, tuple(draw(st.integers(1, n)) for n in shape), options


@examples(60)
@given(loops())
def test_slabs_are_what_numpy_cuts_out_of_the_padded_array(case: tuple) -> None:
    data, chunks, options = case
    a = ooc.open_array(zarr.create_array({}, data=data, chunks=chunks))
    wide, seen = padded(data, options["depth"], options["boundary"]), np.zeros(data.shape, int)
    around = beyond(options["boundary"], options["depth"])
    slabs = flat(a.slabs, memory="16MiB", **options)
    for slab in slabs:
        starts = [l + b - d for l, b, d in zip(slab.section.lower, around, options["depth"], strict=True)]
        stops = [u + b + d for u, b, d in zip(slab.section.upper, around, options["depth"], strict=True)]
        window = tuple(slice(max(start, 0), stop) for start, stop in zip(starts, stops, strict=True))
        np.testing.assert_array_equal(slab.data, wide[window])
        np.testing.assert_array_equal(slab.data[slab.inside], data[slab.section.slices])
        seen[slab.section.slices] += 1
        slab.data[...] = -1  # it is the caller's
    assert (seen == 1).all()
    assert not threads()
    if options["reuse"] and "periodic" not in str(options["boundary"]) and options["height"] is None:
        assert slabs.meter.read_requests <= max(a.zarr.nchunks, 1), "each chunk once"


@pytest.fixture
def array(tmp_path: Path) -> ooc.OutOfCoreArray:
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(800.0).reshape(40, 20), chunks=(4, 20), compressors=None)
    return ooc.open_array(tmp_path / "a.zarr")


def test_only_so_many_slabs_are_read_ahead(array: ooc.OutOfCoreArray) -> None:
    slabs = array.slabs(depth=1, prefetch=2, memory="8MiB", window=4)
    next(slabs)
    deadline = time.monotonic() + 10
    while slabs.meter.read_bytes < 4 * 640 and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(0.05)
    assert slabs.meter.read_bytes == 4 * 640, "the first, two ahead, and the one that the last of them reaches into"
    slabs.close()
    assert not threads()
    with pytest.raises(StopIteration):
        next(slabs)


def test_nothing_is_read_before_it_is_asked_for(array: ooc.OutOfCoreArray) -> None:
    slabs = array.slabs(prefetch=0, memory="8MiB", window=4)
    assert (len(slabs), slabs.meter.read_bytes) == (10, 0)
    next(slabs)
    assert slabs.meter.read_bytes == 640
    assert not threads()


def test_a_loop_that_ends_early_leaves_no_thread(array: ooc.OutOfCoreArray) -> None:
    for slab in array.slabs(depth=2, prefetch=3, memory="8MiB", window=4):
        if slab.section.lower[0] == 8:
            break
    assert not threads(), "the iterator has gone with the loop"
    with array.slabs(memory="8MiB", window=4) as slabs:
        next(slabs)
        assert threads()
    assert not threads()


def test_reading_what_is_broken_ends_the_loop(array: ooc.OutOfCoreArray) -> None:
    (Path(array.store) / "c" / "5" / "0").write_bytes(b"cut")
    slabs = array.slabs(memory="8MiB", window=4)
    assert [next(slabs).section.lower[0] for _ in range(5)] == [0, 4, 8, 12, 16]
    with pytest.raises(CorruptChunkError, match="c/5/0"):
        next(slabs)
    assert not threads()


def test_what_it_holds_is_bounded_and_told(array: ooc.OutOfCoreArray) -> None:
    with pytest.raises(BudgetError, match="one slab needs at least") as caught:
        array.slabs(depth=1, memory=1000)
    slabs = array.slabs(depth=1, memory=caught.value.least)
    assert slabs.plan.peak_bytes <= caught.value.least
    assert f"40 × 20 in {len(slabs)} slabs of height {slabs.plan.height} along axis {slabs.plan.axis}" in repr(slabs)
    assert sum(slab.data[slab.inside].sum() for slab in slabs) == 800 * 799 / 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"depth": -1}, "depth=-1 must be"),
        ({"depth": (1, 2, 3)}, r"depth=\(1, 2, 3\) must be a whole number, at least 0, or one for each of 2 axes"),
        ({"prefetch": -1}, "prefetch=-1 must be a whole number, at least 0"),
        ({"boundary": "mirror"}, "boundary='mirror' is not 'none', 'reflect', 'nearest', 'periodic' or a number"),
        ({"axis": 2}, "window={2: 'auto'}: 2 is not one of the 2 axes"),
        ({"height": 0}, "window=0 must be a whole number, at least 1"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else "",
)
def test_wrong_inputs_in_one_line(array: ooc.OutOfCoreArray, options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        flat(array.slabs, **options)
    assert "\n" not in str(caught.value)
