"""Rechunking on a cluster of worker processes of one thread.

`a worker`: the most bytes of any one worker at any time, files that it maps not counted, above idle. What workers spill
is what Dask puts on disk for want of memory; files that P2P keeps by design are not counted. In `faults` one worker is
killed when half of the target is written, or all processes are, and a fresh process resumes. Of `ranks-N`, workers are
threads of one process, so that schedulers and plans are measured rather than a machine.
"""

from __future__ import annotations

from dataclasses import replace

from case import GIB, MB, way

from cases.rechunk import named, rechunk

OURS = way("ours", "peers.ours_cluster:rechunk")
P2P = way("Dask p2p", "peers.dask:rechunk", method="p2p")
TASKS = way("Dask tasks", "peers.dask:rechunk", method="tasks")
RACE = (OURS, P2P, TASKS)

TIGHT = rechunk(
    "cluster-500m",
    "2 GiB in chunks of 64 MiB on 4 workers of 500 MB",
    (16384, 32768),
    (512, 32768),
    (16384, 1024),
    ways=RACE,
    memory=4 * 500 * MB,
    workers=4,
    cache=("warm",),
    timeout=120,
    short=True,
)
FREE = rechunk(
    "cluster-free",
    "1 GiB from rows to columns on 2 workers without a limit",
    (16384, 16384),
    (256, 16384),
    (16384, 256),
    ways=RACE,
    memory=0,
    workers=2,
    cache=("warm",),
    timeout=120,
    short=True,
)
RANKS = rechunk(
    "ranks-4",
    "256 MiB from rows to columns over 4 workers in one process",
    (8192, 8192),
    (128, 8192),
    (8192, 128),
    ways=(OURS, way("ours two-phase", "peers.ours_cluster:rechunk", method="two-phase"), P2P, TASKS),
    memory=0,
    workers=4,
    cache=("warm",),
    timeout=120,
)
RANKS = replace(RANKS, params={**RANKS.params, "processes": False})
CASES = (
    RANKS,
    *(
        named(RANKS, f"ranks-{n}", f"256 MiB from rows to columns over {n} workers in one process", workers=n)
        for n in (16, 64)
    ),
    TIGHT,
    FREE,
    named(FREE, "cluster-1g", "1 GiB from rows to columns on 2 workers of 1 GiB", memory=2 * GIB, short=False),
    named(FREE, "cluster-free-zstd", "1 GiB from rows to columns, zstd, on 2 workers", "zstd", short=False),
    named(
        TIGHT, "faults", "2 GiB on 4 workers of 1 GB, one or all of which die half-way", memory=4 * 1000 * MB,
        ways=(
            OURS,
            way("a worker killed", "peers.ours_cluster:rechunk", fault="kill-50"),
            way("resumed after all were killed", "peers.ours_cluster:rechunk", fault="resume-50"),
        ),
        short=False,
    ),
)  # fmt: skip
