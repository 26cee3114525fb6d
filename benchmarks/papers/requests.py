"""Thakur 1995, Tables 6.1 to 6.8: requests and bytes of sections of a file that is stored by columns.

    (1+50p:100+50p:1, 1:100:1)      rank p asks for rows 50p to 100+50p and columns 0 to 100, counted from 0

*Direct* asks for each run of each rank by itself. *Two-phase* gives each rank a domain of whole columns, and reads
every column of the domain's tight section once, holes and all (section 6.3.1), in *static* or *dynamic* partitions.
Requests and bytes are counted in closed form; nothing is read.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from case import Case, Job, way

DATA = Path(__file__).parents[2] / "tests" / "data"
TABLES = ("6_1", "6_2", "6_3", "6_4", "6_5", "6_6", "6_7", "6_8")
PARTITIONS = ("static", "dynamic")
METHODS = ("dynamic", "static", "direct")
ITEM = 4
"""Bytes of an element: single precision."""
Axes = tuple[range, ...]
"""The indices that are asked for along each axis."""
Bound = tuple[int, int]
"""Where a section begins or ends along an axis: for rank 0, and by how much more for each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One row of a table."""

    table: str
    """Such as ``"6_1"``."""
    number: str
    """As printed, such as ``"IV"``."""
    kind: str
    """Common, overlapping, distinct, or of non-unit stride."""
    operation: str
    """Read or write."""
    shape: tuple[int, int]
    """Rows and columns of the array."""
    ranks: int
    """Processors, each of which asks for a section."""
    text: str
    """The section as printed: from 1, the end included."""
    lower: tuple[Bound, Bound]
    """First index along each axis."""
    upper: tuple[Bound, Bound]
    """One past the last index along each axis."""
    strides: tuple[int, int]
    """Along each axis."""
    seconds: dict[str, float]
    """Printed, by method: direct, static, dynamic."""

    @property
    def requests(self) -> tuple[Axes, ...]:
        """The section that each rank asks for."""
        return tuple(tuple(self._along(axis, rank) for axis in (0, 1)) for rank in range(self.ranks))

    def _along(self, axis: int, rank: int) -> range:
        (low, low_more), (high, high_more) = self.lower[axis], self.upper[axis]
        return range(low + rank * low_more, min(high + rank * high_more, self.shape[axis]), self.strides[axis])

    @property
    def name(self) -> str:
        """Such as ``6.7 VIII on 64``."""
        return f"{self.table.replace('_', '.')} {self.number} on {self.ranks}"


def cases(*tables: str) -> list[Asked]:
    """Return the rows of tables, in their order."""
    return [case for table in tables for case in _cases(table)]


def _cases(table: str) -> Iterator[Asked]:
    with (DATA / f"thesis_table{table}.csv").open() as file:
        rows = list(csv.DictReader(file))
    for _, group in groupby(rows, lambda row: (row["case"], row["operation"], row["processors"])):
        yield _case(table, list(group))


def _case(table: str, rows: Sequence[dict[str, str]]) -> Asked:
    """One case: its rows differ in method and seconds."""
    row = rows[0]

    def bound(end: str, axis: int) -> Bound:
        return int(row[f"{end}_{axis}"]), int(row[f"{end}_{axis}_per_rank"])

    return Asked(
        table=table,
        number=row["case"],
        kind=row["kind"],
        operation=row["operation"],
        shape=(int(row["array_rows"]), int(row["array_cols"])),
        ranks=int(row["processors"]),
        text=row["section_fortran"],
        lower=(bound("lower", 0), bound("lower", 1)),
        upper=(bound("upper", 0), bound("upper", 1)),
        strides=(int(row["stride_0"]), int(row["stride_1"])),
        seconds={each["method"].rpartition("_")[2]: float(each["seconds"]) for each in rows},
    )


# ---------------------------------------------------------------------- what the methods ask of a file by columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """The requests and bytes that a method asks of the file."""

    requests: int
    """Contiguous reads, of all ranks together."""
    nbytes: int
    """Bytes that they bring."""
    most_requests: int
    """Requests of the rank that has most."""
    most_bytes: int
    """Bytes of the rank that has most."""

    @classmethod
    def of(cls, each: Sequence[tuple[int, int]]) -> Count:
        """Return the sum of what each rank asks: requests and bytes."""
        requests, nbytes = zip(*each, strict=True)
        return cls(requests=sum(requests), nbytes=sum(nbytes), most_requests=max(requests), most_bytes=max(nbytes))


def direct(case: Asked) -> Count:
    """Each rank by itself: a column's piece at a time, or an element, where rows have a stride (section 6.5.5)."""
    return Count.of([_runs(axes) for axes in case.requests])


def _runs(axes: Axes) -> tuple[int, int]:
    rows, columns = axes
    size = len(rows) * len(columns)
    return len(columns) if rows.step == 1 else size, size * ITEM


def two_phase(case: Asked, partition: str) -> Count:
    """Each rank its domain: of the tight section every column that anybody wants is read once, with its holes."""
    from oocarrays.mapping.grid import ChunkGrid
    from oocarrays.mapping.selection import common
    from oocarrays.plan.collective.domains import Dealing, file_domains

    grid = ChunkGrid.of(case.shape, (case.shape[0], 1))
    requests = case.requests
    each = []
    for domain in file_domains(grid, requests, range(case.ranks), Dealing(partition=partition)):
        wanted = [axes for box in domain.boxes for axes in (common(request, box) for request in requests)]
        held = [axes[0] for axes in wanted if all(map(len, axes))]
        rows = max(int(taken[-1]) for taken in held) + 1 - min(int(taken[0]) for taken in held) if held else 0
        columns = len({column for taken_rows, taken in wanted if len(taken_rows) for column in taken})
        each.append((columns, columns * rows * ITEM))
    return Count.of(each)


def counts(case: Asked) -> dict[str, Count]:
    """By method."""
    return {"direct": direct(case), **{partition: two_phase(case, partition) for partition in PARTITIONS}}


def counted(job: Job) -> dict:
    """Requests and bytes by one method, by table, and the printed seconds of its rows."""
    numbers = {}
    for table in TABLES[: job.items]:
        read = [case for case in cases(table) if job.method in case.seconds]
        found = [counts(case)[job.method] for case in read]
        title = f"Table {table.replace('_', '.')}"
        if read:
            numbers[f"{title}: requests"] = sum(each.requests for each in found)
            numbers[f"{title}: MB"] = sum(each.nbytes for each in found) / 1e6
            numbers[f"{title}: seconds printed"] = sum(case.seconds[job.method] for case in read)
    return {"numbers": numbers}


CASES = (
    Case(
        name="thesis-requests",
        question="Requests, bytes and printed seconds of the sections of Thakur 1995, chapter 6",
        params={"items": 8},
        tiny={"items": 1},
        ways=tuple(way(method, "papers.requests:counted", method=method) for method in METHODS),
        measure="own",
        cache=("warm",),
        rounds=1,
    ),
)
