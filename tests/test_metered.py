"""``with ooc.advise.metered()``: what a person reads and writes, counted as it is on disk."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import zarr

import oocarrays as ooc

DATA = np.arange(24 * 30, dtype="f8").reshape(24, 30)


@pytest.fixture
def array(tmp_path: Path) -> ooc.OutOfCoreArray:
    """Six coded chunks of 8 x 15."""
    zarr.create_array(tmp_path / "a", data=DATA, chunks=(8, 15))
    return ooc.open_array(tmp_path / "a", mode="r+")


def stored(array: ooc.OutOfCoreArray) -> list[int]:
    return [path.stat().st_size for path in (Path(array.store) / "c").rglob("*") if path.is_file()]


def test_what_is_read_is_counted_as_it_lies_on_the_disk(array: ooc.OutOfCoreArray) -> None:
    with ooc.advise.metered() as meter:
        np.testing.assert_array_equal(array[...], DATA)
    assert (meter.read_requests, meter.read_bytes, meter.decoded_bytes) == (6, sum(stored(array)), DATA.nbytes)
    array[0]
    assert meter.read_requests == 6, "what is read afterwards is not counted"


def test_blocks_lie_one_inside_the_other(array: ooc.OutOfCoreArray) -> None:
    with ooc.advise.metered() as outer:
        array.read(np.s_[0])
        with ooc.advise.metered() as inner:
            array.read(np.s_[:, 0], method="sieve")
    assert (outer.read_requests, inner.read_requests) == (5, 3)


def test_what_is_written_is_counted(array: ooc.OutOfCoreArray) -> None:
    with ooc.advise.metered() as meter:
        array[:8] = 1.5
        array.write(np.s_[8:], DATA[8:])
    assert (meter.read_requests, meter.write_requests, meter.written_bytes) == (0, 6, sum(stored(array)))


def test_slabs_and_what_is_read_ahead_count_for_the_block_in_which_they_were_asked_for(
    array: ooc.OutOfCoreArray,
) -> None:
    with ooc.advise.metered() as ahead:
        section = array.prefetch(np.s_[:8])
    section.result()
    with ooc.advise.metered() as slabs:
        for _ in array.slabs(memory="16MiB", window=8):
            pass
    assert (ahead.read_requests, slabs.read_requests) == (2, 6)


def test_another_thread_counts_for_itself(array: ooc.OutOfCoreArray) -> None:
    with ooc.advise.metered() as meter:
        other = threading.Thread(target=lambda: array[...])
        other.start()
        other.join()
    assert meter.read_requests == 0


def test_local_array_files_and_what_fails_are_counted(tmp_path: Path, array: ooc.OutOfCoreArray) -> None:
    ooc.ranks.scatter_files(array, "(block, *)", tmp_path / "parts", ranks=3, scheduler="threads").run()
    with ooc.advise.metered() as meter:
        np.testing.assert_array_equal(ooc.open_array(tmp_path / "parts")[...], DATA)
    assert (meter.read_requests > 0, meter.decoded_bytes) == (True, DATA.nbytes)
    (Path(array.store) / "c" / "1" / "0").write_bytes(b"no chunk")
    with ooc.advise.metered() as meter, pytest.raises(ooc.errors.CorruptChunkError):
        array[...]
    assert meter.read_requests > 0
