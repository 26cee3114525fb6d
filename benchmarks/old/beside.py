"""This checkout beside another: one benchmark of each, in turn, each with the Python of its own environment.

    python benchmarks/beside.py --other ../older rechunk.py 1g 1g-zstd --peers oocarrays --rounds 1 --workdir /tmp/b
    python benchmarks/beside.py --other ../older --turns 3 exchange.py --peers rex --rounds 1

Whatever stands behind the script's name goes to the script, which must know `--json`. Each checkout runs its own copy
of it, and begins every other turn. What both tell of the same thing is set side by side: medians of all turns, and the
ratio of this checkout's to the other's, below 1 where this one is faster; in brackets the least and the most of the
ratios within one turn. With `--workdir` both read the same sources.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Any

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TIMES = ("seconds", "wall", "cpu", "busy")
"""What scripts call a time that was measured in their JSON; the last is that of processors, or their share of it."""
NAMES = ("name", "operation", "what", "stored", "section", "store", "file", "cache", "times", "dtype", "kind", "codec")
"""What they call that of which it is."""
ASIDE = ("told", "workers", "predicted", "metered", "machine", "case")
"""Where times are not those of a run."""


def times(found: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, float]]:
    """Yield each time in what a script wrote, and of what it is; runs of one thing have one name.

    >>> list(times({"results": [{"case": {"name": "1g"}, "rounds": [{"ours": {"seconds": 1.5}}]}]}))
    [('1g, ours, seconds', 1.5)]
    """
    if isinstance(found, list):
        for each in found:
            yield from times(each, names)
    elif isinstance(found, dict):
        about = {**found["case"], **found} if isinstance(found.get("case"), dict) else found
        names += tuple(str(about[name]) for name in NAMES if isinstance(about.get(name), str | int))
        for key, value in found.items():
            if key in TIMES and isinstance(value, float):
                yield ", ".join(dict.fromkeys((*names, key))), value
            elif key not in ASIDE and key not in NAMES:
                plain = key in ("results", "rounds", "runs", "found")
                yield from times(value, names if plain else (*names, key))


def run(checkout: str, python: str, script: list[str], folder: str) -> dict[str, float]:
    """Run one checkout's copy of a script: its medians."""
    out = os.path.join(folder, "out.json")
    command = [python, os.path.join(checkout, "benchmarks", script[0]), *script[1:], "--json", out]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    found = defaultdict(list)
    with open(out) as file:
        for name, value in times(json.load(file)):
            found[name].append(value)
    return {name: median(values) for name, values in found.items()}


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", required=True, metavar="CHECKOUT", help="with an environment in its .venv")
    parser.add_argument("--python", help="the other's Python (default: CHECKOUT/.venv/bin/python)")
    parser.add_argument("--turns", type=int, default=5, help="of each (default: %(default)s)")
    parser.add_argument("--out", metavar="JSON", help="where to keep what was measured")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="name and options of a script of benchmarks/")
    options = parser.parse_args()
    other = os.path.abspath(options.other)
    theirs = options.python or os.path.join(other, ".venv", "bin", "python")
    sides = {"this": (HERE, sys.executable), "other": (other, theirs)}
    turns = []
    with tempfile.TemporaryDirectory(prefix="beside-") as folder:
        for number in range(options.turns):
            order = list(sides) if number % 2 else list(sides)[::-1]
            turns.append({side: run(*sides[side], options.script, folder) for side in order})
            print(table(turns), "\n", flush=True)
            if options.out:
                with open(options.out, "w") as file:
                    json.dump({"script": options.script, "turns": turns}, file, indent=1)


def table(turns: list[dict[str, dict[str, float]]]) -> str:
    """Return the medians of each thing that both have measured, and their ratio."""
    rows = [f"| after {len(turns)} | this | other | this/other |", "|---|---|---|---|"]
    for name in turns[0]["this"]:
        pairs = [(turn["this"][name], turn["other"][name]) for turn in turns if name in turn["other"]]
        if pairs:
            ours, theirs = (median(each) for each in zip(*pairs, strict=True))
            ratios = [mine / other for mine, other in pairs if other]
            spread = f"({min(ratios):.2f}–{max(ratios):.2f})" if ratios else ""
            rows.append(f"| {name} | {ours:.4g} | {theirs:.4g} | {ours / theirs:.3f} {spread} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
