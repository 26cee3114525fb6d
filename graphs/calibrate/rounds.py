"""Seconds of an exchange step between workers, if one task of a rank handles a whole round without the scheduler.

    read ─► together     RANKS ranks, RANKS − 1 steps of small messages
    read ─► alone        as many tasks, no steps: subtracted

Thakur 1995, section 4.2: a step costs its start-up time, however small its messages.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from oocarrays.graphs.calibrate.exchange import TIMEOUT_SECONDS, await_all
from oocarrays.graphs.cluster.pins import pin
from oocarrays.graphs.cluster.placement import TOGETHER
from oocarrays.graphs.exchange.messages import Messages, Round
from oocarrays.graphs.exchange.whole import whole_round
from oocarrays.graphs.run.builder import Builder, Outbox, new_suffix
from oocarrays.graphs.run.telling import this_worker
from oocarrays.mapping.layouts.local import spread
from oocarrays.plan.cost import crowding
from oocarrays.plan.exchange.schedule import Schedule, complete_exchange

if TYPE_CHECKING:  # its import takes longer than most commands
    from distributed import Client

RANKS = 8
"""Number of ranks that exchange; on more workers, one rank a worker."""
MESSAGE_BYTES = 64
"""Bytes of each message."""
TIMES = 4
"""Repetitions of both measurements: the first opens connections."""


@dataclass(eq=False, kw_only=True)
class SmallRound(Messages):
    """Tasks of a round in which every rank has a few bytes for every other rank."""

    schedule: Schedule
    """Steps, with their senders and receivers."""
    homes: Sequence[str]
    """Worker of each rank."""

    def __post_init__(self) -> None:
        self.id = new_suffix()
        self._arrive()

    @property
    def on_workers(self) -> bool:
        return True

    def order(self, round: Round) -> Schedule:
        return self.schedule

    def unpacked(self, round: Round, rank: int, there: Any, came: dict[int, np.ndarray | None]) -> None:
        """Check the received messages, and discard them."""
        assert all(part is None or len(part) == MESSAGE_BYTES for part in came.values())

    def _read(self, rank: int) -> Outbox:
        """Make the messages of a rank, and register them for the other ranks."""
        from oocarrays.graphs.exchange.between import Exchanges

        worker = this_worker()
        assert worker is not None, "ranks are workers"
        outbox = Outbox([np.zeros(MESSAGE_BYTES, "u1") for _ in range(self.schedule.ranks)], None)
        Exchanges.of(worker).hold(self, (), rank, outbox)
        return outbox

    def _alone(self, rank: int, outbox: Outbox) -> None:
        """Send nothing."""


def whole_step_seconds(client: Client, workers: Sequence[str], cores: int) -> float:
    """Measure a step of a round handled by one task per rank, on an idle cluster of two or more workers.

    The result is scaled to at most two ranks for each of the ``cores``.
    """
    ranks = max(RANKS, len(workers))
    with_steps, without = (
        min(_seconds(client, workers, ranks, whole=whole) for _ in range(TIMES)) for whole in (True, False)
    )
    return max(with_steps - without, 1e-4) / (ranks - 1) / crowding(ranks, cores)


def _seconds(client: Client, workers: Sequence[str], ranks: int, *, whole: bool) -> float:
    homes = spread(ranks, workers)
    run = SmallRound(schedule=complete_exchange(ranks), homes=homes)
    builder = Builder(run.id, SmallRound.task, run)
    builder.share("exchange")
    read = [builder.add("read", rank) for rank in range(ranks)]
    if whole:
        ends = [builder.add_whole(whole_round, TOGETHER, rank, held=read[rank], after=read) for rank in range(ranks)]
    else:
        ends = [builder.add("alone", rank, buffers=(read[rank],), after=read) for rank in range(ranks)]
    pin(client, run.id, homes, run.topic)
    start = time.perf_counter()
    futures: list[Any] = client.get(builder.graph, ends, sync=False)  # type: ignore[no-untyped-call]
    await_all(futures, "a round of small messages", TIMEOUT_SECONDS)
    for future in futures:
        future.result()
    return time.perf_counter() - start
