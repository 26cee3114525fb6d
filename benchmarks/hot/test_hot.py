"""Nanoseconds of hot paths, whose calls `tests/golden/test_hot.py` counts.

pytest benchmarks/hot
python benchmarks/beside.py --other ../older --turns 3 hot/run.py    # two checkouts in turn
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden import hot

COUNTED = json.loads((Path(hot.__file__).parent / "hot.json").read_text(encoding="utf-8"))
RUNS = ("run a rechunk", "run a pass", "run a reduction")


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return hot.paths(tmp_path_factory.mktemp("paths")) | hot.runs(tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("name", [*(name for name in COUNTED if name != "Python"), *RUNS])
def test_hot_path(benchmark: Any, paths: dict[str, Any], name: str) -> None:
    benchmark(paths[name])
