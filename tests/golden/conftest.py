"""The option by which changed results are accepted, and settings that make plans the same on any machine."""

from __future__ import annotations

import dask
import pytest

from tests.golden.records import Golden

PINNED = {
    "oocarrays.cost.cores": 4,
    "oocarrays.cost.cache_bytes": 8 * 2**30,
    "oocarrays.memory": "1GiB",
    "oocarrays.whole-array-limit": "1GiB",
    "num_workers": 4,
}
"""Settings whose defaults are measured on the machine."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden",
        choices=("compare", "write"),
        default="compare",
        help="compare with tests/golden/*.json, or write them",
    )


@pytest.fixture
def pinned(own_config: None) -> None:
    """Dask's configuration without the user's files and variables, and with `PINNED`."""
    dask.config.refresh(paths=[], env={})
    dask.config.set(PINNED)


@pytest.fixture
def golden(request: pytest.FixtureRequest, pinned: None) -> Golden:
    """The golden file of a test module: ``plans`` of ``test_plans``."""
    return Golden(request.path.stem.removeprefix("test_"), request.config.getoption("golden", "compare") == "write")
