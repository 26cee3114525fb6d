"""A limit for coded chunks: the codecs' own time on all cores, of a sample of chunks, for the whole array.

Nothing is read or written. Threads decode chunks of the source and encode chunks of the target, each with what it has
in the array; codecs let go of the interpreter meanwhile.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from math import prod

import numpy as np
from cases import ITEM, MIB, Case, cores
from data import codecs, values
from peers.boxes import boxes

SAMPLE = 64 * MIB
"""Bytes, about, of source and of target chunks that are looked at."""


def codec_seconds(case: Case) -> float:
    """Return the seconds in which all cores decode the whole source, and then encode the whole target."""
    codec = codecs(case.codec, 2)
    with ThreadPoolExecutor(cores()) as pool:
        sources, targets = (
            list(pool.map(values, _some(case, chunks))) for chunks in (case.source_chunks, case.target_chunks)
        )
        coded = list(pool.map(codec.encode, sources))
        decoding = _least(pool, codec.decode, coded) / sum(chunk.nbytes for chunk in sources)
        encoding = _least(pool, codec.encode, targets) / sum(chunk.nbytes for chunk in targets)
    return (decoding + encoding) * case.nbytes


def _some(case: Case, chunks: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """Whole chunks, evenly over the array, as many for each core."""
    cut = [box for box in boxes(case.shape, chunks) if tuple(part.stop - part.start for part in box) == chunks]
    count = min(max(SAMPLE // (prod(chunks) * ITEM), cores()), len(cut))
    return [cut[place * len(cut) // count] for place in range(count)]


def _least(pool: ThreadPoolExecutor, work, chunks: list) -> float:
    """Seconds by the clock for all of them, the least of three times; the first one takes memory."""
    return min(_seconds(pool, work, chunks) for _ in range(3))


def _seconds(pool: ThreadPoolExecutor, work, chunks: list) -> float:
    start = time.perf_counter()
    for _ in pool.map(lambda chunk: np.size(work(chunk)), chunks):
        pass
    return time.perf_counter() - start
