"""The reads and writes in one task, in whatever it is nested: what takes a section of a stored array, and which.

getter(z, index)                       reads     as da.from_zarr, from_array and xarray have it
read_span(part, span)                  reads     as our lazy arrays have it
load_store_chunk(x, z, index, …)       writes    as da.store and xarray's to_zarr have it
make, begin or independent of a rank   reads     as collective reads have it: what the rank wants, whoever reads it
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from dask._expr import ProhibitReuse
from dask._task_spec import _execute_subgraph
from dask.array.chunk import getitem as chunk_getitem
from dask.array.core import getter, getter_inline, getter_nofancy, load_store_chunk
from dask.array.optimization import fuse_slice
from dask.task_spec import Alias, DataNode, GraphNode, Task, TaskRef

from oocarrays.graphs.collective.read_tasks import FIRST, Reading
from oocarrays.graphs.lazy.reads import PlainCopy, copy_tile, read_copy, read_group, read_span, tiles
from oocarrays.graphs.run.builder import itself

GETTERS = (getter, getter_nofancy, getter_inline, chunk_getitem, operator.getitem)
"""Functions that take an index of what they are given."""
HANDING_ON = (itself, ProhibitReuse._identity)
"""Functions that give what they are given: of our graphs, and of what Dask makes of collections in `delayed`."""
ELSEWHERE = (PlainCopy.make, read_copy, *HANDING_ON)
"""Functions that are given an array and read nothing of it where all goes well."""
READERS = frozenset({*GETTERS, read_span, copy_tile, read_group, load_store_chunk})
"""Functions whose arguments tell what they read or write."""
Find = Callable[[Any], Any]
"""The object that a key of the graph stands for, or `NOTHING`."""
NOTHING = object()


class TaskUse(NamedTuple):
    """One read or write that a task does."""

    source: Any
    """What is read from or written to; of a collective read, the read."""
    key: Any
    """The index that is taken; None where that cannot be told; of a collective read the rank that wants its part."""
    writes: bool = False
    """Whether it is written."""


def uses(node: Any, find: Find, is_source: Callable[[Any], bool]) -> Iterator[TaskUse]:
    """Yield the reads and writes of a task."""
    if not isinstance(node, Task):
        return
    if node.func is _execute_subgraph:
        yield from _inner(node, find, is_source)
        return
    values = [known(arg, find) for arg in node.args]
    named = {name: known(arg, find) for name, arg in node.kwargs.items()}
    yield from _of_call(node.func, values, named, is_source)
    for arg in (*node.args, *node.kwargs.values()):
        if isinstance(arg, Task):
            yield from uses(arg, find, is_source)


def _inner(node: Task, find: Find, is_source: Callable[[Any], bool]) -> Iterator[TaskUse]:
    """Yield the reads and writes of tasks that were made one."""
    inner: Mapping[Any, Any] = node.args[0]
    outer = dict(zip(node.args[2], node.args[3:], strict=False))

    def find_inside(key: Any) -> Any:
        if key in inner:
            return known(inner[key], find_inside)
        return known(outer[key], find) if key in outer else find(key)

    for each in inner.values():
        yield from uses(each, find_inside, is_source)


def value(node: Any, find: Find) -> Any:
    """Return the object that a node of a graph holds, or hands on as it is; `NOTHING` of any other."""
    return known(node, find) if isinstance(node, DataNode) or _hands_on(node) else NOTHING


def _hands_on(node: Any) -> bool:
    """Whether a task gives what it is given."""
    return isinstance(node, Task) and node.func in HANDING_ON


def known(arg: Any, find: Find) -> Any:
    """Return what an argument is, where that is known before anything runs."""
    if isinstance(arg, DataNode):
        return arg.value
    if isinstance(arg, Alias):
        return find(arg.target)
    if isinstance(arg, TaskRef):
        return find(arg.key)
    if _hands_on(arg):
        return known(arg.args[0], find)
    if isinstance(arg, GraphNode):
        return arg({}) if not arg.dependencies and type(arg) is not Task else NOTHING
    return arg


def _of_call(
    function: Any, args: list[Any], named: dict[str, Any], is_source: Callable[[Any], bool]
) -> Iterator[TaskUse]:
    """Yield what one call reads and writes."""
    if function in ELSEWHERE:
        return
    if function is Reading.task and isinstance(args[0], Reading):
        if args[1] in FIRST:
            yield TaskUse(args[0], args[2][-1])
        return
    if function is load_store_chunk:
        yield from _stored(*args, **named)
        return
    given = [each for each in (*args, *named.values()) if is_source(each)]
    if not given:
        return
    if function in GETTERS and is_source(args[0]):
        yield TaskUse(args[0], args[1])
    elif function is read_span:
        yield TaskUse(args[0], tuple(slice(*each) for each in args[1]))
    elif function is copy_tile:
        yield TaskUse(args[0], tuple(slice(*each) for each in args[2]))
    elif function is read_group:
        part, edges, tile = args
        for span in tiles(part.axes, [(each[0], each[-1]) for each in edges], tile):
            yield TaskUse(part, tuple(slice(*each) for each in span))
    else:
        yield from (TaskUse(each, None) for each in given)


def _stored(x: Any, out: Any, index: Any, region: Any, *_: Any, **__: Any) -> Iterator[TaskUse]:
    """Yield what `dask.array.store` writes to an array."""
    if region:
        index = fuse_slice(region, index) if index else region
    yield TaskUse(out, index, writes=True)
