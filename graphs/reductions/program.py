"""Reduction as a program.

    create ─┬─► reduce ─╳─► write ─► finish      each rank reduces its run of segments; partial results of
            ├─► reduce ─╳─► write ─┘             shared parts are sent to the owners of the result's chunks
            ╰─► reduce ─╳─► write ─┘
                        exchange: between workers in the schedule's steps, see `steps`

A part with all its segments on one rank is finished there at once. A journal keeps the written chunks of the result,
and partial results that are small beside their input. A resumed run reads the others again. Without a target, nothing
is written or kept, and the result is returned.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from oocarrays.graphs.exchange.messages import Exchange, Round, parts_for, steps_of
from oocarrays.graphs.reductions.reducing import FUNCTIONS, Partial, Reducer
from oocarrays.graphs.run import recording
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import Builder, Part, Program, Remaining
from oocarrays.graphs.run.run import Run
from oocarrays.graphs.run.steps import ExchangeTasks, Key
from oocarrays.plan.reductions.plan import ReducePlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.creating import TargetSpec
from oocarrays.storage.journal.texts import Kept, Receipts
from oocarrays.storage.meter import new_meter
from oocarrays.storage.sections.write import write_section

Made = tuple[int, int, np.ndarray]
"""Part, chunk of its groups, and values."""


@dataclass(slots=True, weakref_slot=True, eq=False)
class RankPartials:
    """Partial results of a rank that has read its segments; Dask does not learn their size: the plan has counted it."""

    waiting: dict[int, Partial]
    """Partial results of parts shared with other ranks, by unit."""
    made: list[Made]
    """Unwritten chunks of the result."""


def pack(live: Live[Reduction], round: Round, rank: int, held: RankPartials, final: int) -> np.ndarray | None:
    """Pack a rank's partial results for chunks that another folds, by unit, chunk of groups, column and group."""
    plan, reducer = live.program.plan, live.program.reducer
    takes = set(plan.takes(final))
    parts = {part for part, _ in takes}
    found = {
        (unit, chunk): states
        for unit, waiting in held.waiting.items()
        if plan.cut.unit(unit)[0] in parts
        for chunk, states in reducer.chunks_of(waiting)
        if (plan.cut.unit(unit)[0], chunk) in takes
    }
    return np.frombuffer(pickle.dumps(found, protocol=5), np.uint8) if found else None


@dataclass(frozen=True, kw_only=True)
class Reduction(Program):
    """Reduction of an array.

    A recorded part is ``(0, unit)`` for a kept partial result, and ``(1, part, chunk)`` for a written chunk.
    """

    phases: ClassVar[Mapping[str, str]] = {"reduce": "read", **Program.phases}
    exchange: ClassVar[Exchange] = Exchange(pack=pack)
    plan: ReducePlan
    reducer: Reducer
    """Array, and the functions that reduce it."""
    dtype: np.dtype
    target: TargetSpec | None = None
    """Target; None if the result is returned."""
    result: np.ndarray | None = None
    """Result in the memory of this process, if no task returns its parts."""

    @property
    def keeps(self) -> bool:
        """Whether small partial results are kept for a resumed run."""
        return self.target is not None and self.reducer.name != FUNCTIONS and self.plan.cut.segments > 1

    @property
    def sources(self) -> Sequence[ArrayFile]:
        return (self.reducer.file,)

    def remaining(self, done: Collection[Part], kept: Kept) -> Remaining:
        """Return the share of the segments to be read, and the chunks to be written."""
        cut, reads = self.plan.cut, self.plan.traffic.read_requests
        if self.target is None:
            return Remaining(1.0, reads, 0.0)
        read = sum((0, unit) in done or self.is_written(unit, done.__contains__) for unit in range(cut.units))
        left = 1 - read / max(cut.units, 1)
        return Remaining(left, left * reads, float(cut.parts * cut.group_chunks - sum(part[0] for part in done)))

    def is_written(self, unit: int, is_done: Callable[[Part], bool]) -> bool:
        """Return whether all chunks of the result that a unit contributes to are done."""
        part, _ = self.plan.cut.unit(unit)
        return all(is_done((1, part, chunk)) for chunk in range(self.plan.cut.group_chunks))

    def graph(self, builder: Builder, addresses: Sequence[str], done: Collection[Part]) -> Key:
        plan, ranks = self.plan, range(self.plan.ranks)
        created = builder.create(addresses)
        held = [builder.add(reduce, rank, after=[created]) for rank in ranks]
        came: list[tuple[Key | None, ...]] = [() for _ in ranks]
        if plan.schedule is not None and plan.shared:
            came = ExchangeTasks(plan.schedule, steps_of(builder)).inputs(0, held=held, wants=plan.wants)
        made = [builder.add(write, rank, buffers=(held[rank], *came[rank])) for rank in ranks]
        return builder.add(finish, buffers=tuple(made), rank=0)


def reduce(live: Live[Reduction], rank: int) -> RankPartials:
    """Reduce a rank's segments; store the chunks of the parts that it has alone."""
    plan, reducer = live.program.plan, live.program.reducer
    held, folded = RankPartials({}, []), Partial()
    with live.reading(), ThreadPoolExecutor(plan.threads, "oocarrays-reduce") as pool:
        for unit, found in _partials(live, rank, pool):
            if live.failure:
                raise live.failure
            part, segment = plan.cut.unit(unit)
            if not plan.is_whole(part, rank):
                held.waiting[unit] = found
                continue
            reducer.fold(folded, found)
            if segment == plan.cut.segments - 1:
                for chunk, states in reducer.chunks_of(folded):
                    held.made += _finished(live, part, chunk, states)
                folded = {}
    return held


def write(live: Live[Reduction], rank: int, held: RankPartials, *inputs: Any) -> list[Made]:
    """Fold the partial results for a rank, in the order of segments; return the chunks that were not written."""
    plan, reducer = live.program.plan, live.program.reducer
    came: dict[tuple[int, int], Partial] = {}
    for message in parts_for(live, (), rank, inputs).values() if inputs else ():
        came |= pickle.loads(message.data)
    made = list(held.made)
    for part, chunk in plan.takes(rank):
        folded = Partial()
        for unit in range(part * plan.cut.segments, (part + 1) * plan.cut.segments):
            reducer.fold(folded, came.pop((unit, chunk), {}))
        if not live.is_done((1, part, chunk)):
            made += _finished(live, part, chunk, folded)
    return made


def finish(live: Live[Reduction], *made: list[Made]) -> np.ndarray | str:
    """End the run; return the name of the target, or the result."""
    recording.end(live)
    program = live.program
    if program.target is not None:
        return str(program.target.store)
    result = np.empty(program.plan.cut.result_shape, program.dtype)
    for part, chunk, values in (each for of_rank in made for each in of_rank):
        result[program.plan.cut.place(part, chunk).slices] = values
    return result


def reduced_here(plan: ReducePlan, reducer: Reducer, dtype: np.dtype) -> tuple[np.ndarray, Run[Reduction]]:
    """Reduce on threads of this process without a graph; return the result, and the run that made it."""
    result = np.empty(plan.cut.result_shape, dtype)
    run = Run(Reduction(plan=plan, reducer=reducer, dtype=dtype, result=result))
    recording.list_versions(run.live)  # the caller has just opened the source: nothing else is to be checked
    run.meter = new_meter()
    reduce(run.live, 0)
    recording.end(run.live)
    return result, run


def _finished(live: Live[Reduction], part: int, chunk: int, states: Partial) -> list[Made]:
    """Finish a chunk of the result and store it; return it if there is neither a target nor a result in memory."""
    program, place = live.program, live.program.plan.cut.place(part, chunk)
    values = program.reducer.finished(part, chunk, states, program.dtype)
    if program.result is not None:
        program.result[place.slices] = values
    elif program.target is None:
        return [(part, chunk, values)]
    elif values.size and not live.is_done((1, part, chunk)):
        receipts = Receipts()
        with live.meter.phase("write"):
            write_section(live.target(), place.axes, values, meter=live.meter, receipts=receipts)
        live.record((1, part, chunk), {"": receipts.kept})
    return []


def _partials(live: Live[Reduction], rank: int, pool: ThreadPoolExecutor) -> Iterator[tuple[int, Partial]]:
    """Yield the kept partial results, and the others as they are read, without units of written chunks."""
    program, reducer, ahead = live.program, live.program.reducer, live.program.plan.threads + 1
    wanted = [unit for unit in program.plan.mine(rank) if not program.is_written(unit, live.is_done)]
    kept = {unit for unit in wanted if program.keeps and live.is_done((0, unit))}
    read = reducer.partials((unit for unit in wanted if unit not in kept), pool, ahead, live.meter)
    for unit in wanted:
        found = _kept(live, unit) if unit in kept else None
        if found is None and unit in kept:  # unreadable: compute it again
            _, found = next(reducer.partials([unit], pool, ahead, live.meter))
        elif found is None:
            _, found = next(read)
            _keep(live, unit, found)
        yield unit, found


def _keep(live: Live[Reduction], unit: int, found: Partial) -> None:
    """Keep a partial result for a resumed run, if it is small beside its input."""
    program = live.program
    if not program.keeps:
        return
    arrays = {f"{n}.{g}.{i}": each for (n, g), state in found.items() for i, each in enumerate(state)}
    itemsize, cut = program.reducer.file.stored.itemsize, program.plan.cut
    made_of = itemsize * np.prod(cut.shape, dtype=float) / cut.units
    if sum(array.nbytes for array in arrays.values()) > made_of / 8:
        return
    text = io.BytesIO()
    np.savez(text, **arrays)  # type: ignore[arg-type]
    live.journal.join()
    live.journal.keep((0, unit), text.getvalue())
    live.record((0, unit))


def _kept(live: Live[Reduction], unit: int) -> Partial | None:
    """Return a kept partial result; None if it cannot be read."""
    data = live.journal.kept_bytes((0, unit))
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
