from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from oocarrays.storage import pages
from oocarrays.storage.pages import can_map, mapped


@pytest.mark.skipif(not can_map(), reason="MADV_POPULATE_READ is of Linux 5.14")
@pytest.mark.parametrize("size", [0, 1, 4096, 100_001])
def test_a_file_in_place_is_its_bytes_and_read_only(tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    path = tmp_path / "chunk"
    path.write_bytes(data.tobytes())
    file = os.open(path, os.O_RDONLY)
    found = mapped(file, str(path))
    os.close(file)
    np.testing.assert_array_equal(found, data)
    if size:
        assert not found.flags.writeable


def test_a_system_that_cannot_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: np.ndarray) -> None:
        raise OSError(22, "Invalid argument")

    can_map.cache_clear()
    monkeypatch.setattr(pages, "_populate", refuse)
    try:
        assert not can_map()
    finally:
        can_map.cache_clear()
