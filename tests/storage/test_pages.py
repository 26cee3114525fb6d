from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from oocarrays.storage.local import pages
from oocarrays.storage.local.pages import can_map, mapped


@pytest.mark.skipif(not can_map(), reason="MADV_POPULATE_READ is of Linux 5.14")
@pytest.mark.parametrize("size", [0, 1, 4096, 100_001])
def test_a_file_in_place_is_its_bytes_and_read_only(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    path = tmp_path / "chunk"
    path.write_bytes(data.tobytes())
    file = os.open(path, os.O_RDONLY)
    found = mapped(file, str(path), 0, size)
    os.close(file)
    np.testing.assert_array_equal(found, data)
    if size:
        assert not found.flags.writeable


def test_a_system_that_cannot_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: np.ndarray) -> None:
        raise OSError(22, "Invalid argument")

    can_map.cache_clear()
    monkeypatch.setattr(pages, "populate", refuse)
    try:
        assert not can_map()
    finally:
        can_map.cache_clear()


def test_large_memory_is_asked_for_in_huge_pages() -> None:
    """Where the system has them: to fill 16 MiB page by page takes longer than to read them from its cache."""
    large = pages.allocate(4 * pages.HUGE_BYTES)
    flags, inside = "", False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ")[0]:
            low, high = (int(end, 16) for end in line.split(" ")[0].split("-"))
            inside = low <= large.ctypes.data < high
        elif inside and line.startswith("VmFlags"):
            flags = line
    if not Path("/sys/kernel/mm/transparent_hugepage").exists():
        pytest.skip("no such pages")
    assert " hg" in flags
