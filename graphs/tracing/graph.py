"""Reads and writes in a Dask graph, found as Dask would run it, without running it.

    small graphs     optimised by Dask itself, and every task is examined
    large ones       layer by layer from the results down: needed blocks are a mask, and the reads of a
                     layer of blocks are found from one of its tasks

Dask fuses an index with the preceding read if no other task needs that read; the second method applies Dask's own rule.
Sections are folded as they are found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dask.array as da
from dask._task_spec import convert_legacy_graph
from dask.base import is_dask_collection
from dask.core import flatten
from dask.highlevelgraph import HighLevelGraph
from dask.utils import key_split

from oocarrays.graphs.collective.read_tasks import Reading
from oocarrays.graphs.tracing import parts
from oocarrays.graphs.tracing.layers import Layers
from oocarrays.graphs.tracing.parts import as_ranges
from oocarrays.graphs.tracing.seen import Seen
from oocarrays.storage.files.places import location

MOST_TASKS = 100_000
"""Maximum number of tasks for which Dask optimises the graph: it takes about 70 µs and 2 kB for each."""


class FoundAccesses:
    """Reads and writes collected task by task."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        known = parts.KnownParts()
        self.part, self.is_source = known.part, known.is_source
        self._blind: dict[str, str] = {}

    def add_task(self, node: Any, find: parts.Find) -> None:
        for use in parts.uses(node, find, self.is_source):
            self.add(use, node)

    def add(self, use: parts.TaskUse, node: Any) -> None:
        if isinstance(use.source, Reading):
            requests = use.source.plan.requests
            if all(map(len, requests[use.key])):
                wanted = tuple(map(as_ranges, requests[use.key]))
                self.seen.add(use.source.file.zarr, [wanted], by="oocarrays", ranks=len(requests))
            return
        part = self.part(use.source)
        if part is None:
            return
        if use.key is None:
            self._blind[location(part.array)] = key_split(node.key)
            return
        self.seen.add(part.array, part.take(use.key), writes=use.writes, by=part.by, cut=True)

    @property
    def unseen(self) -> list[str]:
        """Return a line for each array passed to a task as a whole: only a run shows the sections that are read."""
        return [
            f"{task} is given the stored array {array} itself: what it reads of it is not in the graph; run it "
            "inside 'with ooc.advise.trace() as t:' to see it"
            for array, task in self._blind.items()
        ]


def trace_collections(collections: Sequence[Any], seen: Seen) -> list[str]:
    """Add the reads and writes of collections computed together; return lines about accesses that cannot be seen."""
    found = FoundAccesses(seen)
    arrays, others = [], []
    for each in collections:
        inner = arrays_of(each, found)
        arrays.extend(inner)
        if not inner and is_dask_collection(each):
            others.append(each)
    if arrays:
        _trace_arrays(list({array.name: array for array in arrays}.values()), found)
    together: dict[Any, Any] = {}
    for each in others:
        keys = list(flatten([each.__dask_keys__()]))
        graph = each.__dask_graph__()
        together |= dict(each.__dask_optimize__(graph, keys) if each.__dask_optimize__ else graph)
    trace_tasks(together, found)
    return found.unseen


def arrays_of(collection: Any, found: FoundAccesses) -> list[da.Array]:
    """Return the Dask arrays in a collection; add xarray's reads without Dask directly."""
    if isinstance(collection, da.Array):
        return [collection]
    made = []
    for variable in _variables(collection):
        data = variable._data
        if isinstance(data, da.Array):
            made.append(data)
        elif (part := found.part(data)) is not None:
            found.seen.add(part.array, part.take(...), by=part.by)
    return made


def _variables(collection: Any) -> list[Any]:
    """Return the variables of an xarray object; an empty list for another object."""
    if not type(collection).__module__.startswith("xarray."):
        return []
    if hasattr(collection, "subtree"):
        return [v for node in collection.subtree for v in node.to_dataset().variables.values()]
    if hasattr(collection, "data_vars"):
        return list(collection.variables.values())
    if hasattr(collection, "coords"):
        return [collection.variable, *(c.variable for c in collection.coords.values())]
    return [collection]


def _trace_arrays(arrays: Sequence[da.Array], found: FoundAccesses) -> None:
    """Add the reads of arrays that are computed together."""
    graph = HighLevelGraph.merge(*(array.__dask_graph__() for array in arrays))
    layers = Layers(graph, arrays, found)
    found.seen.repeats |= layers.repeats()
    if sum(len(layer) for layer in graph.layers.values()) > MOST_TASKS:
        layers.trace()
        return
    keys = list(flatten([array.__dask_keys__() for array in arrays]))
    trace_tasks(dict(da.Array.__dask_optimize__(graph, keys)), found)


def trace_tasks(graph: Mapping[Any, Any], found: FoundAccesses) -> None:
    """Add the reads and writes of every task of a graph, without optimisation."""
    nodes = convert_legacy_graph(graph)
    find = parts.finder(nodes)
    for node in nodes.values():
        found.add_task(node, find)


def traced_collections(given: Iterable[Any]) -> list[Any]:
    """Return the collections in nested lists, tuples and mappings."""
    flat: list[Any] = []
    for each in given:
        if isinstance(each, list | tuple):
            flat.extend(traced_collections(each))
        elif isinstance(each, dict):
            flat.extend(traced_collections(each.values()))
        else:
            flat.append(each)
    return flat
