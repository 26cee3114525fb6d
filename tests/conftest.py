from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying import Server
from tests.small import make


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make(tmp_path / "source.zarr")
    return tmp_path / "source.zarr"


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Runs in processes of their own, which die where they are told to."""
    server = Server(tmp_path_factory.mktemp("runs"))
    yield server
    server.close()
