"""Sum a lazy array of column blocks over row slabs, with `da.from_zarr(chunks=…)` beside it, each in a fresh process.

    python benchmarks/lazy.py --rounds 3
    python benchmarks/lazy.py --codec zstd --memory 256MiB --scale 4 --cache warm

4 GiB of float32 in slabs of 256 rows; blocks are 1024 columns; dask's threads, in 1 GiB. `peak` is what the process
holds above its level before, `read` the stored bytes that ours counts, `scratch` what it wrote there and read again.
Each sum is compared with the one of the data.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from statistics import median

import machine
import numpy as np
import rounds
from cases import MIB, parse_bytes
from data import values
from report import row

EDGE, SLAB, WIDTH = 32768, 256, 1024
WAYS = ("oocarrays", "dask")


def main() -> None:
    """Run the benchmark as the command line asks."""
    if sys.argv[1:2] == ["child"]:
        child(**json.loads(sys.argv[2]))
        return
    parser = rounds.parser(__doc__, cache=("cold", "warm"), timeout=900)
    parser.add_argument("--codec", type=lambda text: text.split(","), default=["none", "zstd"])
    parser.add_argument("--memory", type=parse_bytes, default=1024 * MIB, help="for ours (default: 1GiB)")
    options = parser.parse_args()
    facts, found = machine.facts(None), []
    with rounds.working_folder(options):
        print(facts, flush=True)
        for codec in options.codec:
            store = os.path.join(options.workdir, f"{codec}-{options.scale}.zarr")
            wanted = made(store, EDGE // options.scale, codec)
            for cache in options.cache:
                runs = [_round(store, wanted, cache, turn, options) for turn in range(options.discard + options.rounds)]
                found.append({"codec": codec, "cache": cache, "rounds": runs[options.discard :]})
                print(_table(found[-1]), flush=True)
    rounds.save(options, {"machine": facts, "results": found})


def made(store: str, edge: int, codec: str) -> float:
    """Make the array where there is none; the sum of its elements."""
    import zarr

    note = f"{store}.sum"
    if os.path.exists(note):
        with open(note) as file:
            return float(file.read())
    codecs = None if codec == "none" else zarr.codecs.ZstdCodec()
    array = zarr.create_array(store, shape=(edge, edge), chunks=(SLAB, edge), dtype="f4", compressors=codecs)
    total = 0.0
    for start in range(0, edge, SLAB):
        slab = values((slice(start, min(start + SLAB, edge)), slice(0, edge)))
        array[start : start + SLAB] = slab
        total += float(slab.sum(dtype="f8"))
    with open(note, "w") as file:
        file.write(repr(total))
    return total


def child(store: str, way: str, memory: int, width: int) -> None:
    """One run in this process: prints what it took as JSON."""
    import dask.array as da

    import oocarrays as ooc
    from oocarrays.storage.meter import MemoryWatch

    da.ones((64, 64), chunks=8).sum().compute(scheduler="threads")
    array = ooc.open_array(store)
    start, busy = time.perf_counter(), time.process_time()
    with MemoryWatch() as watch:
        blocks = (array.shape[0], width)
        x = array.to_dask(blocks, memory=memory) if way == "oocarrays" else da.from_zarr(store, chunks=blocks)
        total = float(x.sum(dtype="f8").compute(scheduler="threads"))
    told = {"seconds": time.perf_counter() - start, "cpu": time.process_time() - busy, "sum": total}
    told["peak"] = watch.peak_bytes
    if way == "oocarrays":
        plan, meter = x.plan, x.meter
        told |= {"method": plan.method, "planned": plan.peak_bytes, "read": meter.read_bytes}
        told |= {"scratch": meter.written_bytes, "requests": [meter.read_requests, plan.read_requests]}
    print(json.dumps(told))


def _round(store: str, wanted: float, cache: str, turn: int, options) -> dict[str, dict]:
    """Both ways, each time another one first."""
    found = {}
    for way in WAYS[turn % 2 :] + WAYS[: turn % 2]:
        machine.make_cold(store) if cache == "cold" else machine.make_warm(store)
        time.sleep(options.pause)
        asked = {"store": store, "way": way, "memory": options.memory, "width": max(WIDTH // options.scale, 1)}
        command = [sys.executable, __file__, "child", json.dumps(asked)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.timeout)
        if done.returncode:
            raise SystemExit(done.stderr)
        found[way] = json.loads(done.stdout)
        found[way]["verdict"] = "ok" if abs(found[way]["sum"] - wanted) <= 1e-6 * abs(wanted) + 1e-3 else "wrong"
        found[way]["stored"] = sum(os.path.getsize(os.path.join(f, n)) for f, _, names in os.walk(store) for n in names)
    return found


def _table(result: dict) -> str:
    lines = [f"\n**{result['codec']}, {result['cache']}**\n", row(["way", "s", "cpu s", "peak MiB", "read", "scratch"])]
    lines.append(row(["---", *["---:"] * 5]))
    for way in WAYS:
        runs = [each[way] for each in result["rounds"]]
        middle = {name: median(run[name] for run in runs) for name in ("seconds", "cpu", "peak")}
        last = runs[-1]
        read = f"{last['read'] / last['stored']:.2f} × stored ({last['method']})" if "read" in last else ""
        scratch = f"{last['scratch'] / MIB:.0f} MiB" if "scratch" in last else ""
        cells = [f"{middle['seconds']:.2f}", f"{middle['cpu']:.2f}", f"{middle['peak'] / MIB:.0f}", read, scratch]
        lines.append(row([way, *cells]))
    ratios = [each["dask"]["seconds"] / each["oocarrays"]["seconds"] for each in result["rounds"]]
    lines.append(f"\n{median(ratios):.1f} × faster ({np.min(ratios):.1f} to {np.max(ratios):.1f})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
