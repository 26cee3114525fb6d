"""Reduction as tasks.

    create ─┬─► reduce ─╳─► write ─► finish      each rank reduces its run of segments; partial results of
            ├─► reduce ─╳─► write ─┘             shared parts are sent to the owners of the result's chunks
            ╰─► reduce ─╳─► write ─┘
                        exchange: between workers in the schedule's steps, see `steps`

A part with all its segments on one rank is finished there at once. A journal keeps the written chunks of the result,
and partial results that are small beside their input. A resumed run reads the others again.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from dask.task_spec import Task
from zarr.storage import MemoryStore

from oocarrays.graphs.exchange.messages import VERBS, Messages
from oocarrays.graphs.reductions.reducing import Partial, Reducer, packed, unpacked
from oocarrays.graphs.run.builder import Builder, new_suffix
from oocarrays.graphs.run.journaled import OneTarget
from oocarrays.graphs.run.remains import NOTHING_LEFT, Remains
from oocarrays.graphs.run.steps import ExchangeTasks, Key
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.graphs.run.work import InPlace, Work
from oocarrays.plan.documents import Document
from oocarrays.plan.reductions.plan import ReducePlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.receipts import Receipts
from oocarrays.storage.journal.versions import Versions
from oocarrays.storage.metered import new_meter
from oocarrays.storage.sections.write import write_section

Part = tuple[int, ...]
"""Recorded part: ``(0, unit)`` for a kept partial result, ``(1, part, chunk)`` for a written chunk."""
Made = tuple[int, int, np.ndarray]
"""Part, chunk of its groups, and values."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class RankPartials:
    """Partial results of a rank that has read its segments; Dask does not learn their size: the plan has counted it."""

    waiting: dict[int, Partial]
    """Partial results of parts shared with other ranks, by unit."""
    made: list[Made]
    """Unwritten chunks of the result."""


class Reducing(Messages):
    """One reduction, shared by its tasks; its result is returned or written."""

    phases: ClassVar[Mapping[str, str]] = {"reduce": "read", **dict.fromkeys(VERBS, "exchange"), "write": "write"}
    plan: ReducePlan
    _sealed: Sealed[Reducer]
    dtype: np.dtype
    """Dtype of the result."""
    failure: BaseException | None

    @property
    def reducer(self) -> Reducer:
        return self._sealed.value

    def reads(self) -> Iterable[Presence]:
        return (self.reducer.file.presence,)

    # ------------------------------------------------------------------ reading

    def _reduce(self, rank: int) -> RankPartials:
        held = RankPartials({}, [])
        with ThreadPoolExecutor(self.plan.threads, "oocarrays-reduce") as pool:
            self._through(rank, pool, held)
        return held

    def _through(self, rank: int, pool: ThreadPoolExecutor, held: RankPartials) -> None:
        cut, folded = self.plan.cut, Partial()
        for unit, found in self._partials(rank, pool):
            if self.failure:
                raise self.failure
            part, segment = cut.unit(unit)
            if not self.plan.is_whole(part, rank):
                held.waiting[unit] = found
                continue
            self.reducer.fold(folded, found)
            if segment == cut.segments - 1:
                held.made += self._given(part, folded)
                folded = {}

    def _partials(self, rank: int, pool: ThreadPoolExecutor) -> Iterator[tuple[int, Partial]]:
        """Yield the partial result of each wanted unit of a rank, in order."""
        yield from self.reducer.partials(self.plan.mine(rank), pool, self.plan.threads + 1, self.meter)

    def _given(self, part: int, folded: Partial) -> list[Made]:
        """Finish a complete part; return the chunks that were not written."""
        left = []
        for chunk, states in self.reducer.chunks_of(folded):
            values = self.reducer.finished(part, chunk, states, self.dtype)
            if not self._put(part, chunk, values):
                left.append((part, chunk, values))
        return left

    def _put(self, part: int, chunk: int, values: np.ndarray) -> bool:
        """Write a chunk of the result; return False if it is to be returned instead."""
        return False

    # ------------------------------------------------------------------ messages

    def packed(self, round: tuple[int, ...], rank: int, held: RankPartials, final: int) -> np.ndarray | None:
        """Pack a rank's partial results for chunks that another folds, by unit, chunk of groups, column and group."""
        takes = set(self.plan.takes(final))
        parts = {part for part, _ in takes}
        found = {
            (unit, chunk): states
            for unit, waiting in held.waiting.items()
            if self.plan.cut.unit(unit)[0] in parts
            for chunk, states in self.reducer.chunks_of(waiting)
            if (self.plan.cut.unit(unit)[0], chunk) in takes
        }
        return packed(found) if found else None

    def _write(self, rank: int, held: RankPartials, *inputs: Any) -> list[Made]:
        """Fold the partial results for a rank, in the order of segments; return the chunks that were not written."""
        came: dict[tuple[int, int], Partial] = {}
        for message in self.parts_for((), rank, inputs).values() if inputs else ():
            came |= unpacked(message)
        made = list(held.made)
        for part, chunk in self.plan.takes(rank):
            folded = Partial()
            for unit in range(part * self.plan.cut.segments, (part + 1) * self.plan.cut.segments):
                self.reducer.fold(folded, came.pop((unit, chunk), {}))
            if self._is_written(part, chunk):
                continue
            values = self.reducer.finished(part, chunk, folded, self.dtype)
            if not self._put(part, chunk, values):
                made.append((part, chunk, values))
        return made

    def _is_written(self, part: int, chunk: int) -> bool:
        return False


class GivenReduction(Reducing, Work):
    """One reduction with its result returned in memory; without a graph, chunks are stored in the result at once."""

    destination: InPlace
    result: np.ndarray | None = None
    """Result of a reduction on threads of this process, without a graph."""
    versions: Versions | None = None
    """Versions of the array's chunks when it was first read."""

    def __init__(self, plan: ReducePlan, reducer: Reducer, dtype: np.dtype) -> None:
        self.plan, self.dtype = plan, dtype
        self._sealed = Sealed(reducer)
        nowhere = MemoryStore()
        self.destination = InPlace(nowhere)
        super().__init__(nowhere, plan.processes, None)

    @property
    def stores(self) -> dict[str, Any]:
        return {"source": self.reducer.file.zarr.store_path.store}

    @property
    def leaves(self) -> str:
        """Return a description of the state after an interrupted run."""
        return "nothing is left of it"

    @property
    def expected(self) -> tuple[float, float]:
        """Requests for reading, and for writing."""
        return self.plan.traffic.read_requests, 0.0

    def _create(self, *probes: tuple[int, str, str]) -> GivenReduction:
        self.check_placement(probes)
        self.versions = Versions.of(self.reducer.file)
        return self

    def _reduce(self, rank: int) -> RankPartials:
        with self.versions.reading(self.reducer.file) if self.versions else nullcontext():
            return super()._reduce(rank)

    def _put(self, part: int, chunk: int, values: np.ndarray) -> bool:
        if self.result is not None:
            self.result[self.plan.cut.place(part, chunk).slices] = values
        return self.result is not None

    def check_read(self) -> None:
        """Raise if the array has changed since it was first read."""
        if self.versions:
            self.versions.check(self.reducer.file)

    def _finish(self, *made: list[Made]) -> np.ndarray:
        self.check_read()
        result = np.empty(self.plan.cut.result_shape, self.dtype)
        for part, chunk, values in (each for of_rank in made for each in of_rank):
            result[self.plan.cut.place(part, chunk).slices] = values
        return result


class WrittenReduction(Reducing, OneTarget):
    """One reduction with its result written to a target."""

    destination: TargetSpec

    def __init__(
        self,
        plan: ReducePlan,
        reducer: Reducer,
        target: TargetSpec,
        content: Document,
        *,
        keeps: bool,
        remains: Remains = NOTHING_LEFT,
    ) -> None:
        self.plan, self.destination, self.content, self.keeps = plan, target, content, keeps
        self.dtype = np.dtype(target.settings["dtype"])
        self._sealed = Sealed(reducer)
        self.remains = remains
        super().__init__(target.store, plan.processes, remains.id)

    @property
    def source(self) -> ArrayFile:
        return self.reducer.file

    @property
    def left(self) -> float:
        """Share of the segments that remains to be read."""
        units = range(self.plan.cut.units)
        read = sum((0, unit) in self.done or self._are_all(self.done.__contains__, unit) for unit in units)
        return 1 - read / max(len(units), 1)

    def _are_all(self, done: Callable[[Part], bool], unit: int) -> bool:
        """Return whether all chunks of the result that a unit contributes to are done."""
        part, _ = self.plan.cut.unit(unit)
        return all(done((1, part, chunk)) for chunk in range(self.plan.cut.group_chunks))

    @property
    def expected(self) -> tuple[float, float]:
        """Requests for reading, and chunks to write, in the remaining work."""
        written = sum(part[0] for part in self.done)
        chunks = self.plan.cut.parts * self.plan.cut.group_chunks
        return self.left * self.plan.traffic.read_requests, float(chunks - written)

    # ------------------------------------------------------------------ beginning and end

    def _changed_places(self) -> Sequence[Any]:
        return [self.destination.store]

    def _finish(self, *made: list[Made]) -> str:
        self._end(None)
        return str(self.destination.store)

    def take_back(self) -> None:
        """Remove a target without any written chunk, as if the run had not begun."""
        self._remove_begun([self.destination.store], lambda part: part[0] > 0)

    # ------------------------------------------------------------------ kept results

    def _is_written(self, part: int, chunk: int) -> bool:
        return self.is_done((1, part, chunk))

    def _partials(self, rank: int, pool: ThreadPoolExecutor) -> Iterator[tuple[int, Partial]]:
        """Yield the kept partial results, and the others as they are read, without units of written chunks."""
        wanted = [unit for unit in self.plan.mine(rank) if not self._is_made(unit)]
        kept = {unit for unit in wanted if self._is_kept(unit)}
        ahead = self.plan.threads + 1
        read = self.reducer.partials((unit for unit in wanted if unit not in kept), pool, ahead, self.meter)
        for unit in wanted:
            found = self._kept(unit) if unit in kept else None
            if found is None and unit in kept:  # unreadable: compute it again
                _, found = next(self.reducer.partials([unit], pool, ahead, self.meter))
            elif found is None:
                _, found = next(read)
                self._keep(unit, found)
            yield unit, found

    def _is_made(self, unit: int) -> bool:
        return self._are_all(self.is_done, unit)

    def _put(self, part: int, chunk: int, values: np.ndarray) -> bool:
        if not values.size or self._is_written(part, chunk):
            return True
        place, receipts = self.plan.cut.place(part, chunk), Receipts()
        with self.meter.phase("write"):
            write_section(self.target, place.axes, values, meter=self.meter, receipts=receipts)
        self.record((1, part, chunk), {"": receipts.kept})
        return True

    def _is_kept(self, unit: int) -> bool:
        return self.keeps and self.plan.cut.segments > 1 and self.is_done((0, unit))

    def _keep(self, unit: int, found: Partial) -> None:
        """Keep a partial result for a resumed run, if it is small beside its input."""
        if not self.keeps or self.plan.cut.segments == 1:
            return
        arrays = {f"{n}.{g}.{i}": each for (n, g), state in found.items() for i, each in enumerate(state)}
        source = self.reducer.file.stored
        made_of = source.itemsize * np.prod(self.plan.cut.shape, dtype=float) / self.plan.cut.units
        if sum(array.nbytes for array in arrays.values()) > made_of / 8:
            return
        text = io.BytesIO()
        np.savez(text, **arrays)  # type: ignore[arg-type]
        self.journal.join()
        self.journal.keep((0, unit), text.getvalue())
        self.record((0, unit))

    def _kept(self, unit: int) -> Partial | None:
        """Return a kept partial result; None if it cannot be read."""
        data = self.journal.kept_bytes((0, unit))
        found: dict[tuple[int, int], list[np.ndarray]] = {}
        try:
            with np.load(io.BytesIO(data or b""), allow_pickle=False) as arrays:
                for name in arrays.files:
                    number, group, _ = map(int, name.split("."))
                    found.setdefault((number, group), []).append(arrays[name])
        except (ValueError, OSError, EOFError, zipfile.BadZipFile):
            return None
        if any(len(state) == 3 and state[2].dtype.kind in "iu" for state in found.values()):
            return None  # from an earlier version: its sums of integers may have overflowed
        return {key: tuple(state) for key, state in found.items()} or None


def build_graph(run: Reducing, addresses: Sequence[str] = ()) -> tuple[dict[Key, Task], Key]:
    """Return the graph of a reduction, and the key of its last task."""
    builder, plan, ranks = Builder(new_suffix(), Work.task, run), run.plan, range(run.plan.ranks)
    created = builder.create(addresses)
    held = [builder.add("reduce", rank, after=[created]) for rank in ranks]
    came: list[tuple[Key | None, ...]] = [() for _ in ranks]
    if plan.schedule is not None and plan.shared:
        pad = [None] * (plan.schedule.ranks - plan.ranks)
        exchange = ExchangeTasks(plan.schedule, builder.add)
        came = exchange.inputs(0, held=[*held, *pad], wants=lambda a, b: max(a, b) < plan.ranks and plan.wants(a, b))
    made = [builder.add("write", rank, buffers=(held[rank], *came[rank])) for rank in ranks]
    return builder.graph, builder.add("finish", buffers=tuple(made), rank=0)


def reduced_here(plan: ReducePlan, reducer: Reducer, dtype: np.dtype) -> tuple[np.ndarray, GivenReduction]:
    """Reduce on threads of this process without a graph; return the result, and the run that made it."""
    run = GivenReduction(plan, reducer, dtype)
    run.meter, run.result = new_meter(), np.empty(plan.cut.result_shape, dtype)
    run._create()
    run._reduce(0)
    run.check_read()
    return run.result, run
