"""What tests of streams share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import pytest


@pytest.fixture
def quick() -> Iterator[None]:
    """Sync nothing."""
    with dask.config.set({"oocarrays.durable": False}):
        yield


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where streams are."""
    return tmp_path / "s.zarr"
