"""Predicted seconds of every schedule that supports some ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from oocarrays.plan.exchange.network import Mesh, Network
from oocarrays.plan.exchange.prediction import Constants, schedule_seconds
from oocarrays.plan.exchange.schedule import NAMES, Schedule, schedules


def predicted(
    sizes: np.ndarray | int, network: Network, constants: Sequence[Constants], *, names: Iterable[str] = NAMES
) -> dict[Schedule, float]:
    """Return the seconds of each schedule that supports the number of ranks: that of ``sizes``, or of the network."""
    ranks = max(np.shape(sizes), default=network.ranks)
    columns = network.columns if isinstance(network, Mesh) and ranks == network.ranks else None
    known = schedules(ranks, columns=columns, names=names)
    return {schedule: schedule_seconds(schedule, sizes, network, constants) for schedule in known}
