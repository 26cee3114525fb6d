"""Runs whose ranks pack a message for each other into an outbox: the tasks of their exchange between workers."""

from __future__ import annotations

from typing import Any

import numpy as np

from oocarrays.graphs.run.buffers import Outbox
from oocarrays.graphs.run.steps import arrived_parts, sent_parts
from oocarrays.graphs.run.work import Work


class OutboxRun(Work):
    """One run whose plan has a ``schedule``: in each of its rounds ranks exchange what is in their outboxes."""

    def _send(self, number: int, stage: int, rank: int, outbox: Outbox | None, carried: Any) -> Any:
        """The message for this step's partner."""
        message = sent_parts(self.plan.schedule, stage, rank, outbox.messages if outbox else [], carried)
        if message is not None:
            self.meter.add(messages=1, sent_bytes=message.nbytes)
        return message

    def _receive(
        self, number: int, stage: int, rank: int, there: dict[int, np.ndarray] | None, *messages: Any
    ) -> dict[int, np.ndarray]:
        """What has come for this rank, by the rank that packed it."""
        return {**(there or {}), **arrived_parts(rank, messages)}

    def _taken(self, number: int, stage: int, rank: int) -> None:
        """Say that a step's message has been received."""
