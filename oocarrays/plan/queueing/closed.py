"""Closed queueing networks: requests that go round through stations, as many as there are, without end.

    class 0 ─┐             ┌─ routing 0 ─┬─ disk 0 ─┐
    class 1 ─┤             │             └─ disk 1 ─┤
             ├─ processor ─┤                        ├─ acknowledgement ─► and round again
    class 2 ─┤             │             ┌─ disk 2 ─┤
    class 3 ─┘             └─ routing 1 ─┴─ disk 3 ─┘

Requests wait for each other at a queueing centre; at a delay centre each is served at once. A class of requests is
those that go the same way: here, those for one disk. Wang and Leiss, section 3, Figure 6.
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
    """A place where requests take time."""

    name: str
    """One of its kind in a network."""
    servers: float = 1.0
    """Requests that it serves at one time: 1 is a queueing centre, infinity a delay centre; what lies between is taken
    for a queueing centre that is as many times as fast, and a delay for the rest of the time (Seidmann)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestClass:
    """Requests that go the same way."""

    name: str
    """One of its kind in a network."""
    requests: int
    """Requests under way."""
    demands: Mapping[str, float]
    """Seconds that one of them is served at each station, by its name, on one way round."""


@dataclass(frozen=True, slots=True)
class ClosedNetwork:
    """Stations, and classes of requests that go round through them."""

    stations: tuple[Centre, ...]
    """The places where they take time."""
    classes: tuple[RequestClass, ...]
    """The requests."""

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
        """Requests that each station serves at one time."""
        return np.array([station.servers for station in self.stations], float)

    @property
    def requests(self) -> np.ndarray:
        """Requests of each class under way."""
        return np.array([each.requests for each in self.classes], np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """The mean values of a network in its steady state."""

    network: ClosedNetwork
    """The network that was solved."""
    residence: np.ndarray
    """Seconds that a request is at each station on one way round, waiting included: classes × stations."""
    exact: bool
    """Whether by exact mean value analysis; else by the approximation of Bard and Schweitzer."""
    error: float = 0.0
    """How far the approximation's throughput is from the exact one, as a share of it, in the largest part of the
    network that was solved in both ways; 0 where the solution is exact."""

    @property
    def response(self) -> np.ndarray:
        """Seconds of one way round, by class."""
        seconds: np.ndarray = self.residence.sum(axis=1)
        return seconds

    @property
    def throughput(self) -> np.ndarray:
        """Requests a second that come round, by class."""
        rates: np.ndarray = self.network.requests / self.response
        return rates

    @property
    def queues(self) -> np.ndarray:
        """Requests at each station, those that are served among them: classes × stations (Little's law)."""
        waiting: np.ndarray = self.throughput[:, None] * self.residence
        return waiting

    @property
    def utilisation(self) -> np.ndarray:
        """The share of time in which each station works: 0 of a delay centre, whose servers are never all in use."""
        busy: np.ndarray = (self.throughput[:, None] * self.network.demands).sum(axis=0) / self.network.servers
        return busy

    def at(self, station: str) -> int:
        """Return the place of a station in the arrays, by its name."""
        return self.network.station_names.index(station)

    @property
    def bottleneck(self) -> str:
        """The name of the station that works most."""
        return self.network.station_names[int(self.utilisation.argmax())]
