from __future__ import annotations

from pathlib import Path

import pytest

from tests.small import make


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make(tmp_path / "source.zarr")
    return tmp_path / "source.zarr"
