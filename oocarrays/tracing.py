"""Traces: of collections, of a run, of a store.

ooc.advise.trace(x, y)             ─┐
with ooc.advise.trace() as t:      ─┼─►  Trace  ─►  t.advise(memory="1GiB")
ooc.advise.traced(store).trace()   ─┘
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Self, overload

from dask.base import is_dask_collection
from dask.utils import key_split
from zarr.abc.store import Store
from zarr.storage import LocalStore

from oocarrays.errors import InputError, UnsupportedError
from oocarrays.graphs.cluster.placement import client_of
from oocarrays.graphs.events import LISTENERS, Events
from oocarrays.graphs.rechunk.program import Rechunk
from oocarrays.graphs.tracing.graph import FoundAccesses, trace_collections, trace_tasks, traced_collections
from oocarrays.graphs.tracing.parts import Product
from oocarrays.graphs.tracing.recording import Traced, recorded
from oocarrays.graphs.tracing.seen import Seen, dataset_of
from oocarrays.jobs.job import Job
from oocarrays.plan.advice.access import Dataset
from oocarrays.plan.advice.trace import Trace, checked_weight
from oocarrays.plan.rechunk.plan import RechunkPlan
from oocarrays.show.pictures import load_picture
from oocarrays.storage.files import array_file
from oocarrays.storage.files.places import check_is_place, name_of
from oocarrays.storage.stores.urls import absolute, store_of

if TYPE_CHECKING:
    from distributed import Client
    from matplotlib.figure import Figure

MOST = 40
"""Maximum number of blocks or arrays to draw."""


def draw(trace: Trace) -> Figure:
    """Return a trace as a figure: line widths show the weighted number of elements."""
    load_picture()
    from matplotlib.figure import Figure

    blocks, arrays = trace.blocks[:MOST], [each.name for each in trace.datasets][:MOST]
    figure = Figure(figsize=(9, 1 + 0.5 * max(len(blocks), len(arrays), 2)), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.6, 1.6), ylim=(-max(len(blocks), len(arrays)), 1))
    axes.axis("off")
    most = max((access.elements * access.weight for access in trace.accesses), default=0) or 1
    for access in trace.accesses:
        if access.block in blocks and access.dataset in arrays:
            ends = (0.0, -blocks.index(access.block)), (1.0, -arrays.index(access.dataset))
            start, stop = ends if access.writes else ends[::-1]
            width = 0.8 + 4 * access.elements * access.weight / most
            colour = "tab:orange" if access.writes else "tab:blue"
            axes.annotate("", stop, start, arrowprops={"arrowstyle": "->", "lw": width, "color": colour, "alpha": 0.7})
            each = " × ".join(map(str, access.largest))
            label = f"{access.tasks} of {each}, weight {access.weight:g}"
            axes.text(0.5, (start[1] + stop[1]) / 2, label, ha="center", va="bottom", fontsize=7)
    for x, names, side in ((-0.02, blocks, "right"), (1.02, arrays, "left")):
        for place, name in enumerate(names):
            axes.text(x, -place, name if len(name) < 32 else f"…{name[-30:]}", ha=side, va="center")
    return figure


class Tracing(Events):
    """Trace in recording: a context manager with all attributes of a `Trace`, for the accesses so far.

    It listens to jobs for those of rechunks: other jobs access sections, which are recorded themselves.
    """

    def __init__(self, block: str, weight: float, client: Client | None) -> None:
        self._block, self._weight, self._client = block, weight, client
        self._seen, self._recording = Seen(), ExitStack()

    @property
    def trace(self) -> Trace:
        """Trace of the accesses so far; those of workers are added when the ``with`` block has ended."""
        return self._seen.trace(self._block, self._weight)

    def __enter__(self) -> Self:
        self._recording.enter_context(recorded(self._seen, self._client))
        LISTENERS.append(self)
        return self

    def __exit__(self, *failure: object) -> None:
        LISTENERS.remove(self)
        self._recording.close()

    def on_end(self, run: Any, error: BaseException | None) -> None:
        """Record the accesses of a job that has succeeded: its plan has its chunk reads and writes."""
        if error is None and isinstance(run.plan, RechunkPlan):
            _add_job(run, self._seen)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.trace, name)

    def __add__(self, other: Any) -> Trace:
        return self.trace + (other.trace if isinstance(other, Tracing) else other)

    def __radd__(self, other: Any) -> Trace:
        return other + self.trace if isinstance(other, Trace) else NotImplemented

    def __str__(self) -> str:
        return str(self.trace)

    def __repr__(self) -> str:
        return repr(self.trace)

    def _repr_html_(self) -> str:
        return self.trace._repr_html_()


@overload
def trace(*, block: str = ..., weight: float = ..., scheduler: Client | str | None = ...) -> Tracing: ...
@overload
def trace(
    first: Any, /, *collections: Any, weights: Mapping[str, float] | Sequence[float] | float | None = ..., **named: Any
) -> Trace: ...
@overload
def trace(*, weights: Mapping[str, float] | Sequence[float] | float | None = ..., **named: Any) -> Trace: ...
def trace(*collections: Any, weights: Any = None, **named: Any) -> Trace | Tracing:
    """Find the sections of stored arrays that are read and written: in graphs, without running them; or in a run.

    Parameters
    ----------
    *collections, **named : Dask collections, xarray objects, jobs, lazy arrays
        Each is its own block, named by its keyword; a list or tuple is one block, computed together. Graphs are culled
        and optimised as Dask does before it runs them.
    weights : float, sequence of float or mapping, optional
        Number of runs of each block: in order, or by name. By default one.
    block, weight, scheduler
        For a run, without collections: the name of the block, its number of runs, and the cluster with workers to
        record; by default that of the current client, if any.

    Returns
    -------
    Trace
        For collections. Without any, a context manager that records all accesses to arrays of Zarr and of oocarrays
        while it is entered, with all attributes of a `Trace`.

    Raises
    ------
    InputError
        If no stored array is read or written, or for a weight that is negative or not finite.

    Examples
    --------
    >>> import dask.array as da, oocarrays as ooc, zarr
    >>> z = zarr.create_array({}, shape=(8, 6), dtype="f4", chunks=(2, 6))
    >>> found = ooc.advise.trace(means=da.from_zarr(z).mean(axis=0), weights=3)
    >>> [(access.block, access.tasks, access.largest, access.weight) for access in found.accesses]
    [('means', 4, (2, 6), 3.0)]
    >>> with ooc.advise.trace() as seen:
    ...     row = z[3]
    >>> seen.accesses[0].largest
    (1, 6)
    """
    if not collections and not (named.keys() - {"block", "weight", "scheduler"}):
        if weights is not None:
            raise InputError("weights= are those of collections; the weight of a run is weight=")
        return _tracing(**named)
    blocks = _named(collections, named)
    each = _weights(weights, list(blocks))
    found = [_trace_block(name, given, each[name]) for name, given in blocks.items()]
    return sum(found[1:], found[0])


def _tracing(block: str = "run", weight: float = 1.0, scheduler: Client | str | None = None) -> Tracing:
    if not isinstance(block, str):
        raise InputError(f"block={type(block).__name__} is not a name; for a collection use another keyword, or none")
    return Tracing(block, checked_weight(weight, f"the weight of {block!r}"), client_of(scheduler))


def _named(collections: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return all collections by name, those without a keyword under names that no other has."""
    found: dict[str, Any] = {}
    for given in collections:
        name = _name(given)
        free = (each for each in chain([name], (f"{name} {number}" for number in count(2))) if each not in found)
        found[next(each for each in free if each not in named)] = given
    return found | dict(named)


def _name(given: Any) -> str:
    if isinstance(given, list | tuple) and given:
        return _name(given[0])
    if isinstance(given, Job):
        return type(given).__name__.removesuffix("Job").lower()
    name = getattr(given, "name", None)
    if isinstance(name, str) and type(given).__module__.startswith("xarray."):
        return name
    return key_split(name) if isinstance(name, str) else type(given).__name__.lower()


def _weights(given: Any, names: Sequence[str]) -> dict[str, float]:
    if given is None or isinstance(given, int | float):
        one = checked_weight(1.0 if given is None else given, "weights")
        return dict.fromkeys(names, one)
    if isinstance(given, Mapping):
        unknown = [name for name in given if name not in names]
        if unknown:
            raise InputError(f"weights={dict(given)!r} names {unknown[0]!r}, which is not a block: {', '.join(names)}")
        return {name: checked_weight(given.get(name, 1.0), f"the weight of {name!r}") for name in names}
    if isinstance(given, Iterable) and not isinstance(given, str) and getattr(given, "shape", None) != ():
        listed = list(given)
        if len(listed) == len(names):
            return {n: checked_weight(w, f"the weight of {n!r}") for n, w in zip(names, listed, strict=True)}
    raise InputError(f"weights={given!r} are not a number, one for each of {len(names)} blocks, or by name")


def _trace_block(name: str, given: Any, weight: float) -> Trace:
    seen = Seen()
    flat = traced_collections([given])
    for each in flat:
        if isinstance(each, Job):
            _add_job(each, seen)
        elif not (is_dask_collection(each) or type(each).__module__.startswith("xarray.")):
            raise UnsupportedError(
                f"{type(each).__name__} {name!r} is neither a Dask collection, an object of xarray, nor an oocarrays "
                "job: what it reads is seen in a run, inside 'with ooc.advise.trace() as t:'"
            )
    unseen = trace_collections([each for each in flat if not isinstance(each, Job)], seen)
    found = seen.trace(name, weight)
    if not found.accesses:
        nothing = (
            f"{name!r} reads no stored array: there is no Zarr array in its graph; what has been computed already is "
            "seen in a run, inside 'with ooc.advise.trace() as t:'"
        )
        raise InputError(unseen[0] if unseen else nothing)
    for line in unseen:
        warnings.warn(line, RuntimeWarning, stacklevel=3)
    return found


def _add_job(job: Any, seen: Seen) -> None:
    """Add the reads and writes of a job by chunks, each once; for a lazy source, the reads of its graph."""
    programs = [run.program for run in (job._run, *job._run.parts)]
    if not any(program.read_from for program in programs):
        trace_tasks(dict(job.__dask_graph__()), FoundAccesses(seen))
        return
    for program in programs:
        read = program.read_from
        for array in read.values() if isinstance(read, Mapping) else read:
            seen.add(array, _by_chunks(tuple(array.shape), tuple(array.chunks)), by="oocarrays")
        if isinstance(program, Rechunk) and program.sources:
            place, dtype, target = name_of(program.target.store), program.sources[0].dtype.str, program.plan.target
            made = Dataset(name=place, dtype=dtype, stored=target, planned=True)
            seen.add(made, _by_chunks(target.grid.shape, target.grid.chunks), writes=True, by="oocarrays")


def _by_chunks(shape: tuple[int, ...], chunks: tuple[int, ...]) -> list[Product]:
    along = [tuple(range(i, min(i + c, n)) for i in range(0, n, c)) for n, c in zip(shape, chunks, strict=True)]
    return [tuple(along)] if all(along) else []


def traced(store: Any) -> Traced:
    """Wrap a store to record the reads and writes of a program that cannot be changed.

    Parameters
    ----------
    store : path, URL or Zarr store
        The store that the program would open.

    Returns
    -------
    Traced
        A Zarr store to pass to the program in place of the other one; ``.trace()`` is a `Trace` of its accesses, in
        whole chunks.

    Examples
    --------
    >>> import oocarrays as ooc, zarr
    >>> store = ooc.advise.traced(zarr.storage.MemoryStore())
    >>> z = zarr.create_array(store, shape=(8, 6), dtype="f4", chunks=(2, 6))
    >>> z[:4] = 1
    >>> [(access.tasks, access.writes) for access in store.trace().accesses]
    [(2, True)]
    """
    opened = store_of(store)
    check_is_place(opened)
    return Traced(opened if isinstance(opened, Store) else LocalStore(opened))


def dataset_at(given: Any) -> Any:
    """Return the dataset of a stored array given by the user."""
    return dataset_of(array_file.open_array(absolute(getattr(given, "zarr", given))))


__all__ = ["Trace", "Traced", "Tracing", "trace", "traced"]
