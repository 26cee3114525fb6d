"""The benchmark of schedules, on the table that takes least: it shows every printed cell beside both models."""

from __future__ import annotations

import pytest

from tests import benchmarked, printed
from tests.dying import Server

pytestmark = pytest.mark.long


def test_every_printed_time_stands_beside_the_predicted_ones(runs: Server) -> None:
    told = benchmarked.printed(runs, "schedules.py", "--tables", "4_9")
    rows = [line.split() for line in told.splitlines() if "×" in line and len(line.split()) == 7]
    cells = printed.table("4_9")
    assert [(row[0], int(row[1]), float(row[2])) for row in rows] == [
        (f"{cell['mesh_rows']}×{cell['mesh_cols']}", int(cell["message_bytes"]), float(cell["seconds"]))
        for cell in cells
    ]
    assert all(abs(float(row[3]) / float(row[2]) - float(row[4])) < 0.02 for row in rows)
