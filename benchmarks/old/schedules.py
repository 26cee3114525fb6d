"""Predicted times of complete exchanges beside those that the thesis measured on the Touchstone Delta.

    python benchmarks/schedules.py                 Tables 4.4 to 4.10, and who is fastest where
    python benchmarks/schedules.py --tables 4_10   one of them

Each cell is what is printed, what the thesis's model says and what the wormhole model says, with the ratio of either to
the print. Messages of every step are routed and counted; nothing is run. The wormhole model's constants were fitted to
Tables 4.4, 4.7, 4.9 and 4.10; Tables 4.5, 4.6 and 4.8 are of other meshes, and of two other schedules.
"""

from __future__ import annotations

import argparse
import csv
import statistics
from pathlib import Path

from oocarrays.plan.exchange.network import Mesh
from oocarrays.plan.exchange.prediction import DELTA, schedule_seconds
from oocarrays.plan.exchange.schedule import Schedule
from oocarrays.plan.exchange.topologies import MEASURED_DELTA

DATA = Path(__file__).parents[2] / "tests" / "data"
TABLES = ("4_4", "4_5", "4_6", "4_7", "4_8", "4_9", "4_10")
MODELS = {"thesis": DELTA, "wormhole": MEASURED_DELTA}
Cell = tuple[str, int, int, int]
"""Schedule, rows, columns, bytes that each pair exchanges."""


def printed(table: str) -> dict[Cell, float]:
    """Seconds of each cell of a table."""
    with (DATA / f"thesis_table{table}.csv").open() as file:
        return {
            (row["algorithm"], int(row["mesh_rows"]), int(row["mesh_cols"]), int(row["message_bytes"])): float(
                row["seconds"]
            )
            for row in csv.DictReader(file)
        }


def predicted(cell: Cell, model: str) -> float:
    """Seconds of a cell by a model."""
    name, rows, columns, nbytes = cell
    mesh = Mesh(rows=rows, columns=columns)
    return schedule_seconds(Schedule.of(name, mesh.ranks, columns=columns), nbytes, mesh, MODELS[model])


def show_table(table: str) -> dict[str, dict[Cell, float]]:
    """Print a table, and what the models make of it; returns seconds by each."""
    seconds = {"printed": printed(table)}
    seconds |= {model: {cell: predicted(cell, model) for cell in seconds["printed"]} for model in MODELS}
    name = next(iter(seconds["printed"]))[0]
    print(f"\nTable {table.replace('_', '.')}: {name}")
    print(f"{'mesh':>8} {'bytes':>6} {'printed':>9} {'thesis':>9} {'ratio':>6} {'wormhole':>9} {'ratio':>6}")
    for cell, measured in seconds["printed"].items():
        ours = "".join(f" {seconds[model][cell]:9.4f} {seconds[model][cell] / measured:6.2f}" for model in MODELS)
        print(f"{f'{cell[1]}×{cell[2]}':>8} {cell[3]:6} {measured:9.3f}{ours}")
    for model in MODELS:
        ratios = [seconds[model][cell] / measured for cell, measured in seconds["printed"].items()]
        near = sum(abs(ratio - 1) <= 0.25 for ratio in ratios) / len(ratios)
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}, median {statistics.median(ratios):.2f}"
        print(f"{model}: {spread}, {near:.0%} within a quarter")
    return seconds


def show_fastest(seconds: dict[str, dict[Cell, float]]) -> None:
    """Print which schedule is fastest on each mesh (Figures 4.17 to 4.19)."""
    names = list(seconds)
    print(f"\nfastest\n{'mesh':>8} {'ranks':>5} {'bytes':>6} " + " ".join(f"{name:>9}" for name in names))
    cells = seconds["printed"]
    meshes = sorted({cell[1:] for cell in cells if cell[3] in (1024, 16384)}, key=lambda m: (m[2], m[0] * m[1], m))
    for rows, columns, nbytes in meshes:
        best = [
            min((took, cell[0]) for cell, took in seconds[name].items() if cell[1:] == (rows, columns, nbytes))[1]
            for name in names
        ]
        print(f"{f'{rows}×{columns}':>8} {rows * columns:5} {nbytes:6} " + " ".join(f"{name:>9}" for name in best))


def main() -> None:
    """Print the tables that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    seconds: dict[str, dict[Cell, float]] = {}
    for table in parser.parse_args().tables:
        for name, cells in show_table(table).items():
            seconds.setdefault(name, {}).update(cells)
    show_fastest(seconds)


if __name__ == "__main__":
    main()
