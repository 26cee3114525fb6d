"""Hot paths make the stored number of calls of our own functions, within 2 %: a count that no busy machine changes."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import pytest

import oocarrays as ooc
from tests.golden.hot import paths
from tests.golden.records import Golden
from tests.work import counted

pytestmark = pytest.mark.long  # for the newest Python alone

PYTHON = "{}.{}".format(*sys.version_info)
"""Versions of Python inline comprehensions or do not, so that calls are compared with those of the same version."""
PACKAGE = str(Path(ooc.__file__).parent)
CLOSE = 0.02


def calls(path: Any) -> int:
    """Return the calls that functions of the package make in a path, when all that is kept is there."""
    path()
    gc.collect()  # runs of earlier tests that wait for it are told of each write
    gc.disable()
    try:
        with counted(PACKAGE) as work:
            path()
    finally:
        gc.enable()
    return work.calls


def near(new: int, old: Any) -> int:
    """Return the stored number of calls where the new one is close to it."""
    return old if old and abs(new - old) <= CLOSE * old else new


def test_hot_paths_make_as_many_calls_as_before(tmp_path: Path, golden: Golden) -> None:
    kept = golden.load()
    if not golden.write and kept["Python"] != PYTHON:
        pytest.skip(f"calls are those of Python {kept['Python']}")
    new = {name: near(calls(path), kept.get(name)) for name, path in paths(tmp_path).items()}
    golden.check({"Python": PYTHON, **new})
