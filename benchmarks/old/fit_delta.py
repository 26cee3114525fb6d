"""Fit the wormhole model's constants to what the thesis measured on the Touchstone Delta (Tables 4.4, 4.7, 4.9, 4.10).

    python benchmarks/fit_delta.py

What `oocarrays.plan.exchange.topologies.MEASURED_DELTA` holds came from here, rounded. Five constants for unforced
messages and five for forced ones are varied; α stays as printed. The sum of two kinds of squares is made least: the
logarithm of predicted over printed seconds, for each cell; and ten times what is missing until PEX, GEN and IPEX stand
in the printed order by a hundredth at least, for each two of them on a mesh at 1 KB and 16 KB (the sizes of Figures
4.18 and 4.19). Takes about half a minute.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from schedules import Cell, printed

from oocarrays.plan.exchange.exchange import Exchange, Turn
from oocarrays.plan.exchange.network import Mesh
from oocarrays.plan.exchange.prediction import DELTA, message_kinds
from oocarrays.plan.exchange.schedule import Schedule

STARTUPS = [constants.startup for constants in DELTA]
NAMES = ("exchange", "send_receive", "saturated", "held_exchange", "held_send_receive")
START = np.array([[0.4, 0.25, 0.05, 0.006, 0.03], [0.157, 0.146, 0.062, 0.006, 0.028]]) * 1e-6
ORDER_WEIGHT, MARGIN, ROUNDS = 10, 0.01, 80
MISPRINT = ("IPEX", 16, 16, 8192)

Steps = list[tuple[int, int, int, np.ndarray]]
"""How often a step comes, its largest message for L = 1, its kind, and its different messages: bytes, row, column."""


def steps(cell: Cell) -> Steps:
    """Return the steps of an exchange of one byte a pair, those that are alike taken together."""
    name, rows, columns, _ = cell
    mesh = Mesh(rows=rows, columns=columns)
    found: dict[bytes, list] = {}
    for turn in Exchange.of(Schedule.of(name, mesh.ranks, columns=columns), 1):
        key = np.unique(messages(turn, mesh), axis=1)
        found.setdefault(key.tobytes(), [0, int(turn.sizes.max()), int(message_kinds(turn.step).max()), key])[0] += 1
    return [(many, largest, kind, key) for many, largest, kind, key in found.values()]


def messages(turn: Turn, mesh: Mesh) -> np.ndarray:
    """Bytes of each message, and of the busiest links on its row and its column."""
    sources = turn.step.senders
    return np.vstack([turn.sizes, mesh.legs(sources, turn.step.destinations[sources], turn.sizes)])


def seconds(constants: np.ndarray, cell: Cell, exchange: Steps) -> float:
    """Seconds of an exchange: the model of `oocarrays.plan.exchange.topologies`, written down once more."""
    total, nbytes = 0.0, cell[3]
    for many, largest, kind, (size, row, column) in exchange:
        forced = int((1 if cell[0] == "REX" else largest) * nbytes >= DELTA[1].from_bytes)
        ex, sr, saturated, held_ex, held_sr = constants[forced]
        byte, held = (ex, held_ex) if kind == 0 else (sr, held_sr)
        slowest = (size * byte + (row + column) * saturated + row * column / size * held).max()
        total += many * (STARTUPS[forced] + nbytes * slowest)
    return total


def main() -> None:
    """Fit, and print what was found."""
    cells = {cell: took for table in ("4_4", "4_7", "4_9", "4_10") for cell, took in printed(table).items()}
    cells.pop(MISPRINT)
    exchanges = {cell[:3]: steps(cell) for cell in cells}
    names, took = list(cells), np.log(list(cells.values()))
    pairs = [
        (a, b) if took[a] < took[b] else (b, a)
        for a, b in combinations(range(len(names)), 2)
        if names[a][1:] == names[b][1:]
        and names[a][3] in (1024, 16384)
        and took[a] != took[b]
        and "REX" not in (names[a][0], names[b][0])
    ]
    first, second = np.array(pairs).T

    def missing(logs: np.ndarray) -> np.ndarray:
        ours = np.log([seconds(np.exp(logs), cell, exchanges[cell[:3]]) for cell in names])
        return np.concatenate([ours - took, ORDER_WEIGHT * np.maximum(0, MARGIN - (ours[second] - ours[first]))])

    found, left = least_squares(missing, np.log(START))
    ratios = np.exp(left[: len(names)])
    for kind, row in zip(("unforced", "forced"), np.exp(found), strict=True):
        print(kind, *(f"{name}={value * 1e6:.4f} us" for name, value in zip(NAMES, row, strict=True)))
    print(f"predicted over printed: {ratios.min():.2f} to {ratios.max():.2f}, median {np.median(ratios):.2f}")


def least_squares(missing, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Levenberg and Marquardt's way down, with differences for derivatives."""
    here, left, damping = start, missing(start), 1e-3
    for _ in range(ROUNDS):
        moved = np.eye(here.size).reshape(here.size, *here.shape) * 1e-3
        slope = np.stack([(missing(here + step) - left) / 1e-3 for step in moved], axis=1)
        down = np.linalg.solve(slope.T @ slope + damping * np.eye(here.size), -slope.T @ left)
        there = here + np.clip(down, -0.5, 0.5).reshape(here.shape)
        then = missing(there)
        better = then @ then < left @ left
        here, left, damping = (there, then, damping / 3) if better else (here, left, damping * 4)
        if damping > 1e8:
            break
    return here, left


if __name__ == "__main__":
    main()
