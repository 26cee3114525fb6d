"""Redistribution in one process: copies beside numpy's own, and the thesis's figures of chapter 3 measured again.

    python benchmarks/redistribution.py copies --rounds 5
    python benchmarks/redistribution.py figures --draw figures.png
    python benchmarks/redistribution.py all --scale 16 --rounds 1

`copies` packs and unpacks an array on all ranks, one after the other; every way runs in turn in each round, and its
least time counts: that of the processor, as all is done by one thread and others may be at work on the machine.
`figures` takes the time of one rank: communication sets, pack, unpack. Nothing travels.
"""

from __future__ import annotations

import argparse
import json
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import figures
import machine
import numpy as np
import strided
from report import row

from oocarrays.mapping.layouts.axis import BlockCyclicAxis
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan.layouts.redistribution import Transfer
from oocarrays.plan.layouts.runs import block_to_cyclic, cut, runs_between

MIB = 2**20
COPIES = [
    ("cyclic(11)", "cyclic(3)", 4),
    ("cyclic(11)", "cyclic(3)", 64),
    ("(block, *)", "(*, block)", 4),
    ("(block, *)", "(*, block)", 64),
]
EXTENT = 10**9
"""Elements of the axis of which communication sets are made."""


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["sets", "copies", "figures", "all"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=int, default=1, help="divide all sizes by this")
    parser.add_argument("--dtypes", default="float32,float64", help="of the copies (default: float32,float64)")
    parser.add_argument("--draw", type=Path, metavar="FILE", help="draw the figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was measured")
    options = parser.parse_args()
    print(machine.facts(None), flush=True)
    asked = ["sets", "copies", "figures"] if options.what == "all" else [options.what]
    found = {name: {"sets": sets, "copies": copies, "figures": figures.measure}[name](options) for name in asked}
    if options.draw and "figures" in found:
        figures.draw(found["figures"], options.draw)
    if options.json:
        options.json.write_text(json.dumps(found))


def least(call: Callable[[], object], rounds: int) -> float:
    """Seconds of the quickest call."""
    return min(timed(call)[0] for _ in range(rounds))


def timed(call: Callable[[], object]) -> tuple[float, object]:
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def sets(options: argparse.Namespace) -> list[dict]:
    """Communication sets of all pairs of 64 ranks."""
    extent, ranks = EXTENT // options.scale, 64
    block = BlockCyclicAxis(extent, ranks, -(-extent // ranks))
    axes = {m: BlockCyclicAxis(extent, ranks, m) for m in (1, 3, 11)}
    cases = {
        "cyclic(11) → cyclic(3)": lambda: runs_between(axes[11], axes[3]),
        "block → cyclic, by its formula": lambda: block_to_cyclic(block, axes[1]),
        "block → cyclic, by cutting": lambda: cut(block, axes[1]),
    }
    print(f"\n**Communication sets**: {extent} elements, {ranks} ranks, all pairs\n")
    print(row(["distributions", "runs", "ms"]), row(["---", "---:", "---:"]), sep="\n")
    found = []
    for name, call in cases.items():
        found.append({"case": name, "runs": len(call()), "seconds": least(call, options.rounds)})
        print(row([name, found[-1]["runs"], f"{found[-1]['seconds'] * 1e3:.2f}"]), flush=True)
    return found


def copies(options: argparse.Namespace) -> list[dict]:
    """Pack and unpack of 256 MiB by every way."""
    found = []
    for dtype in options.dtypes.split(","):
        for source, target, ranks in COPIES:
            found.append(copied(source, target, ranks, np.dtype(dtype), options))
    return found


def copied(source: str, target: str, ranks: int, dtype: np.dtype, options: argparse.Namespace) -> dict:
    elements = 256 * MIB // options.scale // dtype.itemsize
    shape = (elements,) if "," not in source else (int(elements**0.5) // ranks * ranks,) * 2
    transfer = Transfer(Layout.of(shape, source, ranks=ranks), Layout.of(shape, target, ranks=ranks))
    case = strided.Case(transfer, dtype)
    ways = {name: way(case) for name, way in strided.WAYS.items()}
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    expected = None
    for number in range(options.rounds):
        order = list(ways.items())
        for name, (pack, unpack) in order[number:] + order[:number]:
            for local in case.after:
                local[...] = 0
            packing, messages = timed(pack)
            unpacking, _ = timed(lambda unpack=unpack, messages=messages: unpack(messages))
            taken[name].append((packing, unpacking))
            sums = [zlib.crc32(local) for local in case.after]
            expected = expected or sums
            assert sums == expected, f"{name} put elements elsewhere"
            del messages
    return shown(f"{source} → {target}, {ranks} ranks, {dtype}", elements * dtype.itemsize, taken)


def shown(name: str, nbytes: int, taken: dict[str, list[tuple[float, float]]]) -> dict:
    least = {way: min(map(sum, times)) for way, times in taken.items()}
    best = min((way for way in least if "take" not in way and way != "oocarrays"), key=least.__getitem__)
    take = min((way for way in least if "take" in way), key=least.__getitem__)
    print(f"\n**{name}**: pack and unpack of {nbytes / MIB:.0f} MiB\n")
    print(row(["way", "pack ms", "unpack ms", "both ms", "× oocarrays"]), row(["---", *["---:"] * 4]), sep="\n")
    for way, times in taken.items():
        pack, unpack = min(times, key=sum)
        numbers = [f"{1e3 * seconds:.1f}" for seconds in (pack, unpack, pack + unpack)]
        print(row([way, *numbers, f"{least[way] / least['oocarrays']:.2f}"]))
    ratio, over_take = (least[way] / least["oocarrays"] for way in (best, take))
    print(f"\nspeed: {ratio:.2f} × the best strided copy ({best}), {over_take:.2f} × {take}", flush=True)
    return {"case": name, "seconds": least, "best": best, "of_best": ratio, "of_take": over_take}


if __name__ == "__main__":
    main()
