"""How long advice on a thousand blocks takes, and tracing a graph of a million tasks; how much recording slows a run.

    python benchmarks/advice/scale.py advice graph recording

`advice`: a thousand blocks that each write an array and read two that others have written; of one shape, and all of
unlike shapes. `graph`: Dask's array of 10⁶ chunks, of which each is read by a task, in a process of its own, whose
memory the kernel tells; by layers, and of tasks that are written out. `recording`: sections read by Zarr, with a
recording and without, in turn, in runs of about a second, beginning and ending included.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))

import dask
import dask.array as da
import machine
import numpy as np
import zarr

import oocarrays as ooc
from oocarrays.graphs.tracing.parts import asked
from oocarrays.graphs.tracing.seen import Seen

BLOCKS = 1000
TIMES = 16
"""How often all sections are read in a run of `recording`, which then takes about a second."""
WORDS = ("(block, *)", "(*, block)", "(block, block)", "(cyclic, *)")


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=list(WHAT), help=f"default: {' '.join(WHAT)}")
    parser.add_argument("--scale", type=int, default=1, metavar="N", help="divide blocks, tasks and runs by N")
    options = parser.parse_args()
    print(machine.facts(None), flush=True)
    for name in options.what:
        for line in WHAT[name](options.scale):
            print(line, flush=True)


# ---------------------------------------------------------------------- advice


def _advice(scale: int) -> Iterator[str]:
    _program(2, True).advise(memory="8GiB", scheduler="threads")  # what is imported then is not counted
    for label, unlike in (("of one shape", False), ("all of unlike shapes", True)):
        took = []
        for seed in range(3):
            trace = _program(BLOCKS // scale, unlike, seed)
            start, busy = time.perf_counter(), time.process_time()
            trace.advise(memory="8GiB", scheduler="threads")
            took.append((time.process_time() - busy, time.perf_counter() - start))
        busy, seconds = min(took)
        yield (
            f"advice on {BLOCKS // scale} blocks and arrays {label}: {seconds:.2f} s, of a processor {busy:.2f} s "
            f"(the fastest of three unlike programs; the slowest {max(took)[0]:.2f} s)"
        )


def _program(blocks: int, unlike: bool, seed: int = 0) -> ooc.Trace:
    """A trace of blocks that each write an array, and read two of the five before it."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(2000, 20000, (blocks, 2)) if unlike else np.full((blocks, 2), 8192)
    traces = []
    for i in range(blocks):
        trace = _block(ooc.Trace(), "writes", i, i, edges, rng)
        for other in set(rng.integers(max(i - 5, 0), i, 2).tolist()) if i else ():
            trace = _block(trace, "reads", i, other, edges, rng)
        traces.append(trace)
    every = [each for trace in traces for each in trace.datasets]
    return ooc.Trace.of(every, [each for trace in traces for each in trace.accesses])


def _block(
    trace: ooc.Trace, does: str, block: int, array: int, edges: np.ndarray, rng: np.random.Generator
) -> ooc.Trace:
    """Let a block read or write an array in some way."""
    down, across = map(int, edges[array])
    about = {"shape": (down, across), "dtype": "f4", "chunks": (max(down // 64, 1), across)}
    how = {"ranks": 16, "block": f"b{block}", "weight": 1 if does == "writes" else int(rng.integers(1, 9))}
    words = str(rng.choice(WORDS))
    found: ooc.Trace = getattr(trace, does)(f"a{array}.zarr", words, **how, **about)
    return found


# ---------------------------------------------------------------------- a graph of a million tasks


def _graph(scale: int) -> Iterator[str]:
    edge = int(1000 / scale**0.5)
    for label in ("by layers", "task by task"):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            seconds, above, tasks = pool.apply(_traced, (edge, label))
        yield f"a graph that reads {tasks} chunks, {label}: {seconds:.1f} s, {above:.0f} MiB above the graph"


def _traced(edge: int, how: str) -> tuple[float, float, int]:
    """Trace a graph of edge² chunks: seconds, MiB above what was there before, and tasks that read."""
    z = zarr.create_array({}, shape=(edge * 1000, edge * 1000), chunks=(1000, 1000), dtype="f4")
    x = da.from_zarr(z).T
    if how == "task by task":
        x = da.Array(dict(x.__dask_graph__()), x.name, x.chunks, meta=x._meta)
    ooc.trace(da.from_zarr(z)[:1000])
    before, start = _most(), time.perf_counter()
    (access,) = ooc.trace(x=x).accesses
    return time.perf_counter() - start, (_most() - before) / 2**10, access.tasks


def _most() -> float:
    """KiB that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ---------------------------------------------------------------------- recording


def _recording(scale: int) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        values = np.random.default_rng(0).normal(size=(2048, 2048)).astype("f4")
        z = zarr.create_array(f"{folder}/x.zarr", data=values, chunks=(256, 256))
        for label, lengths in (("chunks of 256 KiB", (256, 256)), ("maps of 2 MiB", (256, 2048))):
            plain, recorded = [], []
            for turn in range(max(20 // scale, 2)):
                for runs, record in ((plain, False), (recorded, True))[:: 1 if turn % 2 else -1]:
                    runs.append(_read(z, lengths, record, max(TIMES // scale, 1)))
            slower = [100 * (b / a - 1) for a, b in zip(plain, recorded, strict=True)]
            low, middle, high = np.percentile(slower, (25, 50, 75))
            yield (
                f"recording {label}: {middle:+.1f} % of the processor's seconds at the median of {len(plain)} pairs, "
                f"half of them {low:+.1f} to {high:+.1f} %; fastest {100 * (min(recorded) / min(plain) - 1):+.1f} % "
                f"({min(plain):.2f} s)"
            )
        section, seen, turns = np.s_[:256, 256:512], Seen(), 10_000
        seen.add(z, asked(z, "basic", section))
        start = time.process_time()
        for _ in range(turns):
            seen.add(z, asked(z, "basic", section), seconds=0.001, thread=1)
        yield f"a recorded read takes {1e6 * (time.process_time() - start) / turns:.1f} µs more of a processor"


def _read(z: zarr.Array, lengths: tuple[int, int], record: bool, times: int) -> float:
    """Processor's seconds in which all sections are read so often, and a sum made of each."""
    down, across = lengths
    sections = [np.s_[i : i + down, j : j + across] for i in range(0, 2048, down) for j in range(0, 2048, across)]
    tasks = [dask.delayed(_summed)(z, section) for section in sections * times]
    start = time.process_time()
    if record:
        with ooc.trace():
            dask.compute(tasks, scheduler="synchronous")
    else:
        dask.compute(tasks, scheduler="synchronous")
    return time.process_time() - start


def _summed(z: zarr.Array, section: tuple[slice, ...]) -> float:
    return float(z[section].sum())


WHAT = {"advice": _advice, "graph": _graph, "recording": _recording}

if __name__ == "__main__":
    main()
