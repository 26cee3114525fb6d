"""Rechunking on S3, each request 20 ms away.

The object store is in memory and takes a fraction of a millisecond a request by itself, so that the distance is what is
measured. Every way has obstore's client; `64 threads` is the setting of Dask that hides the distance best.
"""

from __future__ import annotations

from dataclasses import replace

from case import Case, way

from cases.rechunk import rechunk

WAYS = (
    way("ours", "peers.s3:ours"),
    way("Dask", "peers.s3:dask"),
    way("Dask 64 threads", "peers.s3:dask", threads=64),
)


def s3(name: str, question: str, edge: int, rows: int, **given) -> Case:
    """Return a case of a square array, some rows or columns a chunk."""
    case = rechunk(name, question, (edge, edge), (rows, edge), (edge, rows), ways=WAYS, cache=("warm",), **given)
    params = {**case.params, "latency": 0.02}
    return replace(case, params=params, check="peers.s3:check", around="peers.s3:served", data={"": case.data["v3"]})


CASES = (
    s3("s3", "64 MiB in 256 chunks from rows to columns on S3, 20 ms a request", 4096, 16, short=True),
    s3("s3-large", "256 MiB in 512 chunks from rows to columns on S3, 20 ms a request", 8192, 16),
)
