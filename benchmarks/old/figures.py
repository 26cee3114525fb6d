"""The figures of the thesis's chapter 3, measured here: seconds of one rank for communication sets, pack and unpack.

The thesis timed an Intel Touchstone Delta, where messages travelled; here nothing does, and the table says which of its
observations hold without. Elements are integers of 4 bytes. Nothing is kept from one run to the next.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from report import row

from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan.layouts import assembly, transfer
from oocarrays.plan.layouts.redistribution import Transfer, plan_redistribution, ways_between
from oocarrays.storage.sections import packing
from oocarrays.storage.sections.packing import pack_all, unpack, unpack_all

RANKS = (8, 16, 32, 64, 128)
MILLION = 2**20
SIZES = (2**16, 2**18, 2**20, 2**22)
"""Elements, on 64 ranks."""

Seconds = Callable[[int], float]
"""Of one rank, for a number of ranks or of elements."""
Curves = Mapping[str, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One figure: a curve for each way, and what the thesis saw in it."""

    number: str
    title: str
    of: Sequence[int]
    across: str
    ways: Mapping[str, Seconds]
    saw: str
    holds: Callable[[Curves], bool]


def forget() -> None:
    """Drop everything that plans and copies keep."""
    kept = transfer._axes, transfer._runs, transfer._work, ways_between, assembly.order_of, packing._recipes
    for cache in kept:
        cache.cache_clear()


def one_rank(steps: Sequence[Transfer], *, synchronous: bool = True, keep: bool = False) -> float:
    """Seconds that rank 0 takes for its part of transfers, one after the other."""
    seconds = 0.0
    for step in steps:
        local = np.zeros(step.source.local_shape(0), np.int32)
        made = np.zeros(step.target.local_shape(0), np.int32)
        come = {rank: np.zeros(step.size(rank, 0), np.int32) for rank in range(step.source.ranks)}
        if not keep:
            forget()
        start = time.process_time()
        pack_all(local, step, 0)
        if synchronous:
            unpack_all(come, step, 0, made)
        else:
            for source, message in come.items():
                unpack(message, step, source, 0, made)
        seconds += time.process_time() - start
    return seconds


def steps(shape: tuple[int, ...], source: str, target: str, ranks: int, method: str) -> tuple[Transfer, ...]:
    layouts = (Layout.of(shape, each, ranks=ranks) for each in (source, target))
    return plan_redistribution(*layouts, 4, method).transfers


def assemblies(source: str, target: str, *, sizes: bool = False) -> dict[str, Seconds]:
    def taken(synchronous: bool) -> Seconds:
        return lambda n: one_rank(
            steps((n if sizes else MILLION,), source, target, 64 if sizes else n, "auto"), synchronous=synchronous
        )

    return {"synchronous": taken(True), "asynchronous": taken(False)}


def methods(source: str, target: str, names: Sequence[str], *, sizes: bool = False) -> dict[str, Seconds]:
    def taken(name: str) -> Seconds:
        return lambda n: one_rank(steps((n if sizes else MILLION,), source, target, 64 if sizes else n, name))

    return {name: taken(name) for name in names}


def planes(source: str, target: str) -> dict[str, Seconds]:
    """1K × 1K."""
    names = ("direct", "indirect")
    return {name: lambda n, name=name: one_rank(steps((1024, 1024), source, target, n, name)) for name in names}


def indirect_by_lcm(ranks: int) -> float:
    """(cyclic(11), cyclic(11)) to (cyclic(3), cyclic(3)), each axis by way of cyclic(33)."""
    words = ("(cyclic(11), cyclic(11))", "(cyclic(3), cyclic(11))", "(cyclic(3), cyclic(3))")
    both = (steps((1024, 1024), a, b, ranks, "lcm") for a, b in pairwise(words))
    return one_rank([step for one in both for step in one])


def circular(keep: bool) -> Seconds:
    """There and back."""

    def taken(ranks: int) -> float:
        (there,) = steps((MILLION,), "cyclic(11)", "cyclic(3)", ranks, "general")
        return one_rank([there]) + one_rank([there.reversed()], keep=keep)

    return taken


def faster(one: str, other: str, at: slice = slice(None)) -> Callable[[Curves], bool]:
    """Return whether one way is the faster at every point, or at some."""
    return lambda curves: all(a < b for a, b in zip(curves[one][at], curves[other][at], strict=True))


def in_order(*names: str) -> Callable[[Curves], bool]:
    return lambda curves: all(faster(a, b)(curves) for a, b in pairwise(names))


ASYNCHRONOUS = ("asynchronous is faster: it overlaps with communication", faster("asynchronous", "synchronous"))
FIGURES = [
    Figure(
        number=number,
        title=title,
        of=SIZES if sizes else RANKS,
        across="elements on 64 ranks" if sizes else "ranks, 1M elements",
        ways=assemblies(source, target, sizes=sizes),
        saw=ASYNCHRONOUS[0],
        holds=ASYNCHRONOUS[1],
    )
    for number, title, source, target, sizes in (
        ("3.7", "cyclic → block", "cyclic", "block", False),
        ("3.10", "cyclic(4) → cyclic(2)", "cyclic(4)", "cyclic(2)", False),
        ("3.11", "cyclic(4) → cyclic(2)", "cyclic(4)", "cyclic(2)", True),
        ("3.13", "cyclic(2) → cyclic(4)", "cyclic(2)", "cyclic(4)", False),
        ("3.14", "cyclic(2) → cyclic(4)", "cyclic(2)", "cyclic(4)", True),
    )
] + [
    Figure(
        number="3.17",
        title="cyclic(15) → cyclic(10)",
        of=RANKS,
        across="ranks, 1M elements",
        ways=methods("cyclic(15)", "cyclic(10)", ("general", "gcd", "lcm")),
        saw="LCM is faster than GCD, and GCD than general",
        holds=in_order("lcm", "gcd", "general"),
    ),
    Figure(
        number="3.18",
        title="cyclic(11) → cyclic(3)",
        of=RANKS,
        across="ranks, 1M elements",
        ways=methods("cyclic(11)", "cyclic(3)", ("general", "gcd", "lcm")),
        saw="LCM is faster than general, and general than GCD",
        holds=in_order("lcm", "general", "gcd"),
    ),
    Figure(
        number="3.19",
        title="cyclic(11) → cyclic(3)",
        of=SIZES,
        across="elements on 64 ranks",
        ways=methods("cyclic(11)", "cyclic(3)", ("general", "lcm"), sizes=True),
        saw="general is faster for small arrays, LCM for large ones",
        holds=lambda curves: (
            faster("general", "lcm", slice(1))(curves) and faster("lcm", "general", slice(-1, None))(curves)
        ),
    ),
    Figure(
        number="3.20",
        title="(block, block) → (cyclic, cyclic)",
        of=RANKS,
        across="ranks, 1K × 1K",
        ways=planes("(block, block)", "(cyclic, cyclic)"),
        saw="indirect is faster than direct",
        holds=in_order("indirect", "direct"),
    ),
    Figure(
        number="3.21",
        title="(cyclic(11), cyclic(11)) → (cyclic(3), cyclic(3))",
        of=RANKS,
        across="ranks, 1K × 1K",
        ways=planes("(cyclic(11), cyclic(11))", "(cyclic(3), cyclic(3))") | {"indirect by LCM": indirect_by_lcm},
        saw="indirect is faster than indirect by LCM, and that than direct",
        holds=in_order("indirect", "indirect by LCM", "direct"),
    ),
    Figure(
        number="3.22",
        title="cyclic(11) ↔ cyclic(3), there and back",
        of=RANKS,
        across="ranks, 1M elements",
        ways={"computed twice": circular(False), "kept": circular(True)},
        saw="keeping what was computed is faster",
        holds=faster("kept", "computed twice"),
    ),
]


def measure(options: argparse.Namespace) -> list[dict]:
    """Every figure as a table, and whether the thesis's observation holds here."""
    found = []
    for figure in FIGURES:
        points = figure.of[:2] if options.scale > 1 else figure.of
        curves = {
            name: [min(seconds(n) for _ in range(options.rounds)) for n in points]
            for name, seconds in figure.ways.items()
        }
        holds = figure.holds(curves)
        print(f"\n**Figure {figure.number}**: {figure.title}, milliseconds of one rank\n")
        print(row([figure.across, *map(str, points)]), row(["---", *["---:"] * len(points)]), sep="\n")
        for name, seconds in curves.items():
            print(row([name, *(f"{1e3 * each:.2f}" for each in seconds)]))
        print(f"\nThe thesis: {figure.saw}. Here: {'so it is' if holds else 'not at every point'}.", flush=True)
        found.append({"figure": figure.number, "of": list(points), "curves": curves, "holds": holds})
    return found


def draw(found: list[dict], file: Path) -> None:
    """All figures in one picture."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    picture, places = pyplot.subplots(3, 4, figsize=(18, 11), layout="constrained")
    for place, figure, each in zip(places.flat, FIGURES, found, strict=False):
        for name, seconds in each["curves"].items():
            place.plot(each["of"], [1e3 * s for s in seconds], marker="o", label=name)
        place.set(title=f"{figure.number}  {figure.title}", xlabel=figure.across, ylabel="ms", xscale="log", ylim=0)
        place.set_xticks(each["of"], list(map(str, each["of"])), minor=False)
        place.minorticks_off()
        place.legend()
    for place in list(places.flat)[len(found) :]:
        place.set_axis_off()
    picture.savefig(file, dpi=110)
    pyplot.close(picture)
