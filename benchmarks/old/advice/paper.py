"""Figures 6 to 9 of Memik, Kandemir and Choudhary 2000 drawn again: naive, indiscriminate and selective collective I/O.

    python benchmarks/advice/paper.py --draw figures.png --json out.json

Eight code blocks read what one of them has made, in eight setups (`programs.py`). *Naive*: the array lies in rows, as
it is made, and each rank reads for itself. *Indiscriminate*: the same, and every read is collective. *Selective*: the
array lies as the weighted communication graph says, and a read is collective only where it does not conform.

Ranks are on four workers of a local cluster, whatever their number, each with a thread of its own. Every different
read of a figure (a block, how the array lies, and the method) is run in turn with the others, from the call to the last
rank's result, and the medians of the rounds are added up with the weights of the setup: so all setups and versions are
made of the same measurements. Results are checked. What the model says of more ranks, each on a worker of its own, is
drawn beside, and marked so.

``--storage nodes`` puts the arrays where a read takes as long as on the paper's machine: on eight I/O nodes with a disk
each, which all workers share (`NODES`). Requests, messages and Dask are real; what messages would take more on its
network (`NETWORK`) is added to the seconds that are measured: the bytes of the rank that sends or receives most. Who
plans is told of both, as `oocarrays calibrate` would. Arrays are small there (``--edge``), for such disks give 33 MB a
second together. Of each read is told what disks and network take of it, and what a slower network would make of all.

What Figure 3 leaves open is varied: a thousand setups of random weights and patterns are made of the same measurements.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parents[1]))

import dask
import machine
import numpy as np
import rounds
import zarr
from collective_peers import workers
from data import values
from distributed import Client
from peers.s3_stores import open_store
from programs import BLOCKS, LAYOUTS, SETUPS, Setup, chunks_for
from s3 import BUCKET, served

import oocarrays as ooc
from oocarrays.graphs import settings
from oocarrays.mapping.grid import ChunkGrid, Stored
from oocarrays.plan.advice.paper import select
from oocarrays.plan.advice.price import Use, prices
from oocarrays.plan.advice.trace import patterns_of
from oocarrays.plan.advice.uses import footprint
from oocarrays.plan.memory import Resources

WORKERS = 4
CORES = settings.local_cores()
MADE_IN = "row"
"""How every producer makes its array, where nobody tells it otherwise."""
NODES = {"disks": 8, "service": 0.0168, "rate": 4.2e6}
"""I/O nodes of the paper's machine (4.1: 8 of 128 processors), seconds a request and bytes a second of each. The paper
prints no times: these are the line through what Wang and Leiss measured of a file server and its disk on another
machine of that time, 17.3 ms for 4 KB, 19.5 for 8 KB and 20.5 for 16 KB."""
NETWORK = 12.5e6
"""Bytes a second that each rank sends and receives there: the slowest of the paper's three networks, 100 Mb/s (4.1)."""
EDGES = {"here": 16384, "nodes": 2048}
"""Rows and columns of an array, by storage."""
VERSIONS = ("naive", "indiscriminate", "selective")
METHODS = {"independent": "independent", "collective": "two-phase"}
FIGURES = {
    6: {"ranks": 8, "size": 1},
    7: {"ranks": 4, "size": 1},
    8: {"ranks": 16, "size": 1},
    9: {"ranks": 8, "size": 2},
}
PRINTED = {6: (18.01, 78.84), 7: (16.42, 40.23), 8: (26.27, 80.74), 9: (13.57, 75.21)}
"""Percent that selective is faster than indiscriminate, and than naive, in the paper's figures."""
Read = tuple[str, str, str, str]
"""A block, its access pattern, how the array lies, and the method."""
Seconds = Mapping[Read, float]
SLOWER = (1, 2, 4, 8)
"""Times as slow as it is that a network is looked at."""


class Took(NamedTuple):
    """Seconds that a read took."""

    all: float
    """From the call to the last result, and what the network adds."""
    disks: float
    """Of the busiest disk."""
    network: float
    """What the network adds."""


Runs = Mapping[Read, list[Took]]


def main() -> None:
    """Run the benchmark as the command line asks."""
    options = _parser().parse_args()
    print(machine.facts(None), flush=True)
    options.edge = options.edge or EDGES[options.storage]
    with ExitStack() as stack:
        stack.enter_context(rounds.working_folder(options))
        options.server = stack.enter_context(served(options.workdir, False)) if options.storage == "nodes" else None
        stack.enter_context(dask.config.set(_known(options)))
        found = {}
        for number in options.figures:
            with workers(WORKERS, max(FIGURES[number]["ranks"] // WORKERS, 1)) as client:
                each = _figure(client, number, options)
            found[number] = _medians(each)
            print("", *_table(number, found[number]), sep="\n", flush=True)
            print(*_rounds(each, number, options), sep="\n", flush=True)
            print(*_networks(each), sep="\n", flush=True)
            print(_without_rows(found[number]), *_sensitivity(found[number], options.setups), sep="\n", flush=True)
    beyond = _beyond(options)
    print("", *_beyond_table(beyond), sep="\n", flush=True)
    if options.draw:
        _draw(found, beyond, options.draw)
    told = {str(number): {" ".join(read): value for read, value in each.items()} for number, each in found.items()}
    summary = {str(number): _averages(each) for number, each in found.items()}
    model = {str(ranks): each for ranks, each in beyond.items()}
    rounds.save(options, {"results": [{"seconds": told, "averages": summary, "model": model}]})


def _parser() -> argparse.ArgumentParser:
    parser = rounds.parser(__doc__ or "", cache=("warm",), timeout=300)
    parser.add_argument("--by-pattern", action="store_true", help="run one block for each pattern")
    parser.add_argument("--edge", type=int, help=f"rows and columns of an array (default: {EDGES})")
    parser.add_argument("--storage", choices=tuple(EDGES), default="here", help="(default: %(default)s)")
    parser.add_argument(
        "--figures", type=lambda text: [int(n) for n in text.split(",")], default=list(FIGURES), help="default: 6,7,8,9"
    )
    parser.add_argument(
        "--clock", choices=("wall", "processor"), default="wall",
        help="on a machine that others use: seconds of processors over the number of them (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--setups", type=int, default=1000, help="random setups of the sensitivity run")
    parser.add_argument("--draw", metavar="FILE", help="draw the figures")
    return parser


# ---------------------------------------------------------------------- reads


def reads_of(setup: Setup, version: str) -> Iterator[tuple[Read, int]]:
    """Every read of a setup in one version, and how often it is done."""
    for chosen in select(setup.graph()):
        stored = str(chosen.storage.pattern) if version == "selective" and chosen.storage else MADE_IN
        for block, weight in chosen.subgraph.consumers:
            pattern = setup.pattern(block)
            strategy = {"naive": "independent", "indiscriminate": "collective"}.get(version)
            yield (block, pattern, stored, METHODS[strategy or chosen.strategies[block]]), int(weight)


def _all_reads() -> list[Read]:
    """Every different read that some setup has, and those that the sensitivity run has besides."""
    every = (reads_of(setup, version) for setup in SETUPS.values() for version in VERSIONS)
    found = dict.fromkeys(read for reads in every for read, _ in reads)
    for pattern, block in _readers().items():
        for stored in LAYOUTS:
            way = METHODS["independent" if pattern == stored else "collective"]
            ways = METHODS.values() if stored == MADE_IN else (way,)
            found |= dict.fromkeys((block, pattern, stored, method) for method in ways)
    return list(found)


def _readers() -> dict[str, str]:
    """A block for each pattern."""
    return {each.pattern(name): name for name, each in reversed(BLOCKS.items())}


def _known(options: argparse.Namespace) -> dict[str, Any]:
    """Return the settings by which who plans knows of disks and network."""
    if options.storage == "here":
        return {}
    exchange = settings.costs().exchange
    wire = {name: value + 1 / NETWORK for name, value in exchange.items() if name not in ("startup", "task")}
    return {
        "oocarrays.requests": NODES["disks"],
        "oocarrays.cost.remote_request_seconds": NODES["service"],
        "oocarrays.cost.remote_bandwidth": NODES["disks"] * NODES["rate"],
        "oocarrays.cost.exchange": exchange | wire,
    }


def _medians(each: Runs) -> dict[Read, float]:
    return {read: statistics.median(took.all for took in runs) for read, runs in each.items()}


def _figure(client: Client, number: int, options: argparse.Namespace) -> dict[Read, list[Took]]:
    """Seconds of every different read, in the numbers of a figure: one of each round."""
    ranks, size = FIGURES[number]["ranks"], FIGURES[number]["size"]
    shape = options.edge // options.scale * size, options.edge // options.scale
    places = {stored: _made(shape, stored, options) for stored in LAYOUTS}
    expected: dict[tuple[str, str], list[float]] = {}
    measured = {read: _alike(read) if options.by_pattern else read for read in _all_reads()}
    runs: dict[Read, list[Took]] = {read: [] for read in measured.values()}
    for turn in range(options.rounds + options.discard):
        for read in runs:
            took, results = _run(client, read, places[read[2]], ranks, options)
            known = expected.setdefault(read[:2], results)
            if not np.allclose(known, results):
                raise SystemExit(f"{read}: {results} is not {known}")
            if turn >= options.discard:
                runs[read].append(took)
    return {read: runs[alike] for read, alike in measured.items()}


def _alike(read: Read) -> Read:
    """Return the same read of the block that stands for all of its pattern."""
    return _readers()[read[1]], *read[1:]


def _made(shape: tuple[int, int], stored: str, options: argparse.Namespace) -> str:
    """An array that lies in some pattern; its values are known."""
    name, server = f"{stored}-{shape[0]}x{shape[1]}.zarr", options.server
    place = f"s3://{BUCKET}/{name}" if server else os.path.join(options.workdir, name)
    if server or not os.path.exists(place):
        chunks, store, how = _chunks(stored, shape), place, {}
        if server:
            server.tell(0.0, disks=0)
            store, how = open_store(place), {"compressors": None, "overwrite": True}
        z = zarr.create_array(store, shape=shape, chunks=chunks, dtype="f4", **how)
        step = -(-max(shape[0] // 8, 1) // chunks[0]) * chunks[0]
        for low in range(0, shape[0], step):
            part = slice(low, min(low + step, shape[0])), slice(0, shape[1])
            z[part] = values(part)
        if server:
            server.tell(0.0, **NODES)
    return place


def _chunks(stored: str, shape: tuple[int, int]) -> tuple[int, int]:
    down, across = chunks_for(stored, 64)
    return max(down * shape[0] // 64, 1), max(across * shape[1] // 64, 1)


def _run(client: Client, read: Read, place: str, ranks: int, options: argparse.Namespace) -> tuple[Took, list[float]]:
    """One run of a block: seconds from the call to the last result, and what every rank found."""
    block, pattern, _, method = read
    if options.server:
        options.server.counts()
    start = _now(client, options.clock)
    # persisted: the optimiser of a delayed call would put the whole read in the task of each rank
    parts = ooc.read_sections(place, LAYOUTS[pattern], ranks=ranks, method=method, scheduler=client).persist()
    results = [dask.delayed(BLOCKS[block].compute)(parts.local(rank)) for rank in range(ranks)]
    found = list(dask.compute(*results, scheduler=client))
    seconds = _now(client, options.clock) - start
    if not options.server:
        return Took(seconds, 0.0, 0.0), found
    sent = parts.plan.between.sum(axis=0) * parts.plan.stored.itemsize
    network = float(max(sent.sum(axis=0).max(), sent.sum(axis=1).max())) / NETWORK
    return Took(seconds + network, options.server.counts()["busiest"], network), found


def _now(client: Client, clock: str) -> float:
    """Seconds by the clock, or of processors: of all workers and of this process, where the scheduler is too."""
    if clock == "wall":
        return time.perf_counter()
    return (time.process_time() + sum(client.run(time.process_time).values())) / CORES


# ---------------------------------------------------------------------- setups of reads


def total(setup: Setup, version: str, seconds: Seconds) -> float:
    """Seconds of a setup, of what was measured of its reads."""
    return sum(weight * seconds[read] for read, weight in reads_of(setup, version))


def _gains(times: Mapping[str, float]) -> tuple[float, float]:
    """Percent that selective is faster than indiscriminate, and than naive."""
    return tuple(100 * (1 - times["selective"] / times[other]) for other in ("indiscriminate", "naive"))  # type: ignore[return-value]


def _averages(seconds: Seconds) -> dict[str, float]:
    each = [_gains({v: total(setup, v, seconds) for v in VERSIONS}) for setup in SETUPS.values()]
    return {"indiscriminate": statistics.mean(a for a, _ in each), "naive": statistics.mean(b for _, b in each)}


def _table(number: int, seconds: Seconds) -> Iterator[str]:
    figure = FIGURES[number]
    yield f"Figure {number}: {figure['ranks']} ranks on {WORKERS} workers, {figure['size']} times the data"
    yield f"{'setup':>5}  " + "  ".join(f"{version:>14}" for version in VERSIONS) + "    faster by"
    for name, setup in SETUPS.items():
        times = {version: total(setup, version, seconds) for version in VERSIONS}
        gains = _gains(times)
        cells = "  ".join(f"{times[version]:12.2f} s" for version in VERSIONS)
        yield f"{name:>5}  {cells}    {gains[0]:5.1f} %  {gains[1]:5.1f} %"
    found, printed = _averages(seconds), PRINTED[number]
    yield (
        f"average: selective is {found['indiscriminate']:.1f} % faster than indiscriminate (printed {printed[0]}), "
        f"{found['naive']:.1f} % than naive (printed {printed[1]})"
    )


def _rounds(each: Runs, number: int, options: argparse.Namespace) -> Iterator[str]:
    """What each round says for itself, each way of reading with its quartiles, and what the model says of both."""
    turns = [_averages({read: runs[turn].all for read, runs in each.items()}) for turn in range(options.rounds)]
    for other in turns[0]:
        yield f"than {other}, by rounds: " + ", ".join(f"{found[other]:.1f}" for found in turns) + " %"
    model, ways = _model(number, options), {read[1:]: (read, runs) for read, runs in each.items()}
    for (pattern, stored, method), (read, runs) in sorted(ways.items()):
        low, middle, high = np.percentile([took.all for took in runs], (25, 50, 75))
        disks, network = (statistics.median(column) for column in list(zip(*runs, strict=True))[1:])
        said = f"{pattern:>7} of {stored:<7} {method:<12} {middle:.2f} s, half of the runs {low:.2f} to {high:.2f}"
        rest = middle - disks - network
        yield f"{said}: disks {disks:.2f}, network {network:.2f}, the rest {rest:.2f}; the model {model[read]:.2f}"
    found = _averages(model)
    yield f"the model: {found['indiscriminate']:.1f} % than indiscriminate, {found['naive']:.1f} % than naive"


def _networks(each: Runs) -> Iterator[str]:
    """What a network would make of it that is so many times as slow."""
    for times in SLOWER:
        seconds = {
            read: statistics.median(took.all + (times - 1) * took.network for took in runs)
            for read, runs in each.items()
        }
        found = _averages(seconds)
        yield (
            f"{NETWORK / times / 1e6:.1f} MB/s a rank: {found['indiscriminate']:.1f} % than indiscriminate, "
            f"{found['naive']:.1f} % than naive"
        )


def _without_rows(seconds: Seconds) -> str:
    """What the setups come to if those who read rows read blocks: these exchange in both ways of storing the array."""
    alike, gains = {read[1:]: took for read, took in seconds.items()}, []
    for setup in SETUPS.values():
        consumers = [consumer for _, consumer in setup.edges]
        patterns = {name: setup.pattern(name).replace("row", "block") for name in consumers}
        other = replace(setup, patterns=patterns)
        times = {v: sum(n * alike[read[1:]] for read, n in reads_of(other, v)) for v in VERSIONS}
        gains.append(_gains(times))
    than = [statistics.mean(column) for column in zip(*gains, strict=True)]
    return f"had readers of rows read blocks: {than[0]:.1f} % than indiscriminate, {than[1]:.1f} % than naive"


def _sensitivity(seconds: Seconds, setups: int) -> Iterator[str]:
    """Random setups of four blocks, weights 1 to 6 and any patterns, of the same measurements."""
    rng, gains = np.random.default_rng(2000), []
    reader = _readers()
    for _ in range(setups):
        patterns = {f"b{i}": str(rng.choice(list(LAYOUTS))) for i in range(4)}
        weights = {name: int(rng.integers(1, 7)) for name in patterns}
        times = dict.fromkeys(VERSIONS, 0.0)
        sums = {p: sum(weights[name] for name in patterns if patterns[name] == p) for p in LAYOUTS}
        stored = max(sums, key=sums.__getitem__)
        for name, pattern in patterns.items():
            block = reader[pattern]
            way = METHODS["independent" if pattern == stored else "collective"]
            for version, at, method in (
                ("naive", MADE_IN, "independent"), ("indiscriminate", MADE_IN, "two-phase"), ("selective", stored, way)
            ):  # fmt: skip
                times[version] += weights[name] * seconds[block, pattern, at, method]
        gains.append(_gains(times))
    for which, other in enumerate(("indiscriminate", "naive")):
        tenth, middle, last = np.percentile([gain[which] for gain in gains], (10, 50, 90))
        yield f"{setups} random setups: than {other} {middle:.1f} % at the median, {tenth:.1f} to {last:.1f} for 80 %"


# ---------------------------------------------------------------------- the model beyond


def _beyond(options: argparse.Namespace) -> dict[int, dict[str, float]]:
    """What the cost model says of more ranks, each on a worker of its own with a processor, and the same storage."""
    edge, found = max(options.edge // options.scale, 64), {}
    for ranks in (4, 8, 16, 32, 64, 128):
        resources = Resources(costs=settings.costs(workers=ranks), workers=ranks, threads=1, **_at_once(options))
        reads = _all_reads()
        found[ranks] = _averages({r: _predicted(r, (edge, edge), ranks, resources, options.storage) for r in reads})
    return found


def _at_once(options: argparse.Namespace) -> dict[str, int]:
    """Requests under way at one time, which are as many as there are nodes."""
    return {"requests": int(NODES["disks"])} if options.storage == "nodes" else {}


def _model(number: int, options: argparse.Namespace) -> dict[Read, float]:
    """Seconds that the cost model says of every read of a figure, on the workers and in the storage that there are."""
    figure, costs = FIGURES[number], settings.costs(workers=WORKERS)
    shape = options.edge // options.scale * figure["size"], options.edge // options.scale
    threads = max(figure["ranks"] // WORKERS, 1)
    resources = Resources(costs=costs, workers=WORKERS, threads=threads, **_at_once(options))
    return {read: _predicted(read, shape, figure["ranks"], resources, options.storage) for read in _all_reads()}


def _predicted(read: Read, shape: tuple[int, int], ranks: int, resources: Resources, storage: str) -> float:
    _, pattern, stored, method = read
    patterns, _ = patterns_of(LAYOUTS[pattern], shape, ranks)
    use = Use(footprints=tuple(footprint(each, shape) for each in patterns), ranks=ranks)
    place = {"local": False, "remote": True} if storage == "nodes" else {"local": True, "codec": "zstd"}
    array = Stored(grid=ChunkGrid.of(shape, _chunks(stored, shape)), itemsize=4, **place)
    row = 0 if method == "independent" else 1
    return float(prices(use, array, np.array([array.grid.chunks]), resources).seconds[row, 0])


def _beyond_table(beyond: Mapping[int, Mapping[str, float]]) -> Iterator[str]:
    yield "the model, a worker and a processor for each rank: selective is faster than"
    for ranks, found in beyond.items():
        yield f"{ranks:>5} ranks  indiscriminate by {found['indiscriminate']:5.1f} %, naive by {found['naive']:5.1f} %"


# ---------------------------------------------------------------------- figures


def _draw(found: Mapping[int, Seconds], beyond: Mapping[int, Mapping[str, float]], file: str) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * (len(found) + 1), 3.8), layout="constrained")
    panels = figure.subplots(1, len(found) + 1)
    for axes, (number, seconds) in zip(panels, found.items(), strict=False):
        for place, (version, color) in enumerate(zip(VERSIONS, ("#999999", "#56B4E9", "#D55E00"), strict=True)):
            heights = [total(setup, version, seconds) for setup in SETUPS.values()]
            axes.bar(np.arange(1, 9) + (place - 1) * 0.27, heights, 0.27, color=color, label=version)
        gains, printed = _averages(seconds), PRINTED[number]
        facts = FIGURES[number]
        axes.set_title(
            f"Figure {number}: {facts['ranks']} ranks, data × {facts['size']}\n"
            f"{gains['indiscriminate']:.1f} % and {gains['naive']:.1f} % faster (printed {printed[0]}, {printed[1]})",
            fontsize=9,
        )
        axes.set(xlabel="setup", ylabel=f"seconds, measured on {WORKERS} workers")
    panels[0].legend(fontsize=8)
    for other, color in (("indiscriminate", "#56B4E9"), ("naive", "#999999")):
        gained = [each[other] for each in beyond.values()]
        panels[-1].plot(list(beyond), gained, "o--", color=color, label=f"than {other}")
    panels[-1].set(xscale="log", xlabel="ranks", ylabel="percent faster", title="model, not measured: a worker a rank")
    panels[-1].set_xticks(list(beyond), [str(n) for n in beyond])
    panels[-1].legend(fontsize=8)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    main()
