"""How long does it take to plan a huge array, and how much memory?

    python benchmarks/planning.py                     every case, each in a process of its own
    python benchmarks/planning.py maps passes         some of them
    python benchmarks/planning.py --json FILE         for machines

A plan is arithmetic on counts: at most a second and 50 MiB, whatever the shape. Only metadata is written. Seconds are
of one processor, from the call to the plan as text; memory is what the process grew by.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

N = 10**15
MAPS = (262800, 721, 1440)
"""Thirty years of hourly maps."""
Shape = tuple[int, ...]
FORKED = multiprocessing.get_context("forkserver")
"""Where processes come from that have imported everything."""


def rechunks(shape: Shape, source: Shape, target: Shape, **codec: Any) -> Callable[[str], Any]:
    """Planning to rewrite an array."""

    def plan(folder: str) -> Any:
        import oocarrays as ooc

        path = array(folder, shape, source, **codec)
        job = ooc.rechunk(path, f"{folder}/target.zarr", chunks=target, memory="4GiB", scheduler="threads")
        return job.explain()

    return plan


def passes(
    shape: Shape, chunks: Shape, *, job: str = "map_slabs", memory: str = "16GiB", **options: Any
) -> Callable[[str], Any]:
    """Planning to pass an array through a window, once or again and again."""

    def plan(folder: str) -> Any:
        import oocarrays as ooc

        path = array(folder, shape, chunks)
        target = f"{folder}/target.zarr"
        return getattr(ooc, job)(abs, path, target, memory=memory, scheduler="threads", **options).explain()

    return plan


def counts(shape: Shape, layout: str, **options: Any) -> Callable[[str], Any]:
    """Counting the requests of ranks."""

    def plan(folder: str) -> Any:
        import oocarrays as ooc

        return repr(ooc.count_requests(shape, layout, **options))

    return plan


CASES = {
    "prime": rechunks((N,), (1000,), (999,)),
    "same": rechunks((2**31, 2**31), (2**12, 2**12), (2**12, 2**12)),
    "triple": rechunks((N,), (10**6,), (3 * 10**6,)),
    "longest": rechunks((2**63 - 1,), (2**20,), (2**20 - 1,)),
    "cube": rechunks((10**5,) * 3, (100,) * 3, (1, 1000, 1000)),
    "coded": rechunks((10**5,) * 3, (100,) * 3, (1, 1000, 1000), compressors="auto"),
    "rows": rechunks((10**6, 10**6), (1000, 1000), (1, 10**6)),
    "maps": rechunks(MAPS, (1, 721, 1440), (262800, 10, 10)),
    "axes": rechunks((2,) * 31, (1,) * 31, (2,) * 20 + (1,) * 11),
    "passes": passes(MAPS, (1, 721, 1440), height=1),
    "halos": passes(MAPS, (1, 721, 1440), depth=1),
    "sweeps": passes(
        (1000, 3 * 10**5, 3 * 10**5), (100, 1000, 1000), job="iterate", memory="64GiB", sweeps=40, depth=1
    ),
    "blocks": counts((N,), "(block)", ranks=4, chunk=(1000,)),
    "cyclic": counts((10**9,) * 3, "(cyclic(7), block, *)", ranks=64, chunk=(1000, 999, 998)),
}


def array(folder: str, shape: Shape, chunks: Shape, compressors: Any = None) -> str:
    """Return an array of which only the metadata is written."""
    import zarr

    path = f"{folder}/source.zarr"
    zarr.create_array(path, shape=shape, chunks=chunks, dtype="f4", compressors=compressors)
    return path


def measured(name: str, folder: str) -> dict[str, Any]:
    """Processor seconds and MiB of one case, in this process; what anybody imports before comes first."""
    import oocarrays as ooc

    small = rechunks((4, 4), (1, 4), (4, 1))
    os.mkdir(f"{folder}/small")
    small(f"{folder}/small")
    ooc.count_requests((4, 4), "(block, *)", ranks=2)
    before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    CASES[name](folder)
    seconds = time.process_time() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"case": name, "seconds": round(seconds, 3), "mib": round(grown / 1024, 1)}


def in_a_child(name: str) -> dict[str, Any]:
    """Return the same in a process of its own, which the system stops where it takes far more than it should."""
    FORKED.set_forkserver_preload(["dask.array", "oocarrays"])
    ours, theirs = FORKED.Pipe(duplex=False)
    with tempfile.TemporaryDirectory() as folder:
        process = FORKED.Process(target=tell, args=(theirs, name, folder))
        process.start()
        theirs.close()
        try:
            told: dict[str, Any] = ours.recv()
        except EOFError:
            told = {}
        process.join()
    return told or {"case": name, "failed": f"stopped by signal {-(process.exitcode or 0)}"}


def tell(to: Connection, name: str, folder: str) -> None:
    """Measure a case within limits, and send what was found, or what went wrong, to another process."""
    limit()
    try:
        to.send(measured(name, folder))
    except Exception as error:  # noqa: BLE001  (it stands in the case's row)
        to.send({"case": name, "failed": f"{type(error).__name__}: {error}".splitlines()[0]})


def limit() -> None:
    """Ten processor seconds, and 4 GiB of addresses."""
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
    resource.setrlimit(resource.RLIMIT_AS, (2**32, 2**32))


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"some of {', '.join(CASES)}")
    parser.add_argument("--json", type=Path, help="write the results there")
    options = parser.parse_args()
    if unknown := set(options.cases) - set(CASES):
        parser.error(f"{', '.join(sorted(unknown))}: there are {', '.join(CASES)}")
    results = []
    for name in options.cases or CASES:
        results.append(in_a_child(name))
        told = results[-1]
        print(f"{name:>8}  " + (told.get("failed") or f"{told['seconds']:6.3f} s  {told['mib']:6.1f} MiB"), flush=True)
    if options.json:
        options.json.write_text(json.dumps({"results": results}, indent=1))


if __name__ == "__main__":
    main()
