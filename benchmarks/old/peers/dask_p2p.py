"""Dask with `array.rechunk.method = p2p`."""

from __future__ import annotations

from peers.dask_cluster import rechunk, workers

__all__ = ["run", "workers"]


def run(job, client) -> dict:
    """Rechunk on `client`'s cluster."""
    return rechunk(job, "p2p")
