"""Files of chunks under assembly: how many are open, and their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from oocarrays.storage.chunks.assembling import UnfinishedChunks

pytestmark = pytest.mark.once


def test_files_are_closed_that_were_used_longest_ago(tmp_path: Path) -> None:
    chunks = UnfinishedChunks(str(tmp_path), "0" * 32, 4, most=2)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(9):
        chunks.write_runs(f"c/{number % 3}/0", [number // 3], memoryview(bytes([number])))
        assert len(list(Path("/proc/self/fd").iterdir())) <= before + 2
    assert all(chunks.finish(f"c/{number}/0") for number in range(3))
    assert [*(tmp_path / "c/1/0").read_bytes()] == [1, 4, 7, 0]
    assert not chunks.finish("c/9/0")


def test_a_chunk_may_lose_its_name_again(tmp_path: Path) -> None:
    chunks = UnfinishedChunks(str(tmp_path), "0" * 32, 2)
    chunks.write_runs("c/0", [0], memoryview(b"a"))
    chunks.finish("c/0")
    chunks.reopen("c/0")
    assert not (tmp_path / "c/0").exists()
    chunks.write_runs("c/0", [1], memoryview(b"b"))
    assert chunks.read("c/0").tobytes() == b"ab"  # type: ignore[union-attr]
    chunks.discard("c/0")
    assert chunks.read("c/0") is None
    chunks.close()
