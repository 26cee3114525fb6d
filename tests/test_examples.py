"""Every example runs, from any directory, and says what numpy says of the same data."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
PROGRAMS = sorted(EXAMPLES.glob("*.py"))
WARMING = "+3.59 K"


def run(program: Path, folder: Path) -> subprocess.CompletedProcess:
    env = os.environ | {"TMPDIR": str(folder), "PYTHONWARNINGS": "error"}
    return subprocess.run([sys.executable, program], cwd=folder, env=env, capture_output=True, text=True)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_example_runs_and_leaves_nothing(program: Path, tmp_path: Path) -> None:
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.stem)
def test_example_uses_public_names_and_one_screen(program: Path) -> None:
    text = program.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 50
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("oocarrays.")
        if isinstance(node, ast.Import):
            assert all(not alias.name.startswith("oocarrays.") for alias in node.names)
        if isinstance(node, ast.Attribute):
            assert not node.attr.startswith("_")


def test_time_series_prints_the_warming_that_numpy_finds(tmp_path: Path) -> None:
    printed = run(EXAMPLES / "time_series.py", tmp_path).stdout
    data = np.load(EXAMPLES / "data" / "air_temperature.npz")
    nearest = tuple(int(np.argmin(np.abs(data[name] - x))) for name, x in (("latitude", 43.7), ("longitude", 280.6)))
    series = data["air_temperature"][(slice(None), *nearest)].astype("f8")
    warming = re.search(r"Toronto: ([+-]\d+\.\d\d) K from 1860–1889 to 2070–2099", printed)
    assert warming, printed
    assert warming[1] in WARMING
    assert float(warming[1]) == pytest.approx(series[-30:].mean() - series[:30].mean(), abs=0.006)
    assert "predicted" in printed
    assert "240 × 37 × 49" in printed


def test_xarray_finds_the_same_warming(tmp_path: Path) -> None:
    printed = run(EXAMPLES / "xarray_series.py", tmp_path).stdout
    assert f"Toronto: {WARMING} in 240 years" in printed
    assert "<xarray.Dataset>" in printed


def test_a_mosaic_has_no_seams(tmp_path: Path) -> None:
    printed = run(EXAMPLES / "mosaic.py", tmp_path).stdout
    assert "100 chunks written, 0 of them read first; tile after tile it would be 196" in printed
    assert "9 tiles, and no seam between them: True" in printed
