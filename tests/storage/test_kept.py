from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oocarrays.errors import CorruptChunkError, StoreFailure
from oocarrays.storage.chunks.kept import KeptMessages, Reader
from oocarrays.storage.local.sectors import padded

MOST = 3 * 4096


def pages(data: bytes) -> np.ndarray:
    """The bytes at the start of memory that two messages take."""
    buffer = np.zeros(MOST + 4096, np.uint8)
    start = -buffer.ctypes.data % 4096
    buffer[start : start + len(data)] = np.frombuffer(data, np.uint8)
    return buffer[start : start + MOST]


def taken(kept: KeptMessages, unit: int, rank: int, lengths: list[int]) -> list[bytes]:
    found = []

    def read(reader: Reader) -> None:
        for length in lengths:
            buffer = pages(b"")
            reader.next(buffer.data, length)
            found.append(buffer[:length].tobytes())

    kept.take(unit, rank, read)
    return found


messages = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.binary(min_size=1, max_size=MOST)), max_size=12)


@pytest.mark.parametrize("past_cache", [False, True])
@settings(deadline=None, max_examples=30)
@given(messages=messages)
def test_messages_come_back_in_their_order_and_are_gone(
    tmp_path_factory: pytest.TempPathFactory, past_cache: bool, messages: list[tuple[int, int, bytes]]
) -> None:
    folder = tmp_path_factory.mktemp("kept") / "messages"
    kept = KeptMessages(str(folder), past_cache=past_cache)
    held = [pages(data) for _, _, data in messages]
    for (unit, rank, data), memory in zip(messages, held, strict=True):
        kept.append(unit, rank, memory.data, len(data))
    for unit, rank in {(unit, rank) for unit, rank, _ in messages}:
        mine = [data for u, r, data in messages if (u, r) == (unit, rank)]
        assert kept.count(rank) == sum(r == rank for _, r, _ in messages)
        assert taken(kept, unit, rank, [len(data) for data in mine]) == mine
    assert list(folder.iterdir()) == []


def test_the_memory_of_all_messages_but_the_last_is_free(tmp_path: Path) -> None:
    """Two halves of a buffer are filled in turn."""
    kept = KeptMessages(str(tmp_path / "messages"), past_cache=False)
    halves = [pages(b""), pages(b"")]
    for number in range(50):
        half = halves[kept.count(0) % 2]
        half[:] = number
        kept.append(1, 0, half.data, MOST)
    assert taken(kept, 1, 0, [MOST] * 50) == [bytes([number]) * MOST for number in range(50)]


def test_a_rank_that_kept_nothing_takes_nothing(tmp_path: Path) -> None:
    kept = KeptMessages(str(tmp_path / "messages"), past_cache=False)
    assert taken(kept, 1, 0, []) == []


def test_a_message_cut_short_is_corrupt(tmp_path: Path) -> None:
    kept = KeptMessages(str(tmp_path / "messages"), past_cache=False)
    kept.append(1, 0, pages(b"x" * 5000).data, 5000)
    kept._writer.submit(int).result()  # it writes one after the other
    os.truncate(tmp_path / "messages/1-0", 4096)
    with pytest.raises(CorruptChunkError, match=r"1-0 is cut short"):
        taken(kept, 1, 0, [5000])


def test_what_cannot_be_written_is_said_by_the_next_call(tmp_path: Path) -> None:
    kept = KeptMessages(str(tmp_path / "messages"), past_cache=False)
    (tmp_path / "messages").rmdir()
    kept.append(1, 0, pages(b"x").data, 1)
    with pytest.raises(StoreFailure, match="1-0"):
        taken(kept, 1, 0, [1])


def test_padding_is_whole_sectors() -> None:
    assert [padded(n) for n in (0, 1, 4095, 4096, 4097)] == [0, 4096, 4096, 4096, 8192]


def test_partitions_that_are_taken_at_one_time_all_wait_for_what_is_being_written(tmp_path: Path) -> None:
    """Each of them for the last message of the rank, which is under way when they begin."""
    kept = KeptMessages(str(tmp_path / "kept"), past_cache=False)
    kept._writer.submit(time.sleep, 0.2)
    kept.append(2, 0, pages(b"late").data, 4)
    with ThreadPoolExecutor(2) as pool:
        taking = [pool.submit(taken, kept, unit, 0, [4]) for unit in (1, 2)]
    assert [each.result() for each in taking] == [[], [b"late"]]
