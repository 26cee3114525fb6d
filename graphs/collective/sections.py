"""Collective reads and writes as tasks.

Reads

    between threads    make ─┬─► gather 1 ─┬─► part      an aggregator's share of a round is copied straight into
                       make ─┼─► gather 2 ─┼─► part      the parts of all ranks that want it, then released
                             └─► …         │

    between workers    read 1 ─► message ─╳─► fill 1 ─► finish 2     all messages of a round at one time
                       read 1 ─► keep, send ─╳─► receive ─► …        or by a schedule; meanwhile the next round is read,
                       read 2 ─► …                                   and round k + 2 when round k has been received

    independent        read for itself ─► part

The functions of a read's tasks are in `oocarrays.graphs.collective.read_tasks`. Thakur 1995, section 6.3.1.

Writes

    part ─► own ─► there ─┐
    part ─► own ─► there ─┴─► begin ─┐           nothing is written before every rank's part exists
                                     │
    between threads    own, own ─────┴─► write 1 ─► write 2 ─► … ─► done       straight from the parts

    between workers    own ─► send ─╳─► receive ─► write 1 ─► … ─► done        the messages of the next round arrive
                                    ╳─► receive ─► write 2 ─┘                  while this one is written

An aggregator copies the messages of a round into chunks when all have arrived, the lowest rank first: the result where
sections overlap does not depend on the order of arrival. One task makes and replaces a chunk, so repeating it, after
the loss of a worker or in another run, yields the same chunk. Thakur 1995, section 6.3.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from oocarrays.errors import RunError
from oocarrays.graphs.collective import read_tasks as tasks
from oocarrays.graphs.collective.read_tasks import selected
from oocarrays.graphs.events import BEGUN, is_as_noted, noted, this_worker, write_down
from oocarrays.graphs.exchange.messages import Came, Exchange, Round, available, steps_of
from oocarrays.graphs.layouts.parts import Parts
from oocarrays.graphs.run.execution import Graph
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.run.program import SUFFIX, Builder, InPlace, Program, RoundsAhead, new_suffix
from oocarrays.graphs.run.recording import begin_note, end_note
from oocarrays.graphs.run.run import Run, barrier, call
from oocarrays.graphs.run.steps import ExchangeTasks, Key, Taking
from oocarrays.kernels.results import on_host
from oocarrays.mapping.casting import misfit
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Selection, lengths
from oocarrays.plan.collective.read import AHEAD, CollectivePlan
from oocarrays.plan.collective.wanted import places
from oocarrays.plan.collective.write import CollectiveWritePlan
from oocarrays.plan.machine import spread
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.journal.texts import contents
from oocarrays.storage.meter import Meter
from oocarrays.storage.sections.write import RankPiece, write_pieces

if TYPE_CHECKING:
    from distributed import Worker


def collective_read(
    file: ArrayFile,
    plan: CollectivePlan,
    workers: Sequence[str],
    meter: Meter | None = None,
    selections: Sequence[Selection] = (),
    **how: Any,
) -> Parts:
    run = Run(tasks.Reading(file=file, plan=plan, selections=tuple(selections), **how))
    run.meter = meter or run.meter
    builder = Builder(run.id, call, run)
    builder.share("reading")
    between_workers = _in_steps if plan.schedule else _at_one_time
    together = between_workers if plan.processes else _between_threads
    keys = _first(builder, plan, tasks.independent) if plan.method == "independent" else together(builder, plan)
    homes = {builder.suffix: spread(plan.ranks, workers)} if workers else {}
    return Parts.of(builder.graph, keys, file.dtype, homes)


def _first(builder: Builder, plan: CollectivePlan, function: Callable[..., Any]) -> list[Key]:
    """Add the first task of each rank, after a version check of all wanted chunks."""
    looked = builder.add(tasks.look, rank=0)
    return [builder.add(function, rank, buffers=(looked,)) for rank in range(plan.ranks)]


def _reads(
    builder: Builder, plan: CollectivePlan, number: int, begun: Sequence[Key], taken: Sequence[Sequence[Key]]
) -> list[Key | None]:
    """Add the reads of a round, once an earlier one has been received; own shares go straight into the part."""
    return [
        builder.add(tasks.read, number, rank, buffers=(begun[rank],), after=taken[rank]) if boxes else None
        for rank, boxes in enumerate(plan.rounds[number])
    ]


def _between_threads(builder: Builder, plan: CollectivePlan) -> list[Key]:
    """Add one task per aggregator and round: threads hold only the memory of the running tasks."""
    ranks = range(plan.ranks)
    parts = _first(builder, plan, tasks.make)
    done: list[list[Key]] = [[] for _ in ranks]
    for number, each in enumerate(plan.rounds):
        for source in (rank for rank in ranks if each[rank]):
            wanting = tasks.wanting(plan, number, source)
            key = builder.add(tasks.gather, number, source, buffers=tuple(parts[rank] for rank in wanting))
            for rank in wanting:
                done[rank].append(key)
    return [builder.add(tasks.filled, rank, buffers=(parts[rank],), after=done[rank]) for rank in ranks]


def _at_one_time(builder: Builder, plan: CollectivePlan) -> list[Key]:
    """Send all messages of a round at one time: fewest tasks, no order."""
    ranks, parts = range(plan.ranks), _first(builder, plan, tasks.begin)
    begun = tuple(parts)
    some = np.asarray(plan.read.all_sizes.any(axis=1))
    taken = RoundsAhead[list[list[Key]]](AHEAD, [[] for _ in ranks])
    for number in range(len(plan.rounds)):
        sizes = plan.read.sizes(number)
        packed = _reads(builder, plan, number, begun, taken.before)
        now: list[list[Key]] = [[] for _ in ranks]
        for rank in ranks:
            others = [source for source in ranks if source != rank and sizes[source, rank]]
            own = packed[rank] if sizes[rank, rank] else None
            if own is None and not others:
                continue
            came = [builder.add(tasks.message, number, rank, source, buffers=(packed[source],)) for source in others]
            function: Callable[..., Any] = tasks.fill if some[number + 1 :, rank].any() else tasks.finish
            parts[rank] = builder.add(function, number, rank, buffers=(parts[rank], own, *came))
            if number + AHEAD < len(plan.rounds):
                took = builder.add(barrier, number, rank, name="took", after=[parts[rank]])
                for source in (*others, rank):
                    now[source].append(took)
        taken.add(now)
    return [parts[r] if some[:, r].any() else builder.add(tasks.end, r, buffers=(parts[r],)) for r in ranks]


def _in_steps(builder: Builder, plan: CollectivePlan) -> list[Key]:
    """Run one scheduled exchange per round, in sequence."""
    assert plan.schedule is not None, "there are steps"
    exchange = ExchangeTasks(plan.schedule, steps_of(builder))
    ranks, parts = range(plan.ranks), _first(builder, plan, tasks.begin)
    begun = tuple(parts)
    taken = RoundsAhead[list[list[Key]]](AHEAD, [[] for _ in ranks])
    for number in range(len(plan.rounds)):
        sizes = plan.read.sizes(number)
        packed = _reads(builder, plan, number, begun, taken.before)
        kept = [
            builder.add(tasks.keep, number, r, buffers=(parts[r], packed[r])) if sizes[r, r] else parts[r]
            for r in ranks
        ]
        made = exchange.build(
            number,
            outboxes=packed,
            regions=kept,
            wants=lambda origin, final, sizes=sizes: bool(sizes[origin, final]),  # type: ignore[misc]
        )
        parts = [part for part in made if part is not None]
        taken.add([[*exchange.before(rank), kept[rank]] for rank in ranks])
    return [builder.add(tasks.end, rank, buffers=(parts[rank],)) for rank in ranks]


def _last(worker: Worker) -> Key:
    """Return the key of the last task of the current task's graph."""
    suffix = SUFFIX.search(str(worker.get_current_task()))
    assert suffix, "tasks of a run have its suffix in their keys"
    return (f"done-{suffix[1]}", 0)


def pack(live: Live[Writing], round: Round, rank: int, held: np.ndarray, final: int) -> np.ndarray | None:
    """Pack the elements of a rank for an aggregator, box by box; a view if a single contiguous piece."""
    plan = live.program.plan
    if final == rank:
        return None
    found = [
        np.ascontiguousarray(values, live.program.file.dtype)
        for box in plan.rounds[round[0]][final]
        for _, values in _pieces(plan, box, {rank: held})
    ]
    return live.rooms.joined(found) if found else None


@dataclass(frozen=True, kw_only=True)
class Writing(Program):
    """Collective write to an existing array."""

    threads_stay: ClassVar[bool] = True
    exchange: ClassVar[Exchange] = Exchange(pack=pack)
    plan: CollectiveWritePlan
    file: ArrayFile
    selections: tuple[Selection, ...] = ()
    """Arrangement of each rank's part, if it differs from the order of writing."""

    @property
    def destination(self) -> InPlace:
        return InPlace(self.file.folder or self.file.zarr.store_path)

    @property
    def stores(self) -> dict[str, Any]:
        return {"target": self.file.zarr.store_path.store}

    @property
    def leaves(self) -> str:
        return f"{self.file.name} may hold a part of what was to be written: run it again, or resume it"


# ---------------------------------------------------------------------- parts


def own(live: Live[Writing], rank: int, part: Any) -> np.ndarray:
    """Return a rank's part in the order of writing, checked; a view if it is indexed by slices only."""
    selections, made = live.program.selections, on_host(part)
    shape = selections[rank].shape if selections else lengths(live.program.plan.requests[rank])
    if made.shape != shape:
        raise RunError(f"the part of rank {rank} has shape {made.shape}; its section has {shape}")
    ordered = selections[rank].spread(made) if selections else made
    _check_same(live, rank, ordered)
    return ordered


def there(live: Live[Writing], rank: int, part: np.ndarray) -> int | None:
    """Raise if a part does not fit the dtype; return its checksum for the note, if the run has one."""
    dtype = live.program.file.dtype
    unfit = misfit(part, dtype)
    if unfit is not None:
        raise RunError(f"the part of rank {rank} has {unfit}; the array has dtype {dtype}: use astype")
    return contents(part) if live.program.note else None


def begin(live: Live[Writing], rank: int, *parts: int | None) -> None:
    """Record that all parts exist: reads of the target by their computation are complete."""
    live.state.begun = True
    begin_note(live, *parts)
    if worker := this_worker():
        write_down(_last(worker), BEGUN, True)


def given(live: Live[Writing], rank: int, part: np.ndarray) -> np.ndarray:
    return part


def _check_same(live: Live[Writing], rank: int, part: np.ndarray) -> None:
    """Record the checksum of a part until writing begins; afterwards raise if a recomputed part differs.

    A part computed from the target itself differs: it was lost with its worker, and some of the array is new.
    """
    if (worker := this_worker()) is None:
        return
    last, name, found = _last(worker), f"part {rank}", contents(part)
    if not noted(last, BEGUN):
        write_down(last, name, found)
    elif not is_as_noted(last, name, found):
        raise RunError(
            f"{live.program.file.name} holds old and new elements: the part of rank {rank} was lost with its worker "
            "while parts were being written, and its recomputed values differ"
        )


# ---------------------------------------------------------------------- writing


def room(live: Live[Writing], number: int, rank: int) -> Came:
    """Allocate the receive buffer of a round, once an earlier round has been written."""
    return Came({})


def write(live: Live[Writing], number: int, rank: int, *inputs: Any) -> None:
    """Write an aggregator's share of a round, from parts in place and from messages."""
    plan, file = live.program.plan, live.program.file
    held, came = available(live, rank, inputs)
    live.meter.add(messages=len(held.keys() - {rank}))
    messages = {source: part.view(file.dtype) for source, part in came.items()}
    for box in plan.rounds[number][rank]:
        pieces = [*_pieces(plan, box, held, messages)]
        write_pieces(file, pieces, plan.coverage, at_once=plan.at_once, meter=live.meter)


def _pieces(
    plan: CollectiveWritePlan,
    box: Section,
    held: Mapping[int, np.ndarray],
    messages: dict[int, np.ndarray] | None = None,
) -> Iterator[RankPiece]:
    """Yield the elements of a box that remain visible, lowest rank first, from parts and messages."""
    for rank, axes in plan.coverage.standing(box):
        if rank in held:
            where, _ = places(plan.requests[rank], box, axes)
            yield axes, selected(held[rank], where)
        elif messages is not None:
            shape = lengths(axes)
            here, messages[rank] = np.split(messages[rank], [math.prod(shape)])
            yield axes, here.reshape(shape)


def done(live: Live[Writing], rank: int) -> str:
    """Mark the write as complete, after checking that the array exists."""
    live.program.file.presence.check()
    end_note(live)
    live.journal.release()
    return live.program.file.name


# ---------------------------------------------------------------------- the graph


def build_graph(run: Run[Writing], parts: Sequence[Key]) -> Graph:
    """Return the graph of a write of ``parts``, and the key of its last task."""
    builder = Builder(new_suffix(), call, run)
    if run.on_workers:
        builder.share("writing")
    owns = [builder.add(own, rank, buffers=(part,)) for rank, part in enumerate(parts)]
    fit = [builder.add(there, rank, buffers=(part,)) for rank, part in enumerate(owns)]
    begun = builder.add(begin, 0, buffers=tuple(fit))
    held = [builder.add(given, rank, buffers=(part,), after=[begun]) for rank, part in enumerate(owns)]
    written = _rounds(builder, run.program.plan, held, workers=run.on_workers)
    return builder.graph, builder.add(done, 0, after=[begun, *written])


def _rounds(builder: Builder, plan: CollectiveWritePlan, held: Sequence[Key], *, workers: bool) -> Iterator[Key]:
    """Yield the write tasks: threads need not wait for each other's, workers have one exchange per round."""
    exchange = Taking() if plan.schedule is None else ExchangeTasks(plan.schedule, steps_of(builder))
    written = [RoundsAhead[list[Key]](AHEAD, []) for _ in held]
    for number, each in enumerate(plan.rounds):
        sizes = plan.all_sizes[number]
        inputs = exchange.inputs(
            number,
            held=held,
            wants=lambda origin, final, sizes=sizes: bool(sizes[origin, final]),  # type: ignore[misc]
            regions=_rooms(builder, number, sizes, written) if workers else (),
        )
        for rank in (rank for rank, boxes in enumerate(each) if boxes):
            key = builder.add(write, number, rank, buffers=inputs[rank], after=written[rank].last)
            if workers:
                written[rank].add([key])
            yield key


def _rooms(
    builder: Builder, number: int, sizes: np.ndarray, written: Sequence[RoundsAhead[list[Key]]]
) -> list[Key | None]:
    """Add the receive buffers of a round for ranks that receive, once an earlier round has been written."""
    comes = (sizes.sum(axis=0) > np.diagonal(sizes)).tolist()
    return [
        builder.add(room, number, rank, after=written[rank].before) if some else None for rank, some in enumerate(comes)
    ]
