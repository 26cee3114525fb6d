"""Closed queueing networks: a fixed number of requests that circulate through stations without end.

    class 0 ─┐             ┌─ routing 0 ─┬─ disk 0 ─┐
    class 1 ─┤             │             └─ disk 1 ─┤
             ├─ processor ─┤                        ├─ acknowledgement ─► and round again
    class 2 ─┤             │             ┌─ disk 2 ─┤
    class 3 ─┘             └─ routing 1 ─┴─ disk 3 ─┘

Requests wait for each other at a queueing centre; at a delay centre each is served at once. A class contains the
requests with the same route: here, those for one disk. Wang and Leiss, section 3, Figure 6.

Mean value analysis: a request arriving at a station finds the queue of the network without that request.

    one class, two disks of 1 s and 2 s          requests   residence      throughput       queues
                                                    1          1.00   2.00    1 / 3.00         0.33   0.67
      R = service · (1 + queue before)              2          1.33   3.33    2 / 4.67         0.57   1.43
      X = requests / sum of R                       3          1.57   4.86    3 / 6.43         0.73   2.27
      queue = X · R

With several classes the recursion covers all numbers of requests of each class: 3^8 for two requests to each of 8
disks. For larger networks, the fixed point of Bard and Schweitzer approximates the queue with one request less by the
full queue, less the request's own share.

Jain 1991, chapter 34, on which Wang and Leiss, section 3, rely; Reiser and Lavenberg 1980.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

REACH = 2**22
"""Maximum work of an exact analysis: about half a second."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClosedNetwork:
    """Stations, and classes of requests that circulate through them."""

    stations: tuple[str, ...]
    """Names of the stations."""
    demands: np.ndarray
    """Service seconds of one request of each class at each station on one round: classes × stations."""
    requests: np.ndarray
    """Number of requests of each class under way."""
    queueing: np.ndarray
    """Whether each station is a queueing centre, which serves one request at a time; otherwise a delay centre."""

    @property
    def work(self) -> int:
        """Number of operations of exact analysis."""
        states: int = math.prod((self.requests + 1).tolist())
        return states * len(self.requests) * int(self.demands.any(axis=0).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Mean values of a network in its steady state."""

    network: ClosedNetwork
    """Solved network."""
    residence: np.ndarray
    """Seconds of a request at each station on one round, including waiting: classes × stations."""
    exact: bool
    """Whether it is from exact mean value analysis; otherwise from the approximation of Bard and Schweitzer."""
    error: float = 0.0
    """Relative error of the approximation's throughput, in the largest part of the network that was solved in both
    ways; 0 if the solution is exact.
    """

    @property
    def response(self) -> np.ndarray:
        """Seconds of one round, by class."""
        seconds: np.ndarray = self.residence.sum(axis=1)
        return seconds

    @property
    def throughput(self) -> np.ndarray:
        """Completed rounds a second, by class."""
        rates: np.ndarray = self.network.requests / self.response
        return rates


def solve(network: ClosedNetwork) -> Solution:
    """Solve a network: exactly if that is within reach."""
    if network.work <= REACH:
        return Solution(network=network, residence=exactly(network), exact=True)
    return Solution(network=network, residence=nearly(network), exact=False, error=_error_in_part(network))


def exactly(network: ClosedNetwork) -> np.ndarray:
    """Return the residence by exact analysis, adding one request at a time, for all states with that number at once."""
    shape = tuple((network.requests + 1).tolist())
    here = np.indices(shape).reshape(len(shape), -1)
    queues = np.zeros((here.shape[1], len(network.stations)))
    under_way = here.sum(axis=0)
    order = np.argsort(under_way, kind="stable")
    stays: list[np.ndarray] = []
    for level in np.split(order, np.cumsum(np.bincount(under_way))[:-1])[1:]:
        stays = []
        for axis, (mine, demands) in enumerate(zip(here, network.demands, strict=True)):
            states = level[mine[level] > 0]
            before = states - math.prod(shape[axis + 1 :])
            stay = demands * (1 + queues[before])
            rate = mine[states, None] / stay.sum(axis=1, keepdims=True)
            queues[states] += rate * stay * network.queueing
            stays.append(stay)
    return np.concatenate(stays)


def nearly(network: ClosedNetwork) -> np.ndarray:
    """Return the residence by the fixed point of Bard and Schweitzer: queues that reproduce themselves within 1e-10."""
    demands, requests = network.demands, network.requests[:, None]
    stay, queues = demands, np.zeros(demands.shape)
    for _ in range(20_000):
        again = requests * stay / stay.sum(axis=1, keepdims=True) * network.queueing
        change = np.abs(again - queues).max()
        queues = again
        stay = demands * (1 + queues.sum(axis=0) - queues / requests)
        if change <= 1e-10 * requests.max():
            break
    return stay


def _error_in_part(network: ClosedNetwork) -> float:
    """Return the approximation's error on as many classes as exact analysis solves in a few milliseconds, with shared
    stations as busy as before."""
    every = (_part(network, many + 1) for many in range(len(network.requests)))
    parts = list(takewhile(lambda part: part.work <= 2**14, every))
    if not parts:
        return math.nan
    exact, near = (float((parts[-1].requests / way(parts[-1]).sum(axis=1)).sum()) for way in (exactly, nearly))
    return abs(near / exact - 1)


def _part(network: ClosedNetwork, many: int) -> ClosedNetwork:
    """Return ``many`` classes, evenly spaced among all."""
    classes = len(network.requests)
    chosen = [classes * number // many for number in range(many)]
    shared = network.queueing & ((network.demands > 0).sum(axis=0) > 1)
    demands = network.demands[chosen] * np.where(shared, classes / many, 1.0)
    return replace(network, demands=demands, requests=network.requests[chosen])
