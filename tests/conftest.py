from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dying import Server
from tests.small import make

ONCE = """
    test_benchmarks test_benchmark_collective test_benchmark_schedules test_memory test_worker_memory test_killed_tasks
    test_lost_workers test_schedules_on_workers test_redistribution_on_workers test_groups_on_workers
    test_collective_writes_on_workers test_resume_failed test_making_room test_failures test_prediction
"""
"""What takes long and is the same on any Python: benchmarks, memory, deaths, models."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what CI runs on the oldest Python only."""
    for item in items:
        if item.path.stem in ONCE.split():
            item.add_marker(pytest.mark.once)


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
