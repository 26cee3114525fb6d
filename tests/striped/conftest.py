from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def disks(tmp_path: Path) -> list[str]:
    """Three folders."""
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    return list(map(str, folders))
