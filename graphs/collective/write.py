"""Collective write as tasks.

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
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from oocarrays.errors import RunError
from oocarrays.graphs.collective.read_tasks import selected
from oocarrays.graphs.events import BEGUN, is_as_noted, noted, this_worker, write_down
from oocarrays.graphs.exchange.messages import Came, Messages, Round
from oocarrays.graphs.run.builder import Builder, RoundsAhead, new_suffix
from oocarrays.graphs.run.steps import ExchangeTasks, Key, Taking
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.graphs.run.work import SUFFIX, NotedRun, Work
from oocarrays.kernels.results import on_host
from oocarrays.mapping.casting import misfit
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Selection, lengths
from oocarrays.plan.collective.read import AHEAD
from oocarrays.plan.collective.wanted import places
from oocarrays.plan.collective.write import CollectiveWritePlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.journal.receipts import contents
from oocarrays.storage.sections.overlay import Piece, write_pieces

if TYPE_CHECKING:
    from distributed import Worker


def _last(worker: Worker) -> Key:
    """Return the key of the last task of the current task's graph."""
    suffix = SUFFIX.search(str(worker.get_current_task()))
    assert suffix, "tasks of a run have its suffix in their keys"
    return (f"done-{suffix[1]}", 0)


class WritingRun(Messages, NotedRun):
    """One run of a collective write, shared by its tasks."""

    unsent: ClassVar[tuple[str, ...]] = ("destination",)
    threads_stay: ClassVar[bool] = True
    plan: CollectiveWritePlan

    def __init__(
        self,
        plan: CollectiveWritePlan,
        file: ArrayFile,
        selections: Sequence[Selection] = (),
        note: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        self.selections = tuple(selections)
        self._file = Sealed(file)
        super().__init__(file.folder or file.zarr.store_path, plan.processes, dict(note))

    @property
    def file(self) -> ArrayFile:
        """Array to write."""
        return self._file.value

    def begin_anew(self) -> None:
        """Discard the counts and errors of an earlier run in this process."""
        self._here()

    @property
    def stores(self) -> dict[str, Any]:
        """Target store."""
        return {"target": self.file.zarr.store_path.store}

    @property
    def leaves(self) -> str:
        """Return a description of the state after an interrupted run."""
        return f"{self.file.name} may hold a part of what was to be written: run it again, or resume it"

    # ------------------------------------------------------------------ parts

    def _own(self, rank: int, part: Any) -> np.ndarray:
        """Return a rank's part in the order of writing, checked; a view if it is indexed by slices only."""
        made, wanted = on_host(part), lengths(self.plan.requests[rank])
        shape = self.selections[rank].shape if self.selections else wanted
        if made.shape != shape:
            raise RunError(f"the part of rank {rank} has shape {made.shape}; its section has {shape}")
        own = self.selections[rank].spread(made) if self.selections else made
        self._check_same(rank, own)
        return own

    def _there(self, rank: int, own: np.ndarray) -> int | None:
        """Raise if a part does not fit the dtype; return its checksum for the note, if the run has one."""
        unfit = misfit(own, self.file.dtype)
        if unfit is not None:
            raise RunError(f"the part of rank {rank} has {unfit}; the array has dtype {self.file.dtype}: use astype")
        return contents(own) if self.note else None

    def _begin(self, rank: int, *parts: int | None) -> None:
        """Record that all parts exist: reads of the target by their computation are complete."""
        self._say_begun(*parts)
        if worker := this_worker():
            write_down(_last(worker), BEGUN, True)

    def _given(self, rank: int, own: np.ndarray) -> np.ndarray:
        return own

    def _check_same(self, rank: int, own: np.ndarray) -> None:
        """Record the checksum of a part until writing begins; afterwards raise if a recomputed part differs.

        A part computed from the target itself differs: it was lost with its worker, and some of the array is new.
        """
        if (worker := this_worker()) is None:
            return
        last, name, found = _last(worker), f"part {rank}", contents(own)
        if not noted(last, BEGUN):
            write_down(last, name, found)
        elif not is_as_noted(last, name, found):
            raise RunError(
                f"{self.file.name} holds old and new elements: the part of rank {rank} was lost with its worker while "
                "parts were being written, and its recomputed values differ"
            )

    # ------------------------------------------------------------------ between workers

    def packed(self, round: Round, rank: int, held: np.ndarray, final: int) -> np.ndarray | None:
        """Pack the elements of a rank for an aggregator, box by box; a view if a single contiguous piece."""
        if final == rank or final >= self.plan.ranks:
            return None
        found = [
            np.ascontiguousarray(values, self.file.dtype)
            for box in self.plan.rounds[round[0]][final]
            for _, values in self._pieces(box, {rank: held})
        ]
        return self.rooms.joined(found) if found else None

    def _room(self, number: int, rank: int) -> Came:
        """Allocate the receive buffer of a round, once an earlier round has been written."""
        return Came({})

    # ------------------------------------------------------------------ writing

    def _pieces(
        self, box: Section, held: Mapping[int, np.ndarray], messages: dict[int, np.ndarray] | None = None
    ) -> Iterator[Piece]:
        """Yield the elements of a box that remain visible, lowest rank first, from parts and messages."""
        for rank, axes in self.plan.standing(box):
            if rank in held:
                there, _ = places(self.plan.requests[rank], box, axes)
                yield axes, selected(held[rank], there)
            elif messages is not None:
                shape = lengths(axes)
                here, messages[rank] = np.split(messages[rank], [math.prod(shape)])
                yield axes, here.reshape(shape)

    def _write(self, number: int, rank: int, *inputs: Any) -> None:
        """Write an aggregator's share of a round, from parts in place and from messages."""
        held, came = self.available(rank, inputs)
        self.meter.add(messages=len(held.keys() - {rank}))
        messages = {source: part.view(self.file.dtype) for source, part in came.items()}
        for box in self.plan.rounds[number][rank]:
            pieces, plan = [*self._pieces(box, held, messages)], self.plan
            write_pieces(self.file, pieces, plan.coverage, plan.inner, at_once=plan.at_once, meter=self.meter)

    def _done(self, rank: int) -> str:
        """Mark the write as complete, after checking that the array exists."""
        self.file.presence.check()
        self._say_done()
        self.journal.release()
        return self.file.name


# ---------------------------------------------------------------------- the graph


class WritingBuilder(Builder):
    """Builder of the graph of one run."""

    def __init__(self, run: WritingRun, parts: Sequence[Key]) -> None:
        super().__init__(new_suffix(), Work.task, run)
        self.run, self.plan, self.parts = run, run.plan, parts
        if run.processes is not None:
            self.share("writing")

    def build(self) -> Key:
        """Add every task; return the key of the last one."""
        owns = [self.add("own", rank, buffers=(part,)) for rank, part in enumerate(self.parts)]
        there = [self.add("there", rank, buffers=(own,)) for rank, own in enumerate(owns)]
        begin = self.add("begin", 0, buffers=tuple(there))
        given = [self.add("given", rank, buffers=(own,), after=[begin]) for rank, own in enumerate(owns)]
        return self.add("done", 0, after=[begin, *self._rounds(given)])

    def _rounds(self, given: Sequence[Key]) -> Iterator[Key]:
        """Yield the write tasks: threads need not wait for each other's, workers have one exchange per round."""
        plan, workers = self.plan, self.run.processes is not None
        exchange = Taking() if plan.schedule is None else ExchangeTasks(plan.schedule, self.add)
        written = [RoundsAhead[list[Key]](AHEAD, []) for _ in given]
        for number, each in enumerate(plan.rounds):
            sizes = plan.all_sizes[number]
            inputs = exchange.inputs(
                number,
                held=given,
                wants=lambda origin, final, sizes=sizes: bool(sizes[origin, final]),  # type: ignore[misc]
                regions=self._rooms(number, written) if workers else (),
            )
            for rank in (rank for rank, boxes in enumerate(each) if boxes):
                key = self.add("write", number, rank, buffers=inputs[rank], after=written[rank].last)
                if workers:
                    written[rank].add([key])
                yield key

    def _rooms(self, number: int, written: Sequence[RoundsAhead[list[Key]]]) -> list[Key | None]:
        """Add the receive buffers of a round for ranks that receive, once an earlier round has been written."""
        sizes = self.plan.all_sizes[number]
        comes = (sizes.sum(axis=0) > np.diagonal(sizes)).tolist()
        return [
            self.add("room", number, rank, after=written[rank].before) if some else None
            for rank, some in enumerate(comes)
        ]
