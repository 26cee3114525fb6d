"""A rechunked array to whose source days were appended: brought up to date, and rechunked again.

    python benchmarks/update.py --rounds 3
    python benchmarks/update.py --memory 512MiB --share 0.01 --scale 4

Maps of float32, (rows, 1024, 1024), one a chunk, 4 GiB of them, rechunked to (64, 256, 256) and to long series of
(512, 64, 64); then a share of the source's maps is appended. `update` says what it reads of the source, which is
metered; what it made is compared with the source element by element by `oocarrays.compare`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from statistics import median

import machine
import numpy as np
import rounds
from cases import MIB, parse_bytes
from report import row

MAPS, SIDE = 1024, 1024
TARGETS = {"blocks": (64, 256, 256), "series": (512, 64, 64)}
WAYS = ("update", "rechunk")


def main() -> None:
    """Run the benchmark as the command line asks."""
    if sys.argv[1:2] == ["child"]:
        print(json.dumps(child(**json.loads(sys.argv[2]))))
        return
    parser = rounds.parser(__doc__, cache=("warm",), timeout=600)
    parser.add_argument("--codecs", type=lambda text: text.split(","), default=["none", "zstd"])
    parser.add_argument("--share", type=float, default=0.01, help="how much is appended (default: 0.01)")
    parser.add_argument("--memory", type=parse_bytes, default=512 * MIB, help="(default: 512MiB)")
    options = parser.parse_args()
    facts, results = machine.facts(None), []
    with rounds.working_folder(options):
        print(facts, flush=True)
        for codec in options.codecs:
            for target in TARGETS:
                turns = [_round(codec, target, options) for _ in range(options.discard + options.rounds)]
                results.append({"codec": codec, "target": target, "rounds": turns[options.discard :]})
                print(_table(results[-1]), flush=True)
    rounds.save(options, {"machine": facts, "results": results})


def _append(place: str, maps: int, codec: str) -> None:
    """Make a source, or append to it, until it has so many maps."""
    import zarr
    from zarr.codecs import ZstdCodec

    if not os.path.exists(place):
        zarr.create_array(
            place, shape=(0, SIDE, SIDE), chunks=(1, SIDE, SIDE), dtype="f4",
            compressors=ZstdCodec(level=1) if codec == "zstd" else None,
        )  # fmt: skip
    array = zarr.open_array(place, mode="r+")
    field = np.random.default_rng(1).normal(280, 9, (SIDE, SIDE)).astype("f4").round(1)
    for first in range(array.shape[0], maps, 16):
        array.append(field + np.arange(first, min(first + 16, maps), dtype="f4")[:, None, None])


def child(way: str, source: str, target: str, chunks: list[int], memory: int) -> dict:
    """One way, once, in this process: what it took, and what it read."""
    import oocarrays as ooc
    from oocarrays.storage.meter import MemoryWatch

    with MemoryWatch() as watch:
        start = time.perf_counter()
        if way == "update":
            job = ooc.update(target, memory=memory)
            share = {"source": job.plan.source_share, "target": job.plan.target_share}
        else:
            job, share = ooc.rechunk(source, target, chunks=tuple(chunks), memory=memory), {}
        job.run()
    seconds = time.perf_counter() - start
    meter = job.meter
    equal = bool(ooc.compare(source, target, memory=memory))
    return {
        "seconds": seconds, "peak": watch.peak_bytes, "read": meter.read_bytes, "written": meter.written_bytes, **share,
        "verdict": "ok" if equal else "differs",
    }  # fmt: skip


def _round(codec: str, target: str, options) -> dict[str, dict]:
    """A source that has grown: its old target is brought up to date, and it is rechunked again."""
    maps = MAPS // options.scale
    source, made, again = (os.path.join(options.workdir, name) for name in ("source", "made", "again"))
    for place in (source, made, again):
        shutil.rmtree(place, ignore_errors=True)
    _append(source, maps, codec)
    asked = {"source": source, "chunks": TARGETS[target], "memory": options.memory}
    _run("rechunk", asked | {"target": made}, options)
    _append(source, maps + max(round(maps * options.share), 1), codec)
    os.sync()
    return {
        "update": _run("update", asked | {"target": made}, options),
        "rechunk": _run("rechunk", asked | {"target": again}, options),
    }


def _run(way: str, asked: dict, options) -> dict:
    machine.make_warm(asked["source"])
    time.sleep(options.pause)
    return rounds.answered(__file__, asked | {"way": way}, options.timeout)


def _table(result: dict) -> str:
    said = [f"{result['target']}, {result['codec']}"]
    for way in WAYS:
        runs = [turn[way] for turn in result["rounds"]]
        wrong = [each["verdict"] for each in runs if each["verdict"] != "ok"]
        good = [turn for turn in result["rounds"] if all(each["verdict"] == "ok" for each in turn.values())]
        ratio = median([turn[way]["seconds"] / turn["rechunk"]["seconds"] for turn in good] or [0.0])
        seconds = median([each.get("seconds", 0.0) for each in runs])
        read, written = (max(each.get(name, 0) for each in runs) // MIB for name in ("read", "written"))
        shares = [f"{100 * runs[0][name]:.1f} % of {name}" for name in ("source", "target") if name in runs[0]]
        peak = max(each.get("peak", 0) for each in runs) // MIB
        said.append(
            row([way, f"{seconds:.2f} s", f"{ratio:.3f}", f"{peak} MiB", f"{read} MiB read", f"{written} written"])
            + " "
            + ", ".join([*shares, *wrong[:1]])
        )
    return "\n".join(said)


if __name__ == "__main__":
    main()
