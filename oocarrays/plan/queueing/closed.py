"""Closed queueing networks: a fixed number of requests that circulate through stations without end.

    class 0 ─┐             ┌─ routing 0 ─┬─ disk 0 ─┐
    class 1 ─┤             │             └─ disk 1 ─┤
             ├─ processor ─┤                        ├─ acknowledgement ─► and round again
    class 2 ─┤             │             ┌─ disk 2 ─┤
    class 3 ─┘             └─ routing 1 ─┴─ disk 3 ─┘

Requests wait for each other at a queueing centre; at a delay centre each is served at once. A class contains the
requests with the same route: here, those for one disk. Wang and Leiss, section 3, Figure 6.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.given import whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Centre:
    """Station of a queueing network."""

    name: str
    """Name, unique in a network."""
    servers: float = 1.0
    """Number of requests served concurrently: 1 is a queueing centre, infinity a delay centre. A value between is
    modelled as a queueing centre that is faster by that factor, and a delay for the remaining time (Seidmann).
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """Requests with the same route."""

    name: str
    """Name, unique in a network."""
    requests: int
    """Number of requests under way."""
    demands: Mapping[str, float]
    """Service seconds of one request at each station on one round, by the station's name."""


@dataclass(frozen=True, slots=True)
class ClosedNetwork:
    """Stations, and classes of requests that circulate through them."""

    stations: tuple[Centre, ...]
    """Stations of the network."""
    classes: tuple[RequestClass, ...]
    """Classes of requests."""

    @classmethod
    def of(cls, stations: Sequence[Centre], classes: Sequence[RequestClass]) -> ClosedNetwork:
        network = cls(tuple(stations), tuple(classes))
        for what, names in (("stations", network.station_names), ("classes", [each.name for each in classes])):
            if len(set(names)) < len(names) or not names:
                raise InputError(f"{what}={list(names)!r} must be one at least, each of a name of its own")
        for station in stations:
            if not station.servers >= 1:
                raise InputError(f"servers={station.servers!r} of station {station.name!r} must be at least 1")
        for each in classes:
            whole(each.requests, f"requests of class {each.name!r}", 1)
            unknown = set(each.demands) - set(network.station_names)
            if unknown:
                raise InputError(f"class {each.name!r} visits {unknown.pop()!r}; there are {network.station_names!r}")
            times = list(each.demands.values())
            if not (all(0 <= time < math.inf for time in times) and sum(times) > 0):
                raise InputError(f"class {each.name!r} takes {dict(each.demands)!r}: seconds, some of them above 0")
        return network

    @property
    def station_names(self) -> tuple[str, ...]:
        return tuple(station.name for station in self.stations)

    @property
    def demands(self) -> np.ndarray:
        """Seconds of each class at each station, without waiting: classes × stations."""
        rows = [[each.demands.get(name, 0.0) for name in self.station_names] for each in self.classes]
        return np.array(rows, float)

    @property
    def servers(self) -> np.ndarray:
        """Number of requests that each station serves concurrently."""
        return np.array([station.servers for station in self.stations], float)

    @property
    def requests(self) -> np.ndarray:
        """Number of requests of each class under way."""
        return np.array([each.requests for each in self.classes], np.int64)


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

    @property
    def queues(self) -> np.ndarray:
        """Requests at each station, including those in service: classes × stations (Little's law)."""
        waiting: np.ndarray = self.throughput[:, None] * self.residence
        return waiting

    @property
    def utilisation(self) -> np.ndarray:
        """Share of time in which each station is busy; 0 for a delay centre, which has unlimited servers."""
        busy: np.ndarray = (self.throughput[:, None] * self.network.demands).sum(axis=0) / self.network.servers
        return busy

    def at(self, station: str) -> int:
        """Return the index of a station in the arrays."""
        return self.network.station_names.index(station)

    @property
    def bottleneck(self) -> str:
        """Name of the station with the highest utilisation."""
        return self.network.station_names[int(self.utilisation.argmax())]
