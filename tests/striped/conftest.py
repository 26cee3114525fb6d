from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run what is a coroutine, as Zarr's own tests of stores are."""
    test = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in inspect.signature(test).parameters}
    asyncio.run(test(**arguments))
    return True


@pytest.fixture
def disks(tmp_path: Path) -> list[str]:
    """Three folders."""
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    return list(map(str, folders))
