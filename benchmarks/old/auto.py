"""Whether "auto" is the best: random pairs of layouts, each method by each schedule, priced as they will be carried.

    python benchmarks/auto.py                        # 250 pairs on each of four networks
    python benchmarks/auto.py --pairs 20 --seed 3 --networks flat,mesh

Every method that applies is priced by every one schedule for all its transfers, and by the cheapest for each; what
"auto" chose is compared with the least of these. Nothing travels.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from dataclasses import replace

import machine
import numpy as np

from oocarrays.errors import LayoutError, ScheduleError
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.options.networks import carrier_of
from oocarrays.plan.exchange.carrier import Carrier
from oocarrays.plan.exchange.schedule import NAMES
from oocarrays.plan.layouts.redistribution import METHODS, plan_redistribution
from oocarrays.plan.machine import Costs

WORDS = ["block", "cyclic", "cyclic(2)", "cyclic(3)", "cyclic(4)", "cyclic(6)", "cyclic(7)", "cyclic(15)", "*"]
NETWORKS = ["flat", "mesh", "torus", "fat-tree"]
RANKS = [4, 8, 12, 16, 32]
EXTENTS = (16, 4000)
COSTS = replace(Costs(), cores=4)


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=250, help="on each network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--networks", type=lambda text: text.split(","), default=NETWORKS, help="(default: all four)")
    options = parser.parse_args()
    print(machine.facts(None), flush=True)
    for name in options.networks:
        random, start = np.random.default_rng([options.seed, NETWORKS.index(name)]), time.perf_counter()
        found = [excess(random, name) for _ in range(options.pairs)]
        worst = max(each for each, _ in found)
        took = Counter(method for _, method in found).most_common(4)
        names = ", ".join(f"{method} {many}" for method, many in took)
        print(
            f"{name:9} {options.pairs} pairs: at most {worst:.4f} × the best; chosen: {names}; "
            f"{time.perf_counter() - start:.0f} s",
            flush=True,
        )


def excess(random: np.random.Generator, name: str) -> tuple[float, str]:
    """Return what "auto" is predicted to take, in times of the best of all, and the method that it took."""
    source, target = pair(random)
    carrier = carrier_on(name, max(source.ranks, target.ranks))
    chosen = plan_redistribution(source, target, 8, costs=COSTS, carrier=carrier)
    best = min(
        plan_seconds(source, target, method, schedule, carrier)
        for method in METHODS
        for schedule in ("auto", *NAMES, "coloring")
    )
    return (chosen.price.seconds / best if best else 1.0), chosen.method


def plan_seconds(source: Layout, target: Layout, method: str, schedule: str, carrier: Carrier) -> float:
    """Return predicted seconds of a method by a schedule; infinity where they do not apply."""
    try:
        plan = plan_redistribution(source, target, 8, method, costs=COSTS, carrier=carrier, schedule=schedule)
    except (LayoutError, ScheduleError):
        return float("inf")
    return plan.price.seconds


def pair(random: np.random.Generator) -> tuple[Layout, Layout]:
    """Draw two layouts of one array, of one or two axes, over as many ranks or over others."""
    while True:
        axes = int(random.integers(1, 3))
        shape = tuple(int(n) for n in random.integers(*EXTENTS, axes))
        ranks = random.choice(RANKS, 2) if random.random() < 0.5 else [random.choice(RANKS)] * 2
        texts = [f"({', '.join(random.choice(WORDS, axes))})" for _ in range(2)]
        try:
            before, after = (Layout.of(shape, text, ranks=int(n)) for text, n in zip(texts, ranks, strict=True))
        except LayoutError:
            continue
        return before, after


def carrier_on(name: str, ranks: int) -> Carrier:
    """Return a network for so many ranks."""
    if name == "flat":
        return Carrier.between_workers(ranks, COSTS)
    rows = max(n for n in range(1, int(ranks**0.5) + 1) if ranks % n == 0)
    return carrier_of(name if name == "fat-tree" else f"{name}:{rows}x{ranks // rows}", ranks)


if __name__ == "__main__":
    main()
