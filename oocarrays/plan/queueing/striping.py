"""A striped file as a closed network: C requests a disk for blocks of B bytes circulate on routings shared by disks.

    C = 2 on 4 disks, 2 routings      8 requests        least of      D · C / response without other load
                                                        rate is       1 / processor        seconds a block
    ○○○○○○○○ ─ processor ─┬─ ○○○○ ─┬─ ○○ disk 0         at most       1 / routing · routings
                          │        └─ ○○ disk 1                       1 / link of all
                          └─ ○○○○ ─┬─ ○○ disk 2                       D / disk
                                   └─ ○○ disk 3

The law of the speed-up: D disks are D times as fast as one until a shared station is saturated: the processor, a
routing, or a device below several disks. Wang and Leiss, section 3 and Figure 6.

Mean value analysis: a request arriving at a station finds the queue of the network without that request.

    one class, two disks of 1 s and 2 s          requests   residence      throughput       queues
                                                    1          1.00   2.00    1 / 3.00         0.33   0.67
      R = service · (1 + queue before)              2          1.33   3.33    2 / 4.67         0.57   1.43
      X = requests / sum of R                       3          1.57   4.86    3 / 6.43         0.73   2.27
      queue = X · R

A class contains the requests for one disk. With several classes the recursion covers all numbers of requests of each:
3^8 for two requests to each of 8 disks. For larger networks, the fixed point of Bard and Schweitzer approximates the
queue with one request less by the full queue, less the request's own share.

Jain 1991, chapter 34, on which Wang and Leiss rely; Reiser and Lavenberg 1980.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import takewhile

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.given import whole

REACH = 2**22
"""Maximum work of an exact analysis: about half a second."""
SATURATED = 0.95
"""Share of the maximum rate that counts as all of it."""
MOST_BUFFERS = 64
"""Maximum number of blocks of a disk under way that are compared."""
CPU, SHARED, NETWORK, DISK = "processor", "shared", "routing", "disk"
"""Names of stations; those of routings and disks are followed by their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTimes:
    """Seconds of a block at each stage."""

    block: int
    disks: tuple[float, ...]
    """Seconds at each disk."""
    cpu: float = 0.0
    """Seconds at the processor: to locate and copy the block."""
    network: float = 0.0
    """Seconds on its routing to the disk."""
    shared: float = 0.0
    """Seconds at a stage shared by all disks besides the processor: a bus, or a device that holds several folders."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StripedRate:
    """Predicted rate of a long transfer."""

    times: BlockTimes
    buffers: int
    """Blocks of a disk under way: C."""
    solution: Solution

    @property
    def rate(self) -> float:
        """Bytes a second: blocks lie on disks in turn, so the slowest disk sets the rate of all."""
        return float(self.solution.throughput.min()) * len(self.times.disks) * self.times.block

    def seconds(self, nbytes: int) -> float:
        """Return the seconds of transferring a number of bytes, without start and end effects."""
        return nbytes / self.rate


def striped_network(times: BlockTimes, buffers: int, routings: int = 1) -> ClosedNetwork:
    """Return the network of a striped file; neighbouring disks share a routing."""
    whole(buffers, "buffers", 1)
    disks, most = len(times.disks), whole(routings, "routings", 1)
    if not disks:
        raise InputError("a striped file has one disk at least")
    classes = [
        {
            CPU: times.cpu,
            SHARED: times.shared,
            f"{DISK} {number}": disk,
            f"{NETWORK} {number * min(most, disks) // disks}": times.network,
        }
        for number, disk in enumerate(times.disks)
    ]
    for each in classes:
        if not (all(0 <= seconds < math.inf for seconds in each.values()) and any(each.values())):
            raise InputError(f"a block takes {each!r}: seconds, some of them above 0")
    stations = tuple(dict.fromkeys(name for each in classes for name, seconds in each.items() if seconds))
    demands = np.array([[each.get(name, 0.0) for name in stations] for each in classes])
    return ClosedNetwork(stations=stations, demands=demands, requests=np.full(disks, buffers))


def striped_rate(times: BlockTimes, buffers: int, routings: int = 1) -> StripedRate:
    """Predict a long transfer; the parameters are those of `striped_network`."""
    return StripedRate(times=times, buffers=buffers, solution=solve(striped_network(times, buffers, routings)))


def speed_up(times: BlockTimes, buffers: int) -> float:
    return striped_rate(times, buffers).rate / striped_rate(replace(times, disks=times.disks[:1]), 1).rate


def most_rate(times: BlockTimes, routings: int = 1) -> tuple[float, str]:
    """Return the maximum bytes a second for any number of blocks under way, and the station that limits it."""
    network = striped_network(times, 1, routings)
    busy = network.demands.sum(axis=0)
    slowest = int(busy.argmax())
    return len(times.disks) * times.block / float(busy[slowest]), network.stations[slowest]


def least_buffers(times: BlockTimes, routings: int = 1, *, share: float = SATURATED, most: int = MOST_BUFFERS) -> int:
    """Return the minimum number of blocks of a disk under way that reaches this share of the maximum rate."""
    wanted = share * most_rate(times, routings)[0]
    return next((c for c in range(1, most) if striped_rate(times, c, routings).rate >= wanted), most)


def best_block(tried: Iterable[BlockTimes], routings: int = 1, *, memory: int | None = None) -> StripedRate:
    """Return the block size and buffers with the least memory of those within `SATURATED` of the highest rate."""
    tried = list(tried)
    found = []
    for times in tried:
        one = times.block * len(times.disks)
        most = MOST_BUFFERS if memory is None else min(memory // one, MOST_BUFFERS)
        if most >= 1:
            found.append(striped_rate(times, least_buffers(times, routings, most=most), routings))
    if not found:
        least = min(times.block * len(times.disks) for times in tried)
        raise InputError(f"memory={memory} does not hold a block of each disk: at least {least} bytes are needed")
    wanted = SATURATED * max(each.rate for each in found)
    return min((each for each in found if each.rate >= wanted), key=lambda each: each.times.block * each.buffers)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClosedNetwork:
    """Stations, and classes of requests that circulate through them."""

    stations: tuple[str, ...]
    demands: np.ndarray
    """Service seconds of one request of each class at each station on one round: classes × stations."""
    requests: np.ndarray
    """Number of requests of each class under way."""

    @property
    def work(self) -> int:
        """Number of operations of exact analysis."""
        states: int = math.prod((self.requests + 1).tolist())
        return states * len(self.requests) * int(self.demands.any(axis=0).sum())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Solution:
    """Mean values of a network in its steady state."""

    network: ClosedNetwork
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
        return self.residence.sum(axis=1)

    @property
    def throughput(self) -> np.ndarray:
        """Completed rounds a second, by class."""
        return self.network.requests / self.response


def solve(network: ClosedNetwork) -> Solution:
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
            queues[states] += rate * stay
            stays.append(stay)
    return np.concatenate(stays)


def nearly(network: ClosedNetwork) -> np.ndarray:
    """Return the residence by the fixed point of Bard and Schweitzer: queues that reproduce themselves within 1e-10."""
    demands, requests = network.demands, network.requests[:, None]
    stay, queues = demands, np.zeros(demands.shape)
    for _ in range(20_000):
        again = requests * stay / stay.sum(axis=1, keepdims=True)
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
    shared = (network.demands > 0).sum(axis=0) > 1
    demands = network.demands[chosen] * np.where(shared, classes / many, 1.0)
    return replace(network, demands=demands, requests=network.requests[chosen])
