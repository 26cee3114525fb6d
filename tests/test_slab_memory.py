"""Memory of a pass over slabs, in processes of its own: within its plan, and not far below."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.long

PROGRAM = """
import json, os, pathlib, sys
import numpy as np, zarr
import oocarrays as ooc
from oocarrays.errors import BudgetError
import dask.config, dask.threaded
import tests.preloaded
from tests.seams import MemoryWatch

KERNELS = {
    "new": lambda x, *more: x + 1,
    "in place": lambda x, *more: np.add(x, 1, out=x),
    "view": lambda x, *more: x,
    "three": lambda x, *more: x + (x + (x + 1)),
    "two": lambda x, y: (x + y, x - y),
    "most": lambda x: x.max(0),
    "pair": lambda x: np.stack([x, x + 1]),
    "half": lambda x: x[::2] + x[1::2],
    "waves": lambda x: np.abs(np.fft.rfft(x, axis=0)),
}
SWEEPS = {
    "swept": lambda x: x / 2 + 1,
    "swept, and one beside": lambda x, y: x / 2 + y,
    "swept together": lambda x, y: (x / 2 + y, y / 3 - x),
    "moved on": lambda x, y: (x / 2 + y, x),
}

TWO = {"two", *SWEEPS} - {"swept"}

def measure(folder, kernel, storing, options):
    sources = [f"{folder}/{storing}-{n}.zarr" for n in range(1 if kernel not in TWO else 2)]
    targets = [f"{folder}/t{os.getpid()}-{n}.zarr" for n in range(len(sources) - ("beside" in kernel))]
    budget = options.pop("memory", None)
    dask.config.set({"oocarrays.past-cache-above": options.pop("above", "1GiB")})
    for path in pathlib.Path(sources[0]).rglob("c/*/*"):
        os.posix_fadvise(file := os.open(path, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
    def planned(memory):
        if kernel == "pyramid":
            return ooc.pyramid(sources[0], targets[0], memory=memory, scheduler="threads", **options)
        if kernel in SWEEPS:
            return ooc.iterate(SWEEPS[kernel], sources, targets, memory=memory, scheduler="threads", **options)
        return ooc.map_slabs(KERNELS[kernel], sources, targets, memory=memory, scheduler="threads", **options)
    if budget is None:
        try:
            planned(1)
        except BudgetError as error:
            budget = error.least
    job = planned(budget)
    small = zarr.create_array({}, data=np.ones(8), chunks=(4,))
    ooc.map_slabs(np.negative, small, zarr.storage.MemoryStore(), memory="16MiB", scheduler="threads").run()
    with MemoryWatch(0.002) as watch:
        job.run()
    return {"held": watch.peak_bytes, "peak": job.plan.peak_bytes, "budget": job.plan.budget}

folder, cases = sys.argv[1], json.loads(sys.argv[2])
codecs = {"plain": {"compressors": None}, "zstd": {"compressors": zarr.codecs.ZstdCodec(level=1)},
          "tiles": {"compressors": None, "chunks": (512, 512)},
          "coded tiles": {"compressors": zarr.codecs.ZstdCodec(level=1), "chunks": (512, 512)},
          "shards": {"compressors": zarr.codecs.ZstdCodec(level=1), "shards": (256, 2048)}}
for n in range(2):
    data = np.random.default_rng(n).integers(0, 2**21, (4096, 2048)).astype("f4")
    for name in {case[1] for case in cases}:
        how = {"chunks": (64, 2048)} | codecs[name]
        if not os.fork():
            zarr.create_array(f"{folder}/{name}-{n}.zarr", data=data, **how)
            os._exit(0)
        os.wait()
del data
for case in cases:
    sys.stdout.flush()
    if not os.fork():
        try:
            print(json.dumps(measure(folder, *case)), flush=True)
        except BaseException as error:
            print(json.dumps({"error": repr(error)}), flush=True)
        os._exit(0)
    os.wait()
"""
PAST = {"above": 1}
WIDE = {"memory": "96MiB", "ranks": 2, "workspace": 1.0}
PAIR = {"new_axis": [0], "shape": [2], "workspace": 2.0}
WAVES = {"shape": [(2049, 2048)], "workspace": 8.0}
SWEPT = {"memory": "64MiB", "ranks": 2, "sweeps": 6, "fuse": 3, "workspace": 1.0}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("new", "plain", WIDE | {"depth": 1}),
    ("new", "plain", WIDE | {"depth": 1, "prefetch": 0}),
    ("new", "plain", WIDE | {"depth": 1, "prefetch": 3, "ranks": 1}),
    ("new", "plain", WIDE | {"depth": 200, "boundary": "reflect"}),
    ("new", "plain", WIDE | {"depth": 20, "reuse": False}),
    ("in place", "plain", WIDE | {"depth": 4, "workspace": 0.0}),
    ("view", "plain", WIDE | {"depth": 4, "workspace": 0.0}),
    ("three", "plain", WIDE | {"depth": 4, "workspace": 2.0}),
    ("two", "plain", WIDE | {"depth": 2}),
    ("new", "plain", WIDE | PAST | {"depth": 1}),
    ("in place", "plain", WIDE | PAST | {"depth": 0, "workspace": 0.0}),
    ("new", "plain", PAST | {"depth": 3, "boundary": "reflect", "workspace": 1.0}),
    ("new", "plain", WIDE | {"depth": 2, "verify": True}),
    ("three", "plain", {"depth": 30, "verify": True, "workspace": 2.0, "ranks": 2}),
    ("two", "tiles", WIDE | {"depth": 9, "window": (512, 512), "verify": True}),
    ("new", "zstd", WIDE | {"depth": 1}),
    ("new", "shards", WIDE | {"depth": 1}),
    ("new", "plain", {"depth": 1, "ranks": 2, "workspace": 1.0}),
    ("new", "zstd", {"depth": 70, "ranks": 2, "workspace": 1.0}),
    ("new", "tiles", {"depth": 1, "workspace": 1.0}),
    ("new", "tiles", {"memory": "28MiB", "depth": 70, "boundary": "reflect", "workspace": 1.0}),
    ("new", "tiles", WIDE | {"depth": 9, "window": (512, 512)}),
    ("new", "tiles", PAST | {"depth": 3, "workspace": 1.0}),
    ("two", "tiles", {"depth": 2, "ranks": 2, "workspace": 1.0}),
    ("new", "coded tiles", {"depth": 1, "ranks": 2, "workspace": 1.0}),
    ("new", "coded tiles", {"memory": "32MiB", "depth": 40, "workspace": 1.0}),
    ("most", "plain", WIDE | {"drop_axis": [0]}),
    ("most", "coded tiles", {"drop_axis": [0], "workspace": 1.0, "ranks": 2}),
    ("pair", "plain", WIDE | PAIR | {"depth": [1, 0]}),
    ("pair", "coded tiles", PAIR | {"depth": 40, "verify": True}),
    ("pair", "tiles", PAIR | {"memory": "320MiB", "ranks": 2, "dtype": "f8", "window": (300, 700), "depth": 2}),
    ("waves", "plain", WAVES | {"memory": "96MiB", "ranks": 2}),
    ("half", "plain", {"shape": [(2048, 2048)], "workspace": 2.0, "memory": "96MiB", "ranks": 2}),
    ("half", "tiles", {"shape": [(2048, 2048)], "workspace": 2.0}),
    ("pyramid", "tiles", {"memory": "96MiB", "ranks": 2, "levels": 5}),
    ("pyramid", "tiles", {"levels": 4, "method": "mode"}),
    ("pyramid", "coded tiles", {"levels": 6, "method": "nearest", "ranks": 2}),
    ("pyramid", "coded tiles", {"levels": 3, "method": "median"}),
    ("swept", "plain", SWEPT),
    ("swept, and one beside", "plain", SWEPT | {"boundary": "nearest"}),
    ("swept", "plain", SWEPT | {"until": -1.0}),
    ("swept together", "plain", SWEPT),
    ("swept together", "plain", SWEPT | {"until": -1.0}),
    ("swept together", "coded tiles", SWEPT | {"boundary": "reflect"}),
    ("swept together", "tiles", {"sweeps": 4, "fuse": 2}),
    ("moved on", "tiles", SWEPT | {"fuse": "auto"}),
]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each case held: a process each, forked from one that has imported everything."""
    folder = tmp_path_factory.mktemp("slabs")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), json.dumps(CASES)],
        capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: f"{CASES[n][0]}, {CASES[n][1]}, {n}")
def test_a_pass_holds_no_more_than_its_plan(told: list[dict[str, Any]], number: int) -> None:
    case = told[number]
    assert "error" not in case, case
    assert case["held"] <= case["peak"] <= case["budget"], case
