"""Parts of a layout's ranks, as tasks: one per rank, on the rank's worker.

    numpy array   ─► cut ─► part        each rank's part, cut out in the array's process
    Dask's blocks ─► part               the block as it is
    parts         ─► whole, blocks      in natural order: one array, or Dask's blocks

A part is C-contiguous, in the order of its rank, and is never modified: results are new arrays, so a task repeated
after the loss of a worker yields the same result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import Alias, Task, TaskRef
from dask.utils import ensure_dict

from oocarrays.graphs.run.program import itself, new_suffix
from oocarrays.graphs.run.steps import Key
from oocarrays.kernels.results import block_of
from oocarrays.mapping.layouts.distribution import Collapsed
from oocarrays.mapping.layouts.layout import Layout, holders
from oocarrays.mapping.section import Section
from oocarrays.plan.layouts.transfer import Transfer
from oocarrays.storage.sections.packing import move

if TYPE_CHECKING:
    import dask.array as da


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    dtype: np.dtype
    graph: HighLevelGraph
    name: str
    """Name of the parts' layer."""
    keys: tuple[Key, ...]
    homes: Mapping[str, Sequence[str]]
    """Worker of each rank, by the suffix in the tasks' keys; empty on threads."""

    @classmethod
    def of(
        cls,
        tasks: Mapping[Any, Any],
        keys: Iterable[Key],
        dtype: np.dtype,
        homes: Mapping[str, Sequence[str]],
        *before: Parts,
        name: str = "parts",
    ) -> Parts:
        """Return the parts with these keys among tasks, which use the parts ``before``."""
        name = f"{name}-{new_suffix()}"
        graph = HighLevelGraph.merge(*(parts.graph for parts in before))
        known = {suffix: workers for parts in before for suffix, workers in parts.homes.items()}
        return cls(
            dtype=dtype,
            graph=layered(graph, name, tasks, *(parts.name for parts in before)),
            name=name,
            keys=tuple(keys),
            homes={**known, **homes},
        )

    @classmethod
    def made(
        cls,
        make: Callable[[Key], Any],
        ranks: int,
        dtype: np.dtype,
        addresses: Sequence[str],
        *before: Parts,
        verb: str = "part",
    ) -> Parts:
        """Return the parts of a task for each rank, which ``make`` returns for its key."""
        suffix = new_suffix()
        keys = [(f"{verb}-{suffix}", rank) for rank in range(ranks)]
        homes = {suffix: addresses} if addresses else {}
        return cls.of({key: make(key) for key in keys}, keys, dtype, homes, *before)


def layered(graph: HighLevelGraph, name: str, tasks: Mapping[Any, Any], *after: str) -> HighLevelGraph:
    """Return a graph with one more layer of tasks, after others."""
    return HighLevelGraph({**graph.layers, name: tasks}, {**graph.dependencies, name: set(after)})


def whole_layout(shape: Sequence[int]) -> Layout:
    return Layout.of(shape, [Collapsed()] * len(shape), ranks=1)


def parts_of_array(array: np.ndarray, layout: Layout, addresses: Sequence[str] = ()) -> Parts:
    """Distribute an array of this process: on threads tasks cut it, for a cluster it is cut before it is sent."""

    def make(key: Key) -> Task:
        if addresses:
            return Task(key, itself, cut(array, layout, key[-1]))
        return Task(key, cut, array, layout, key[-1])

    return Parts.made(make, layout.ranks, array.dtype, addresses)


def cut(array: np.ndarray, layout: Layout, rank: int) -> np.ndarray:
    part = np.empty(layout.local_shape(rank), array.dtype)
    move(np.asarray(array, order="C"), Transfer(whole_layout(layout.shape), layout), 0, rank, part)
    return part


def parts_of_blocks(x: da.Array, layout: Layout, addresses: Sequence[str] = ()) -> Parts:
    """Return a Dask array's blocks as the parts of a layout with as many ranks."""
    graph: Any = x.__dask_graph__()
    tasks = {x.name: ensure_dict(x.__dask_optimize__(graph, x.__dask_keys__()))}
    keys, whole = tuple(flatten(x.__dask_keys__())), HighLevelGraph(tasks, {x.name: set()})
    blocks = Parts(dtype=x.dtype, graph=whole, name=x.name, keys=keys, homes={})

    def make(key: Key) -> Task:
        return Task(key, _part, TaskRef(keys[key[-1]]), _section(layout, key[-1]), x.dtype)

    return Parts.made(make, layout.ranks, x.dtype, addresses, blocks)


def parts_of_arrays(arrays: Sequence[Any], dtype: np.dtype, addresses: Sequence[str] = ()) -> Parts:
    """Return arrays as parts: Dask places the blocks of a Dask array; they are joined on the rank's worker."""
    suffix, keys = new_suffix(), []
    tasks: dict[Any, Any] = {}
    for rank, array in enumerate(arrays):
        if isinstance(array, np.ndarray):
            keys.append((f"part-{suffix}", rank))
            tasks[keys[-1]] = Task(keys[-1], itself, array)
        else:
            whole = array.rechunk(-1) if array.ndim else array
            keys += flatten(whole.__dask_keys__())
            tasks |= ensure_dict(whole.__dask_optimize__(whole.__dask_graph__(), whole.__dask_keys__()))
    return Parts.of(tasks, keys, dtype, {suffix: addresses} if addresses else {})


def _section(layout: Layout, rank: int) -> Section:
    lower = tuple(held[0].start if held else 0 for held in layout.sections(rank))
    return Section(lower, tuple(start + n for start, n in zip(lower, layout.local_shape(rank), strict=True)))


def _part(block: Any, section: Section, dtype: np.dtype) -> np.ndarray:
    return np.asarray(block_of(block, section, dtype), dtype, order="C")


def block_tasks(parts: Parts, layout: Layout, name: str) -> dict[Key, Alias]:
    """Return the tasks of a Dask array's blocks, each an alias of a part."""
    tasks: dict[Key, Alias] = {}
    for index in product(*(range(len(held)) for held in holders(layout))):
        coordinates = [held[i] for held, i in zip(holders(layout), index, strict=True)]
        key: Key = (name, *index)
        tasks[key] = Alias(key, TaskRef(parts.keys[layout.rank(coordinates)]))
    return tasks


def whole(parts: Sequence[np.ndarray], layout: Layout, dtype: np.dtype) -> np.ndarray:
    """Join the parts of all ranks, in natural order."""
    array, transfer = np.empty(layout.shape, dtype), Transfer(layout, whole_layout(layout.shape))
    for rank, part in enumerate(parts):
        if math.prod(part.shape):
            move(part, transfer, rank, 0, array)
    return array
