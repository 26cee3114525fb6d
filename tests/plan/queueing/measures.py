"""Mean values of a solved network that the printed tables show: queues, shares of time, seconds of a round."""

from __future__ import annotations

import numpy as np

from oocarrays.plan.queueing.striping import Solution


def queues(solution: Solution) -> np.ndarray:
    """Requests at each station, including those in service: classes × stations (Little's law)."""
    waiting: np.ndarray = solution.throughput[:, None] * solution.residence
    return waiting


def utilisation(solution: Solution) -> np.ndarray:
    """Share of time in which each station is busy."""
    busy: np.ndarray = (solution.throughput[:, None] * solution.network.demands).sum(axis=0)
    return busy


def response(solution: Solution) -> float:
    """Mean seconds of one round."""
    return float(solution.network.requests.sum() / solution.throughput.sum())


def places(solution: Solution, station: str) -> list[int]:
    """Indices of the stations with this name, with or without a number."""
    return [place for place, name in enumerate(solution.network.stations) if name.split(" ")[0] == station]


def residence(solution: Solution, station: str) -> float:
    """Mean seconds of a request at the stations with this name."""
    rates = solution.throughput
    return float((rates @ solution.residence[:, places(solution, station)]).sum() / rates.sum())
