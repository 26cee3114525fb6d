"""Before pytest collects: bytecode is kept, and what has no doctest is not imported to look for one."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # many containers set it; each process would compile everything
sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
    """Drop the module that pytest would import for its doctests where it has none."""
    found = yield
    if file_path.suffix != ".py" or ">>>" in file_path.read_text(encoding="utf-8"):
        return found
    return [each for each in found if type(each).__name__ != "DoctestModule"]
