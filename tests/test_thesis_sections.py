"""The sections of Thakur 1995, chapter 6, as the benchmark reads and counts them, against the text and masks."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarked import beside

with beside(Path(__file__).parents[1] / "benchmarks"):
    from papers.requests import TABLES, Asked, Count, cases, counts

EVERY = cases(*TABLES)
FIRST_SIX = [case for case in EVERY if case.table < "6_7"]


def as_printed(case: Asked, rank: int) -> list[set[int]]:
    """What the text in the table says, from 1 and to the end: in each axis the indices from 0."""
    axes = []
    for axis, extent in zip(case.text.strip("()").split(","), case.shape, strict=True):
        values = [_value(word, rank, case.ranks) for word in axis.split(":")]
        first, last, step = values
        axes.append({i - 1 for i in range(first, last + 1, step) if 1 <= i <= extent})
    return axes


def _value(word: str, rank: int, ranks: int) -> int:
    terms = (re.sub(r"(?<=\d)p", "*p", term) for term in word.strip().replace("nprocs", str(ranks)).split("+"))
    return sum(eval(term, {"__builtins__": {}}, {"p": rank}) for term in terms)


def test_every_table_has_its_rows() -> None:
    found = {table: sum(case.table == table for case in EVERY) for table in TABLES}
    assert found == {"6_1": 6, "6_2": 8, "6_3": 6, "6_4": 6, "6_5": 5, "6_6": 5, "6_7": 72, "6_8": 48}
    assert all(set(case.seconds) == {"direct", "static", "dynamic"} for case in FIRST_SIX)
    assert all(set(case.seconds) == {"direct", "dynamic"} for case in EVERY if case.table >= "6_7")


@pytest.mark.parametrize("table", TABLES)
def test_each_rank_asks_for_what_is_printed(table: str) -> None:
    for case in (case for case in EVERY if case.table == table):
        requests = case.requests
        for rank in {0, 1, case.ranks - 1}:
            assert [set(axis) for axis in requests[rank]] == as_printed(case, rank), case.name


def masks(case: Asked) -> tuple[Count, int]:
    """By elements: the requests of the direct method, and the columns that anybody wants."""
    columns, each = set(), []
    for rows, cols in case.requests:
        wanted = np.zeros(case.shape[0] + 1, bool)
        wanted[list(rows)] = True
        runs = int(np.count_nonzero(wanted[:-1] & ~wanted[1:]))
        each.append((runs * len(cols), len(rows) * len(cols) * 4))
        columns |= set(cols)
    return Count.of(each), len(columns)


@pytest.mark.parametrize("case", FIRST_SIX, ids=lambda case: case.name)
def test_dynamic_domains_balance_at_least_as_well_and_columns_are_read_once(case: Asked) -> None:
    found, (direct, columns) = counts(case), masks(case)
    assert found["direct"] == direct
    assert found["static"].requests == found["dynamic"].requests == columns
    assert found["dynamic"].most_requests <= found["static"].most_requests
    assert found["dynamic"].nbytes <= columns * case.shape[0] * 4
