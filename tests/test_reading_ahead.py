"""Sections read ahead: the same as read at once, in a thread, within so many bytes."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
import zarr

import oocarrays as ooc
from oocarrays.errors import CorruptChunkError, SelectionError
from tests.seams import ReadAhead


@pytest.fixture
def array(tmp_path: Path) -> ooc.OutOfCoreArray:
    zarr.create_array(tmp_path / "a.zarr", data=np.arange(400).reshape(20, 20), chunks=(4, 20), compressors=None)
    return ooc.open_array(tmp_path / "a.zarr")


def test_slabs_are_read_ahead_of_the_computation(array: ooc.OutOfCoreArray) -> None:
    slabs, total = [np.s_[i : i + 4] for i in range(0, 20, 4)], 0
    ahead = array.prefetch(slabs[0])
    for number in range(len(slabs)):
        slab, ahead = ahead.result(), array.prefetch(slabs[min(number + 1, 4)])
        total += int(slab.sum())
    assert total == 400 * 399 // 2


@pytest.mark.parametrize("key", [np.s_[3, ::-2], np.s_[...], np.s_[[5, 5, 1]], 7, ooc.Section((1, 2), (9, 9), (2, 3))])
def test_what_is_read_ahead_is_what_is_read(array: ooc.OutOfCoreArray, key: Any) -> None:
    plain = key.slices if isinstance(key, ooc.Section) else key
    np.testing.assert_array_equal(array.prefetch(key).result(timeout=10), array[plain])


def test_a_wrong_index_is_told_at_once_and_a_broken_chunk_at_the_result(array: ooc.OutOfCoreArray) -> None:
    with pytest.raises(SelectionError, match="index 20 is out of range"):
        array.prefetch(20)
    (Path(array.store) / "c" / "0" / "0").write_bytes(b"cut")
    ahead = array.prefetch(np.s_[:4])
    for _ in range(2):
        with pytest.raises(CorruptChunkError, match="c/0/0"):
            ahead.result()


def wait_for(there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not there():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_no_more_bytes_are_ahead_than_are_allowed() -> None:
    """Of sections of 10 bytes two are read ahead; a third when one of them is taken, given up or forgotten."""
    ahead, began = ReadAhead(), []

    def add(number: int) -> Any:
        def read() -> int:
            began.append((number, threading.current_thread() is threading.main_thread()))
            return number

        return ahead.add(read, 10, most=25)

    sections = [add(number) for number in range(6)]
    wait_for(sections[1].done)
    assert began == [(0, False), (1, False)]
    assert sections[0].result() == 0
    wait_for(sections[2].done)
    assert sections[1].cancel() is False
    wait_for(sections[3].done)
    sections[2] = None
    gc.collect()
    wait_for(sections[4].done)
    assert began == [(number, False) for number in range(5)]
    assert sections[5].cancel() is True
    for given_up in (sections[1], sections[5]):
        with pytest.raises(CancelledError, match="cancelled"):
            given_up.result()
    assert (sections[3].result(), sections[4].result(), len(began)) == (3, 4, 5)


def test_what_is_not_begun_is_read_by_who_wants_it() -> None:
    ahead, thread = ReadAhead(), []
    first = ahead.add(lambda: 1, 10, most=10)
    second = ahead.add(lambda: thread.append(threading.current_thread()) or 2, 10, most=10)
    large = ahead.add(lambda: thread.append(threading.current_thread()) or 3, 11, most=10)
    assert (second.result(), large.result(), first.result(), second.result()) == (2, 3, 1, 2)
    assert thread == [threading.main_thread()] * 2


def test_the_setting_bounds_what_is_ahead(array: ooc.OutOfCoreArray) -> None:
    with dask.config.set({"oocarrays.read-ahead": "1KiB"}):
        large = array.prefetch(...)
        assert not large.done()
        np.testing.assert_array_equal(large.result(), array[...])
