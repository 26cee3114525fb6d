"""Advice: six pipelines in the chunks that are advised, and in those that people choose by habit.

A cube of 256 MiB and an image of 256 MiB, in zstd, from the cache. Each pipeline is a graph of Dask on threads, whose
tasks read a section by zarr-python and reduce it. Ours advises on a trace of a run in today's layout; tracing, advice
and rechunk are not timed.
"""

from __future__ import annotations

from case import GIB, Case, data, way

HABITS = ("maps or rows", "series or columns", "cubes or tiles")
CASES = (
    Case(
        name="advice",
        question="Six pipelines of 256 MiB in advised chunks",
        data={"": data("peers.advice:store", edge=8192)},
        tiny={"edge": 128},
        ways=(
            way("advised", "peers.advice:advised"),
            way("as stored today", "peers.advice:by_habit", layout=""),
            *(way(habit, "peers.advice:by_habit", layout=habit) for habit in HABITS),
        ),
        measure="figures",
        memory=GIB,
        cache=("warm",),
        short=True,
    ),
)
