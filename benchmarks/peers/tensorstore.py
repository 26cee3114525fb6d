"""TensorStore driven by a plan that fits in the budget, as an expert would write it.

Variants (the best one known for the case where none is given):

- `direct`: box by box, target.write(source): TensorStore copies from decoded chunks straight into the
  buffers of the target's chunks, with no array between. Mapped files make byte ranges of uncoded chunks.
- `buffered`: box by box through one numpy array: less memory than `direct` where chunks are coded.
- `staged`: through an uncompressed intermediate array, so that each source chunk is decoded once.

Files are mapped (`file_io_mode: memmap`), nothing is synced or locked, no chunk stays cached.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable, Iterable

import tensorstore as ts
from case import Job

from peers.by_hand import cut

DIRECT_SHARE = 0.55
"""Part of the budget for the box of `direct`; chunks being read and written come on top."""
BUFFERED_SHARE = 0.5
"""Part of the budget for the box of `buffered`."""
STAGED_SHARE = 1 / 8
"""Part of the budget for each box of `staged`, of which DEPTH are under way, each held up to twice."""
DEPTH = 3
"""Boxes of `staged` under way at once: one is read while another is written."""
REPEATS = 2
"""Coded sources are decoded at most so many times before an intermediate array is cheaper."""


def rechunk(job: Job) -> dict:
    """Rechunk in the variant named, or in the best one."""
    context = _context(job.cores)
    source = _opened(job.source, context)
    target = _created(job.target, context, job.shape, job.target_chunks, _codecs(job.source))
    variant = job.params.get("variant") or _best(job)
    passes = VARIANTS[variant](job, source, target, context)
    return {"note": f"{variant}, {passes} boxes"}


def _best(job: Job) -> str:
    if job.codec == "none":
        return "direct"
    fits = len(cut(job, job.target_chunks, BUFFERED_SHARE)) <= REPEATS
    return "buffered" if fits else "staged"


def _direct(job: Job, source: ts.TensorStore, target: ts.TensorStore, context: ts.Context) -> int:
    found = cut(job, job.target_chunks, DIRECT_SHARE)
    for box in found:
        target[box].write(source[box]).result()
    return len(found)


def _buffered(job: Job, source: ts.TensorStore, target: ts.TensorStore, context: ts.Context) -> int:
    found = cut(job, job.target_chunks, BUFFERED_SHARE)
    for box in found:
        buffer = source[box].read().result()
        target[box].write(buffer, can_reference_source_data_indefinitely=True).result()
        del buffer
    return len(found)


def _staged(job: Job, source: ts.TensorStore, target: ts.TensorStore, context: ts.Context) -> int:
    inwards = cut(job, job.chunks, STAGED_SHARE)
    outwards = cut(job, job.target_chunks, STAGED_SHARE)
    chunks = [min(a.stop - a.start, b.stop - b.start) for a, b in zip(inwards[0], outwards[0], strict=True)]
    path = os.path.join(job.scratch, "intermediate")
    between = _created(path, context, job.shape, chunks, [PLAIN])
    _pipelined(lambda box=box: between[box].write(source[box]) for box in inwards)
    _pipelined(lambda box=box: target[box].write(between[box]) for box in outwards)
    return len(inwards) + len(outwards)


VARIANTS = {"direct": _direct, "buffered": _buffered, "staged": _staged}
PLAIN = {"name": "bytes", "configuration": {"endian": "little"}}


def _pipelined(starts: Iterable[Callable[[], ts.WriteFutures]]) -> None:
    """Start each write, at most DEPTH at a time; wait for all."""
    under_way: deque[ts.WriteFutures] = deque()
    for start in starts:
        if len(under_way) == DEPTH:
            under_way.popleft().result()
        under_way.append(start())
    for write in under_way:
        write.result()


def _context(cores: int) -> ts.Context:
    return ts.Context(
        {
            "cache_pool": {"total_bytes_limit": 0},
            "data_copy_concurrency": {"limit": cores},
            "file_io_concurrency": {"limit": cores},
            "file_io_sync": False,
            "file_io_locking": {"mode": "none"},
            "file_io_mode": {"mode": "memmap"},
        }
    )


def _spec(path: str) -> dict:
    return {"driver": "zarr3", "kvstore": {"driver": "file", "path": path + "/"}}


def _opened(path: str, context: ts.Context) -> ts.TensorStore:
    return ts.open(_spec(path), context=context, read=True).result()


def _codecs(path: str) -> list[dict]:
    with open(os.path.join(path, "zarr.json")) as file:
        return json.load(file)["codecs"]


def _created(path: str, context: ts.Context, shape, chunks, codecs: list[dict]) -> ts.TensorStore:
    metadata = {
        "shape": list(shape),
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "codecs": codecs,
        "fill_value": 0.0,
    }
    return ts.open({**_spec(path), "metadata": metadata}, context=context, create=True).result()
