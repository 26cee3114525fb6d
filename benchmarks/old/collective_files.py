"""The arrays that `collective.py` reads: where they are, and how they are brought into a state before each run."""

from __future__ import annotations

import argparse
import os

import machine
from cases import Case, job_for
from data import make
from s3 import BUCKET, Server
from s3 import make as make_objects

SLABS = 64
"""Chunks of a file."""


def slabs(edge: int, file: str, store: str) -> Case:
    """Return an array in slabs of rows or of columns."""
    slab, whole = max(edge // SLABS, 1), edge
    chunks = (slab, whole) if file == "row" else (whole, slab)
    return _case(file, edge, chunks, store)


def _case(name: str, edge: int, chunks: tuple[int, int], store: str) -> Case:
    codec = "zstd" if store == "zstd" else "none"
    return Case(
        name=f"{name}-{codec}-{edge}", shape=(edge,) * 2, source_chunks=chunks, target_chunks=chunks, codec=codec
    )


def by_columns(edge: int, store: str) -> Case:
    """Return an array each of whose chunks is a column."""
    return _case("columns", edge, (edge, 1), store)


def placed(case: Case, options: argparse.Namespace, server: Server | None) -> str:
    """Where the array is; it is made where it is not there yet."""
    if server:
        server.tell(0.0)
        store = f"s3://{BUCKET}/{case.name}"
        make_objects(job_for(case, store, ""))
        return store
    store = os.path.join(options.workdir, "sources", case.name)
    if not os.path.exists(store):
        os.makedirs(os.path.dirname(store), exist_ok=True)
        make(store, job_for(case, store, ""), 3)
    return store


class Near:
    """A folder, brought into a state of the page cache before each run."""

    def __init__(self, place: str, cache: str) -> None:
        self.place = place
        self.ready = lambda: {"cold": machine.make_cold, "warm": machine.make_warm}[cache](place)

    def counts(self) -> dict[str, int]:
        """Nobody counts here."""
        return {}

    def nbytes(self) -> int:
        """Bytes of its files."""
        return sum(
            os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(self.place) for name in names
        )


class Far:
    """A store behind a latency, which counts requests."""

    def __init__(self, server: Server, latency: float) -> None:
        self.server, self.latency = server, latency

    def ready(self) -> None:
        """From now on it is far away, and counts anew."""
        self.server.tell(self.latency)
        self.server.counts()

    def counts(self) -> dict[str, int]:
        """Requests by kind, since it was last asked."""
        return self.server.counts()

    def nbytes(self) -> int:
        """Nobody weighs here."""
        return 0
