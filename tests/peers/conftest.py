"""Marks of xarray's own tests, and the list of those that differ."""

from __future__ import annotations

from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.peers.differences import LEFT_OUT, LISTED, reason

MARKS = ("asyncio", "flaky", "network", "skip_if_param", "skip_with_dask_array", "xfail_with_dask_array")
HERE = Path(__file__).parent
COLLECTED = pytest.StashKey[list[str]]()
"""Names of all tests of classes, where whole files were asked for."""


def pytest_configure(config: pytest.Config) -> None:
    for mark in MARKS:
        config.addinivalue_line("markers", f"{mark}: of xarray's own tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what marks of xarray say, but what h5netcdf can write in the place of netCDF4."""
    own, is_there = [item for item in items if item.path.parent == HERE], find_spec("netCDF4")
    for item in own:
        if not is_there:
            for node in item.listchain():
                node.own_markers[:] = [m for m in node.own_markers if m.kwargs.get("reason") != "requires netCDF4"]
        for mark in item.iter_markers("skip_if_param"):
            if _is_met(**mark.kwargs, given=item.callspec.params if hasattr(item, "callspec") else {}):
                item.add_marker(pytest.mark.skip(reason=mark.kwargs["reason"]))
        if why := reason(name_of(item), LEFT_OUT):
            item.add_marker(pytest.mark.skip(reason=why))
    if not any("::" in arg for arg in config.args):
        config.stash[COLLECTED] = [name_of(item) for item in own]


def _is_met(*, given: dict[str, Any], reason: str, condition: bool = True, **params: Any) -> bool:
    return condition and params.items() <= given.items()


def name_of(item: pytest.Item) -> str:
    """Return the name of a test with its class and parameters."""
    return f"{item.parent.name}.{item.name}" if item.parent else item.name


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Let a test that is listed fail: one that passes has to leave the list."""
    why = reason(name_of(pyfuncitem), LISTED)
    if why is None:
        return (yield)
    try:
        yield
    except (Exception, pytest.fail.Exception):  # noqa: BLE001  a test fails by any
        # without a traceback, for which all of a long file is parsed
        raise pytest.xfail.Exception(why, pytrace=False) from None
    pytest.fail(f"listed in differences.py, and passes: {why}", pytrace=False)
