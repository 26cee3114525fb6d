"""The benchmark itself, tiny: it runs, checks its outputs, and our plan's promises hold in what it measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "rechunk.py"


@pytest.mark.parametrize("case", ["1g", "1g-zstd", "3d"])
def test_the_benchmark_runs_and_our_numbers_hold(tmp_path: Path, case: str) -> None:
    out = tmp_path / "out.json"
    command = [sys.executable, str(SCRIPT), case, "--scale", "16", "--rounds", "1", "--pause", "0", "--cache", "warm"]
    command += ["--peers", "oocarrays,limit", "--workdir", str(tmp_path / "work"), "--json", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(out.read_text())["results"]
    ours = result["rounds"][0]["oocarrays"]
    assert ours["verdict"] == "ok"
    plan, meter = ours["told"]["plan"], ours["told"]["meter"]
    assert ours["peak"] <= plan["peak_bytes"] <= ours["budget"]
    if case != "1g-zstd":
        assert meter["read_bytes"] == plan["read_bytes"]
        assert meter["written_bytes"] == plan["written_bytes"]
