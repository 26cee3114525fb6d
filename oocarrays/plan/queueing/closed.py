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

With several classes the recursion covers all numbers of requests of each class. Classes that differ only in private
stations (requests for disks of one speed) are counted by their number of requests: 64 alike disks with 2 requests each
are 2,145 states instead of 3^64. For larger networks, the fixed point of Bard and Schweitzer approximates the queue
with one request less by the full queue, less the request's own share.

Jain 1991, chapter 34, on which Wang and Leiss, section 3, rely; Reiser and Lavenberg 1980.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, takewhile
from typing import NamedTuple

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


def solve(network: ClosedNetwork, method: str = "auto") -> Solution:
    if method not in ("auto", "exact", "approximate"):
        raise InputError(f"method={method!r} is unknown: auto, exact, approximate")
    kinds, reach = _kinds(network), 2**22  # operations of about half a second
    within = _work(kinds) <= reach
    if method == "exact" and not within:
        raise InputError(f"method='exact' would take {_work(kinds):.2g} numbers, more than {reach}: try 'auto'")
    if within and method != "approximate":
        return _solution(network, kinds, _exactly(kinds), exact=True, error=0.0)
    return _solution(network, kinds, _nearly(kinds), exact=False, error=_error_in_part(kinds))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Kind:
    """Classes that differ only in their private stations."""

    members: tuple[int, ...]
    """Indices of the classes of this kind."""
    requests: int
    """Requests of each class."""
    shared: np.ndarray
    """Seconds of queued service at each station that several classes visit."""
    own: np.ndarray
    """Seconds of queued service at each private station, in descending order."""
    delay: float
    """Seconds without queueing."""

    @property
    def states(self) -> int:
        """Number of distributions of up to all requests over the classes."""
        return math.comb(len(self.members) + self.requests, self.requests)


class _Stay(NamedTuple):
    """Seconds of one round of a class."""

    shared: np.ndarray
    own: np.ndarray
    delay: float

    @property
    def seconds(self) -> float:
        """Seconds of a whole round."""
        return float(self.shared.sum() + self.own.sum() + self.delay)


def _kinds(network: ClosedNetwork) -> list[_Kind]:
    demands, (queued, shared) = network.demands, _queued(network)
    delays = (demands - queued).sum(axis=1).tolist()
    return _grouped(
        _Kind(
            members=(number,),
            requests=each.requests,
            shared=queued[number, shared],
            own=queued[number, _own_stations(queued[number], shared)],
            delay=delays[number],
        )
        for number, each in enumerate(network.classes)
    )


def _queued(network: ClosedNetwork) -> tuple[np.ndarray, np.ndarray]:
    """Return the seconds of queued service, classes × stations; and the stations that several classes visit."""
    demands = network.demands
    return demands / network.servers, (demands > 0).sum(axis=0) > 1


def _own_stations(queued: np.ndarray, shared: np.ndarray) -> np.ndarray:
    """Return the private stations of a class, slowest first."""
    own = np.flatnonzero(~shared & (queued > 0))
    stations: np.ndarray = own[np.argsort(-queued[own], kind="stable")]
    return stations


def _grouped(kinds: Iterable[_Kind]) -> list[_Kind]:
    """Merge equal classes into kinds."""
    found: dict[tuple[object, ...], _Kind] = {}
    for each in kinds:
        key = each.requests, tuple(each.shared), tuple(each.own), each.delay
        found[key] = replace(each, members=(*found[key].members, *each.members)) if key in found else each
    return list(found.values())


def _work(kinds: Sequence[_Kind]) -> float:
    """Return the number of operations of exact analysis."""
    states = math.prod(kind.states for kind in kinds)
    return states * sum(kind.requests * (1 + len(kind.shared) + len(kind.own)) for kind in kinds)


def _solution(
    network: ClosedNetwork, kinds: Sequence[_Kind], stays: Sequence[_Stay], *, exact: bool, error: float
) -> Solution:
    """Expand the residence of each kind to its classes' stations."""
    queued, shared = _queued(network)
    residence = network.demands - queued
    for kind, stay in zip(kinds, stays, strict=True):
        for number in kind.members:
            residence[number, shared] += stay.shared
            residence[number, _own_stations(queued[number], shared)] += stay.own
    return Solution(network=network, residence=residence, exact=exact, error=error)


# ---------------------------------------------------------------------- exactly


class _States(NamedTuple):
    """States of a kind: the number of its classes with none, one, … of their requests."""

    counts: np.ndarray
    """Number of classes by requests: states × (requests + 1)."""
    before: np.ndarray
    """State after a class with j requests loses one: of the same shape, -1 if no class has j."""


def _states(kind: _Kind) -> _States:
    """Number the states as combinations of dividers between classes with fewer requests and the others.

    In colexicographic order the number of a combination is a sum of binomials, one for each divider. Removing one
    request moves one divider by one place, so the new number differs by a known amount (Knuth, The Art of Computer
    Programming, 7.2.1.3).
    """
    many, most = len(kind.members), kind.requests
    dividers = np.fromiter(chain.from_iterable(combinations(range(many + most), most)), np.int64).reshape(-1, most)
    table = np.array(
        [[math.comb(place, j) * (place <= many + j) for j in range(most + 1)] for place in range(many + most)]
    )
    every = np.arange(most)
    dividers = dividers[np.argsort(table[dividers, every + 1].sum(axis=1))]
    edges = np.pad(dividers, ((0, 0), (1, 1)), constant_values=((0, 0), (-1, many + most)))
    counts = np.diff(edges, axis=1) - 1
    before = np.arange(len(counts))[:, None] + table[dividers, every]
    return _States(counts, np.pad(np.where(counts[:, 1:] > 0, before, -1), ((0, 0), (1, 0)), constant_values=-1))


def _exactly(kinds: Sequence[_Kind]) -> list[_Stay]:
    """Solve exactly, adding one request at a time, for all states with that number at once."""
    known = [_states(kind) for kind in kinds]
    shape = tuple(len(states.counts) for states in known)
    digits = np.unravel_index(np.arange(math.prod(shape)), shape)
    under_way = sum(
        (states.counts @ np.arange(states.counts.shape[1]))[digit] for states, digit in zip(known, digits, strict=True)
    )
    order = np.argsort(under_way, kind="stable")
    levels = np.split(order, np.cumsum(np.bincount(under_way))[:-1])
    shared = np.zeros((len(order), len(kinds[0].shared)))
    own = [np.zeros((len(order), kind.requests + 1, len(kind.own))) for kind in kinds]
    strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
    stays: list[_Stay] = []
    for level in levels[1:]:
        stays = []
        for kind, states, digit, stride, mine in zip(kinds, known, digits, strides, own, strict=True):
            for j in range(1, kind.requests + 1):
                before = states.before[digit[level], j]
                here, before = level[before >= 0], before[before >= 0]
                last = here + (before - digit[here]) * stride
                stay = kind.shared * (1 + shared[last]), kind.own * (1 + mine[last, j - 1])
                rate = j / (kind.delay + stay[0].sum(axis=1) + stay[1].sum(axis=1))[:, None]
                shared[here] += states.counts[digit[here], j, None] * rate * stay[0]
                mine[here, j] = rate * stay[1]
            stays += [_Stay(stay[0][0], stay[1][0], kind.delay)] if len(here) else []
    return stays


# ---------------------------------------------------------------------- nearly


def _nearly(kinds: Sequence[_Kind]) -> list[_Stay]:
    """Solve approximately by the fixed point of Bard and Schweitzer: queues that reproduce themselves within 1e-10."""
    many = np.array([len(kind.members) for kind in kinds], float)[:, None]
    requests = np.array([kind.requests for kind in kinds], float)[:, None]
    delay = np.array([kind.delay for kind in kinds])[:, None]
    shared = np.array([kind.shared for kind in kinds])
    own = np.zeros((len(kinds), max(len(kind.own) for kind in kinds)))
    for row, kind in zip(own, kinds, strict=True):
        row[: len(kind.own)] = kind.own
    whole = shared.sum(axis=1, keepdims=True) + own.sum(axis=1, keepdims=True) + delay
    queues, mine = requests * shared / whole, requests * own / whole
    for _ in range(20_000):
        at_shared = shared * (1 + (many * queues).sum(axis=0) - queues / requests)
        at_own = own * (1 + mine - mine / requests)
        rate = requests / (at_shared.sum(axis=1, keepdims=True) + at_own.sum(axis=1, keepdims=True) + delay)
        change = max(np.abs(rate * at_shared - queues).max(initial=0), np.abs(rate * at_own - mine).max(initial=0))
        queues, mine = rate * at_shared, rate * at_own
        if change <= 1e-10 * requests.max():
            break
    return [_Stay(at_shared[place], at_own[place, : len(kind.own)], kind.delay) for place, kind in enumerate(kinds)]


def _error_in_part(kinds: Sequence[_Kind]) -> float:
    """Return the approximation's error on as many classes as exact analysis solves in a few milliseconds, with shared
    stations as busy as before."""
    members = [replace(kind, members=(number,)) for kind in kinds for number in kind.members]
    parts = list(takewhile(lambda part: _work(part) <= 2**14, (_part(members, n + 1) for n in range(len(members)))))
    if not parts:
        return math.nan
    exact, near = (
        sum(
            len(kind.members) * kind.requests / stay.seconds
            for kind, stay in zip(parts[-1], way(parts[-1]), strict=True)
        )
        for way in (_exactly, _nearly)
    )
    return abs(near / exact - 1)


def _part(members: Sequence[_Kind], many: int) -> list[_Kind]:
    """Return ``many`` classes, evenly spaced among all members."""
    scale = len(members) / many
    chosen = (members[place] for place in (len(members) * n // many for n in range(many)))
    return _grouped(replace(each, shared=each.shared * scale) for each in chosen)
