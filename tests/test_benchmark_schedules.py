"""The benchmark of schedules, on the table that takes least: it shows every printed cell beside both models."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import printed

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "schedules.py"


def test_every_printed_time_stands_beside_the_predicted_ones() -> None:
    done = subprocess.run([sys.executable, SCRIPT, "--tables", "4_9"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if "×" in line and len(line.split()) == 7]
    cells = printed.table("4_9")
    assert [(row[0], int(row[1]), float(row[2])) for row in rows] == [
        (f"{cell['mesh_rows']}×{cell['mesh_cols']}", int(cell["message_bytes"]), float(cell["seconds"]))
        for cell in cells
    ]
    assert all(abs(float(row[3]) / float(row[2]) - float(row[4])) < 0.02 for row in rows)
