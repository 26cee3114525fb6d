"""Thakur 1995, Tables 4.4 to 4.10: complete exchanges on the Touchstone Delta.

Two models beside the printed seconds: the thesis's own, and one of wormhole routing, whose constants were fitted to
Tables 4.4, 4.7, 4.9 and 4.10; the other tables are of other meshes and of two other schedules. Messages of every step
are routed and counted; nothing is run.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from case import Case, Job, way

DATA = Path(__file__).parents[2] / "tests" / "data"
TABLES = ("4_4", "4_5", "4_6", "4_7", "4_8", "4_9", "4_10")


def printed(table: str) -> Iterator[tuple[str, int, int, int, float]]:
    """Yield schedule, rows, columns, bytes that each pair exchanges, and seconds of each cell of a table."""
    with (DATA / f"thesis_table{table}.csv").open() as file:
        for row in csv.DictReader(file):
            about = (int(row[name]) for name in ("mesh_rows", "mesh_cols", "message_bytes"))
            yield row["algorithm"], *about, float(row["seconds"])


def predictions(job: Job) -> dict:
    """Predicted ÷ printed, by table: the median, and the share of cells within a quarter."""
    from oocarrays.plan.exchange.network import Mesh
    from oocarrays.plan.exchange.prediction import DELTA, MEASURED_DELTA, schedule_seconds
    from oocarrays.plan.exchange.schedule import Schedule

    costs, numbers = {"thesis": DELTA, "wormhole": MEASURED_DELTA}[job.model], {}
    for table in TABLES[-job.items :]:
        ratios = []
        for name, rows, columns, nbytes, seconds in printed(table):
            mesh = Mesh(rows=rows, columns=columns)
            schedule = Schedule.of(name, mesh.ranks, columns=columns)
            ratios.append(schedule_seconds(schedule, nbytes, mesh, costs) / seconds)
        title = f"Table {table.replace('_', '.')} ({name})"
        numbers[f"{title}: predicted ÷ printed"] = median(ratios)
        numbers[f"{title}: share within a quarter"] = sum(abs(each - 1) <= 0.25 for each in ratios) / len(ratios)
    return {"numbers": numbers}


CASES = (
    Case(
        name="thesis-schedules",
        question="Predicted and printed seconds of complete exchanges on the Touchstone Delta",
        params={"items": 7},
        tiny={"items": 1},
        ways=tuple(way(model, "papers.schedules:predictions", model=model) for model in ("thesis", "wormhole")),
        measure="own",
        cache=("warm",),
        rounds=1,
    ),
)
