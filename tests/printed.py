"""Tables of Thakur 1995 as they are printed; the cells are in ``tests/data``."""

from __future__ import annotations

import csv
from pathlib import Path

DATA = Path(__file__).parent / "data"


def table(name: str) -> list[dict[str, str]]:
    """The rows of a table of the thesis, such as ``"4_1"``."""
    with (DATA / f"thesis_table{name}.csv").open() as file:
        return list(csv.DictReader(file))


def steps(name: str) -> list[set[frozenset[int]]]:
    """The pairs that exchange in each step of a printed schedule."""
    rows = [(int(row["step"]), frozenset((int(row["a"]), int(row["b"])))) for row in table(name)]
    return [{pair for step, pair in rows if step == number} for number in range(1, max(rows)[0] + 1)]
