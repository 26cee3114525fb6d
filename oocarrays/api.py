"""The functions that a person calls."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import zarr

from oocarrays import report
from oocarrays.array import OutOfCoreArray, open_array, placer
from oocarrays.errors import ChunksError, InputError, PlacementError
from oocarrays.graphs import settings
from oocarrays.graphs.placement import budget_of, client_of, cores_of
from oocarrays.graphs.rechunk_tasks import Destination, RechunkRun
from oocarrays.graphs.resume import journal_content, resumed
from oocarrays.graphs.run import Cluster, GraphJob
from oocarrays.mapping.grid import ChunkGrid
from oocarrays.plan.rechunk import RechunkPlan, plan_rechunk
from oocarrays.storage import array_file
from oocarrays.storage.array_file import ArrayFile, StoreLike
from oocarrays.storage.leftovers import Leftover, find_leftovers
from oocarrays.storage.remote import RemoteStore
from oocarrays.storage.urls import scratch_place

if TYPE_CHECKING:
    from distributed import Client


class RechunkJob(GraphJob):
    """A rechunk that has been planned and not yet run: ``.plan``, ``.explain()``, ``.run()``, ``dask.compute(job)``."""

    @property
    def plan(self) -> RechunkPlan:
        """What will be read, sent, written and held: frozen data."""
        return self._run.plan

    def run(self, *, progress: bool = False) -> OutOfCoreArray:
        """Do it, on threads of this process, or on the workers that it was planned for.

        Parameters
        ----------
        progress : bool
            Whether to show a bar.

        Returns
        -------
        OutOfCoreArray
            The target.

        Raises
        ------
        RunError
            Where a chunk is corrupt, a device full, a store refuses or a scheduler is gone; the target then stays
            marked unfinished, and `resume` goes on with it.
        """
        bar: AbstractContextManager[None] = report.progress_bar(self.plan, self._run) if progress else nullcontext()
        with bar:
            target: OutOfCoreArray = self._execute()
        return target

    @property
    def left(self) -> float:
        """The share of the target's chunks that is still to be written: 1, or less where a run is resumed."""
        return self._run.left

    def explain(self) -> str:
        """The plan, every strategy that was looked at with its cost, and after a run what was measured."""
        text = report.explain(self.plan)
        if self.measured_seconds is None:
            return text
        rows = report.measured_rows(self.plan, self.meter, self.measured_seconds)
        moves = "".join(f"\n{report.move_text(move, self.placement)}" for move in self.moves)
        return f"{text}\n\nlast run\n{report.table(rows, indent='  ')}{moves}"

    def _title(self) -> str:
        return f"rechunk {self._run.source.name} → {self._run.destination.store}"

    def __repr__(self) -> str:
        return f"<oocarrays.RechunkJob {self._title()}>\n{report.table(report.plan_rows(self.plan), indent='  ')}"

    def _repr_html_(self) -> str:
        return report.html_table(self._title(), report.plan_rows(self.plan))


def rechunk(
    source: StoreLike | zarr.Array | OutOfCoreArray,
    target: StoreLike,
    *,
    chunks: tuple[int, ...] | int | None = None,
    orientation: Literal["row", "column"] | tuple[int, ...] | None = None,
    memory: int | float | str | None = None,
    ranks: int | None = None,
    method: Literal["auto", "independent", "two-phase", "kept", "staged"] = "auto",
    compressors: Any = None,
    filters: Any = None,
    overwrite: bool = False,
    scratch: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> RechunkJob:
    """Plan to write an array again in other chunks, within a budget of memory. Reads no data.

    Parameters
    ----------
    source : path, URL, Zarr store, zarr.Array or OutOfCoreArray
        What to read: Zarr format 3, regular chunks, any codec.
    target : path, URL or Zarr store
        Where to write. Attributes, dimension names, fill value, dtype and codecs are carried over.
    chunks : tuple of int, or int for all axes
        Chunk length in each axis, in elements; -1 for the whole axis. It may be left out where ``orientation`` is
        given: chunks then run along the fastest axes and are about as large as those of the source.
    orientation : "row", "column" or tuple of int
        The order in which axes are stored in a chunk: ``"row"`` has the last axis fastest, ``"column"`` the first; a
        tuple names the axes from the slowest to the fastest (Zarr's ``transpose`` codec).
    memory : int or str
        Bytes that this process, or on a cluster each worker, may hold above its idle level, such as ``"1GiB"``; by
        default half of what is free, and on workers what their limits leave below the line at which they spill.
    ranks : int
        Logical processors; by default the plan chooses.
    method : str
        ``"auto"`` takes the cheapest; or one of ``"independent"``, ``"two-phase"``, ``"kept"``, ``"staged"``.
    compressors, filters
        Codecs of the target, as ``zarr.create_array`` takes them; ``()`` for none; None carries the source's over.
    overwrite : bool
        Whether a Zarr array at ``target`` may be replaced.
    scratch : path or URL
        Where a kept or staged plan writes what is on its way; by default beside the target, where that is local, else
        in the system's temporary folder.
    storage_options : mapping
        How URLs are opened, by the names that fsspec has for it; where its keys are schemes, each has its own.
    scheduler : Client, address or "threads"
        Where ranks are: on the workers of a cluster, or threads of this process. By default the workers of the active
        client, if there is one. Workers see source, target and scratch under the same paths.
    workers : sequence of str
        Addresses or names of the workers to be used; by default all.

    Returns
    -------
    RechunkJob
        With ``.plan``, ``.explain()`` and ``.run()``; ``dask.compute(job)`` runs it too.

    Raises
    ------
    InputError
        One of its kinds, before anything is written: see `oocarrays.errors`.

    Notes
    -----
    Strategies: del Rosario, Bordawekar and Choudhary 1993, section 4; Thakur 1995, section 5.3.

    Examples
    --------
    >>> import numpy as np, zarr
    >>> rows, columns = zarr.storage.MemoryStore(), zarr.storage.MemoryStore()
    >>> z = zarr.create_array(rows, data=np.arange(12).reshape(3, 4), chunks=(1, 4))
    >>> job = rechunk(rows, columns, chunks=(3, 1), memory="64MiB")
    >>> job.plan.strategy, job.plan.write_requests
    ('independent', 4)
    >>> job.run()[:, 1]
    array([1, 5, 9])
    """
    settings.refuse_array_expressions()
    place = placer(storage_options)
    target, scratch = place(target), place(scratch or settings.setting("scratch"))
    opened = array_file.open_array(place(source))
    file = array_file.describe(opened)
    order = _axis_order(orientation, opened.ndim)
    shape = _chunks(chunks, order, file.stored.grid, opened.dtype.itemsize)
    made = array_file.target_settings(opened, shape, compressors=compressors, filters=filters, order=order)
    array_file.check_target(opened, target, overwrite=overwrite)
    on_the_way = _scratch_place(scratch, target)
    cluster = _cluster(scheduler, workers)
    plan = plan_rechunk(
        file.stored,
        array_file.preview(made, target),
        ranks=settings.setting("ranks") if ranks is None else ranks,
        method=method,
        requests=settings.ways().requests,
        remote_scratch=not isinstance(on_the_way, str),
        **_means(cluster, memory),
    )
    destination = Destination(
        store=array_file.absolute(target),
        settings=made,
        overwrite=overwrite,
        scratch=on_the_way,
        past_cache_above=settings.size_in_bytes(settings.setting("past-cache-above"), "past-cache-above"),
    )
    return _job(plan, file, destination, cluster)


def resume(
    target: StoreLike,
    *,
    source: StoreLike | zarr.Array | OutOfCoreArray | None = None,
    storage_options: Mapping[str, Any] | None = None,
    scheduler: Client | str | None = None,
    workers: Sequence[str] | None = None,
) -> RechunkJob:
    """Plan to go on with a run that stopped, from what its journal says is done. Reads no data.

    Parameters
    ----------
    target : path, URL or Zarr store
        Where the run was writing.
    source : path, URL, Zarr store, zarr.Array or OutOfCoreArray
        What it was reading; needed where that was no path or URL.
    storage_options : mapping
        As in `rechunk`: how URLs are opened is not written down.
    scheduler, workers
        As in `rechunk`. A run that was planned for workers goes on on workers, one on threads on threads.

    Returns
    -------
    RechunkJob
        With the plan of the run that stopped; ``job.run()`` does what is missing, ``job.left`` says how much that is.

    Raises
    ------
    NotFoundError
        Where nothing was left there.
    JournalError
        Where the journal belongs to another plan or another source.

    Examples
    --------
    >>> resume("no/such.zarr")
    Traceback (most recent call last):
        ...
    oocarrays.errors.NotFoundError: nothing to resume: no unfinished array in no/such.zarr
    """
    place = placer(storage_options)
    plan, file, destination, left_by = resumed(place(target), source, place)
    return _job(plan, file, destination, _cluster_for(plan, scheduler, workers), **left_by)


def _cluster_for(plan: RechunkPlan, scheduler: Client | str | None, workers: Sequence[str] | None) -> Cluster | None:
    """Where a plan that was made before is to run.

    Raises
    ------
    PlacementError
        Where it was made for workers, and there are none, or fewer than its memory was shared out to.
    """
    if plan.processes is None:
        return None
    cluster = _cluster(scheduler, workers)
    if cluster is None:
        raise PlacementError(f"the run was planned for {plan.processes} workers: give scheduler=, or make a client")
    there = cluster.workers()
    if len(there) < min(plan.processes, plan.ranks):
        raise PlacementError(f"the run was planned for {plan.processes} workers; the cluster has {len(there)}")
    return cluster


def clean(path: str | os.PathLike[str], *, unfinished: bool = False, dry_run: bool = False) -> list[Leftover]:
    """Remove what dead runs have left in a local folder and below it.

    Parameters
    ----------
    unfinished : bool
        Whether unfinished targets go too, and the scratch that their runs could go on with.
    dry_run : bool
        Whether to remove nothing.

    Returns
    -------
    list of Leftover
        What was removed, or would be. What living runs use is not among them.

    Raises
    ------
    NotFoundError
        Where there is no such folder.
    """
    found = [leftover for leftover in find_leftovers(path) if not leftover.alive]
    resumable = {array_file.unfinished_run(each.path) for each in found if each.kind == "unfinished"}
    useful = [each for each in found if each.kind == "unfinished" or each.path.rpartition("-")[2] in resumable]
    removed = found if unfinished else [each for each in found if each not in useful]
    for leftover in () if dry_run else removed:
        leftover.remove()
    return removed


def _job(
    plan: RechunkPlan, source: ArrayFile, destination: Destination, cluster: Cluster | None, **left_by: Any
) -> RechunkJob:
    store = destination.store
    run = RechunkRun(plan, source, destination, journal_content(plan, source, destination), **left_by)
    return RechunkJob(run, open_array if array_file.local_folder(store) else _opener(store), cluster)


def _cluster(scheduler: Client | str | None, workers: Sequence[str] | None) -> Cluster | None:
    client = client_of(scheduler)
    if client is None and workers is not None:
        raise PlacementError(f"workers={workers!r}, but there is no cluster: give scheduler=, or make a client")
    return None if client is None else Cluster(client=client, chosen=None if workers is None else tuple(workers))


def _means(cluster: Cluster | None, memory: Any) -> dict[str, Any]:
    """What a plan may use: memory, and what it takes to use it."""
    if cluster is None:
        return {"budget": settings.budget(memory), "costs": settings.costs()}
    there = cluster.workers()
    given = settings.setting("memory") if memory is None else memory
    return {
        "budget": budget_of(there) if given is None else settings.budget(given),
        "costs": settings.costs(cores_of(there)),
        "processes": len(there),
        "threads": min(w.threads for w in there),
        "synchronous": settings.setting("assembly") == "synchronous",
    }


def _opener(target: StoreLike) -> Callable[[str], OutOfCoreArray]:
    return lambda name: open_array(target)


def _scratch_place(scratch: Any, target: StoreLike) -> str | RemoteStore:
    if scratch is not None:
        return scratch_place(scratch)
    folder = array_file.local_folder(target)
    return os.path.dirname(folder) if folder else tempfile.gettempdir()


def _axis_order(orientation: Any, ndim: int) -> tuple[int, ...] | None:
    """Axes from the slowest to the fastest, or None where the source's order is kept."""
    if orientation is None:
        return None
    if orientation == "row":
        return tuple(range(ndim))
    if orientation == "column":
        return tuple(reversed(range(ndim)))
    if isinstance(orientation, str) or sorted(orientation) != list(range(ndim)):
        raise InputError(f"orientation={orientation!r} is not 'row', 'column' or an order of the axes 0 to {ndim - 1}")
    return tuple(orientation)


def _chunks(chunks: Any, order: tuple[int, ...] | None, grid: ChunkGrid, itemsize: int) -> tuple[int, ...]:
    """The target's chunks, checked."""
    shape = grid.shape
    if chunks is None:
        if order is None:
            raise ChunksError(f"chunks are needed: one length for each of the {len(shape)} axes of shape {shape}")
        return _along(order, shape, grid.chunk_size)
    if isinstance(chunks, int | np.integer):
        chunks = (int(chunks),) * len(shape)
    try:
        lengths = tuple(int(c) for c in chunks)
    except (TypeError, ValueError):
        raise ChunksError(f"chunks={chunks!r} are not whole numbers, one for each axis of shape {shape}") from None
    if len(lengths) == len(shape):
        lengths = tuple(max(n, 1) if c == -1 else c for c, n in zip(lengths, shape, strict=True))
    return ChunkGrid.of(shape, lengths).chunks


def _along(order: tuple[int, ...], shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """Chunks of about ``size`` elements that run along the fastest axes first.

    >>> _along((1, 0), (100, 100), 1000)
    (100, 10)
    """
    chunks, room = [1] * len(shape), size
    for axis in reversed(order):
        chunks[axis] = max(min(shape[axis], room), 1)
        room = max(room // chunks[axis], 1)
    return tuple(chunks)
