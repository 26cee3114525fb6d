"""The peers of pack and unpack: other ways to copy the same runs with numpy, and `np.take` with indices made before.

They are given what ours computes: views of the runs and lists of indices are made before their time is taken.
Messages are made in it, as in ours, which keeps its recipes from the first round on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import numpy as np

from oocarrays.plan.layouts.redistribution import Transfer
from oocarrays.plan.layouts.runs import Runs
from oocarrays.storage.sections.packing import pack_all, unpack_all

Messages = list[list[np.ndarray]]
Copy = Callable[[np.ndarray, np.ndarray], None]
MOST_COLUMNS = 16
"""A run of more elements is not copied column by column: that could only lose."""
TILE = 2**19
"""Bytes of a local array that are copied at one time, where that is done in tiles."""


class Case:
    """A transfer with its local arrays before and afterwards, in memory, and what the ways need beforehand."""

    def __init__(self, transfer: Transfer, dtype: np.dtype):
        self.transfer, self.dtype = transfer, dtype
        source, target = transfer.source, transfer.target
        self.before = [numbered(source.local_shape(rank), rank, dtype) for rank in range(source.ranks)]
        self.after = [np.zeros(target.local_shape(rank), dtype) for rank in range(target.ranks)]
        self.sizes = transfer.sizes()
        self.runs = [[transfer.runs(s, t) for t in range(target.ranks)] for s in range(source.ranks)]

    @property
    def pairs(self) -> Iterator[tuple[int, int]]:
        return product(range(self.transfer.source.ranks), range(self.transfer.target.ranks))


def numbered(shape: tuple[int, ...], rank: int, dtype: np.dtype) -> np.ndarray:
    """Elements that differ from each other, and from other ranks' at the same place."""
    return (np.arange(int(np.prod(shape))) % 2**20 + rank).astype(dtype).reshape(shape)


def ours(case: Case) -> tuple[Callable[[], Messages], Callable[[Messages], None]]:
    """One scan of each local array."""
    ranks = range(case.transfer.target.ranks)

    def pack() -> Messages:
        return [pack_all(local, case.transfer, rank) for rank, local in enumerate(case.before)]

    def unpack(messages: Messages) -> None:
        for rank in ranks:
            unpack_all(
                {source: sent[rank] for source, sent in enumerate(messages)}, case.transfer, rank, case.after[rank]
            )

    return pack, unpack


def copies(case: Case, copy: Copy, *, wide: bool = False, tiles: bool = False):
    """Each combination of runs as one strided view, copied by ``copy``."""
    gives = {(s, t): views(case.before[s], case.runs[s][t], "source", wide) for s, t in case.pairs}
    takes = {(s, t): views(case.after[t], case.runs[s][t], "target", wide) for s, t in case.pairs}
    sources, targets = range(case.transfer.source.ranks), range(case.transfer.target.ranks)
    run = in_tiles if tiles else at_once

    def pack() -> Messages:
        messages = [[np.empty(case.sizes[s, t], case.dtype) for t in targets] for s in sources]
        for s in sources:
            run([(part, view) for t in targets for part, view in parts(messages[s][t], gives[s, t])], copy)
        return messages

    def unpack(messages: Messages) -> None:
        for t in targets:
            run([(view, part) for s in sources for part, view in parts(messages[s][t], takes[s, t])], copy)

    return pack, unpack


def at_once(pairs: list[tuple[np.ndarray, np.ndarray]], copy: Copy) -> None:
    for into, taken in pairs:
        copy(into, taken)


def in_tiles(pairs: list[tuple[np.ndarray, np.ndarray]], copy: Copy) -> None:
    """As many times of each run as lie in one tile, a tile after the other; all runs have the same period."""
    most = max((len(into) for into, _ in pairs), default=0)
    apart = max((max(side.strides[0] for side in pair) for pair in pairs), default=1)
    times = max(TILE // apart, 1)
    for start in range(0, most, times):
        for into, taken in pairs:
            if start < len(into):
                copy(into[start : start + times], taken[start : start + times])


def views(local: np.ndarray, runs: tuple[Runs, ...], side: str, wide: bool) -> list[np.ndarray]:
    """A view of each combination of runs: its counts and lengths; wide, a run of the last axis is one element."""
    found = []
    for numbers in product(*(range(len(each)) for each in runs)):
        chosen = [
            [int(getattr(each, name)[n]) for name in (f"{side}_start", f"{side}_stride", "count", "length")]
            for each, n in zip(runs, numbers, strict=True)
        ]
        offset = sum(start * step for (start, *_), step in zip(chosen, local.strides, strict=True))
        shape = [n for _, _, count, length in chosen for n in (count, length)]
        strides = [n for (_, again, *_), step in zip(chosen, local.strides, strict=True) for n in (again * step, step)]
        dtype = local.dtype
        if wide:
            dtype, shape, strides = np.dtype((np.void, local.itemsize * shape[-1])), shape[:-1], strides[:-1]
        found.append(np.ndarray(shape, dtype, local.reshape(-1).view(np.uint8).data, offset, strides))
    return found


def parts(message: np.ndarray, found: list[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    start = 0
    for view in found:
        size = view.nbytes // message.itemsize
        yield message[start : start + size].view(view.dtype).reshape(view.shape), view
        start += size


def assign(into: np.ndarray, taken: np.ndarray) -> None:
    into[...] = taken


def columns(into: np.ndarray, taken: np.ndarray) -> None:
    """Each column of a run by itself: strided copies of one axis."""
    if into.shape[-1] > MOST_COLUMNS:
        into[...] = taken
        return
    for column in range(into.shape[-1]):
        into[..., column] = taken[..., column]


def takes(case: Case, *, scatter: bool = False):
    """`np.take` with all indices of a rank in the order of its messages; unpacked by it too, or by assignment."""
    places = [np.arange(local.size).reshape(local.shape) for local in case.before]
    gives = [np.concatenate([m.ravel() for m in pack_all(p, case.transfer, s)]) for s, p in enumerate(places)]
    cuts = [np.cumsum(row)[:-1] for row in case.sizes]
    sources, targets = range(case.transfer.source.ranks), range(case.transfer.target.ranks)
    numbers = [np.arange(local.size).reshape(local.shape) for local in case.after]
    back = Transfer(case.transfer.target, case.transfer.source)
    wanted = [np.concatenate([m.ravel() for m in pack_all(p, back, t)]) for t, p in enumerate(numbers)]
    orders = [np.argsort(each) for each in wanted]

    def pack() -> Messages:
        return [np.split(np.take(case.before[s].ravel(), gives[s]), cuts[s]) for s in sources]

    def unpack(messages: Messages) -> None:
        for t in targets:
            come = np.concatenate([messages[s][t] for s in sources])
            if scatter:
                case.after[t].reshape(-1)[wanted[t]] = come
            else:
                np.take(come, orders[t], out=case.after[t].reshape(-1), mode="clip")

    return pack, unpack


WAYS: dict[str, Callable[[Case], tuple[Callable[[], Messages], Callable[[Messages], None]]]] = {
    "oocarrays": ours,
    "a run as one view": lambda case: copies(case, assign),
    "np.copyto": lambda case: copies(case, np.copyto),
    "column by column": lambda case: copies(case, columns),
    "a run as one wide element": lambda case: copies(case, assign, wide=True),
    "views in tiles": lambda case: copies(case, assign, tiles=True),
    "wide elements in tiles": lambda case: copies(case, assign, wide=True, tiles=True),
    "np.take": takes,
    "np.take, assignment": lambda case: takes(case, scatter=True),
}
"""Each way makes what it needs, and gives its pack and its unpack."""
