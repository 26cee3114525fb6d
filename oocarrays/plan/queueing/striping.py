"""A striped file as a closed network: C requests a disk for blocks of B bytes circulate on routings shared by disks.

    C = 2 on 4 disks, 2 routings      8 requests        least of      D · C / response without other load
                                                        rate is       1 / processor        seconds a block
    ○○○○○○○○ ─ processor ─┬─ ○○○○ ─┬─ ○○ disk 0         at most       1 / routing · routings
                          │        └─ ○○ disk 1                       1 / link of all
                          └─ ○○○○ ─┬─ ○○ disk 2                       D / disk
                                   └─ ○○ disk 3

The law of the speed-up: D disks are D times as fast as one until a shared station is saturated: the processor, a
routing, or a device below several disks. Wang and Leiss, section 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from oocarrays.errors import InputError
from oocarrays.mapping.given import whole
from oocarrays.plan.queueing.closed import ClosedNetwork, Solution, solve

SATURATED = 0.95
"""Share of the maximum rate that counts as all of it."""
MOST_BUFFERS = 64
"""Maximum number of blocks of a disk under way that are compared."""
CPU, SHARED, NETWORK, DISK, BACK, WAIT = "processor", "shared", "routing", "disk", "back", "wait"
"""Names of stations; those of routings and disks are followed by their number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTimes:
    """Seconds of a block at each stage."""

    block: int
    """Bytes of a block."""
    disks: tuple[float, ...]
    """Seconds at each disk."""
    cpu: float = 0.0
    """Seconds at the processor: to locate and copy the block."""
    network: float = 0.0
    """Seconds on its routing to the disk."""
    back: float = 0.0
    """Seconds on its routing from the disk: the data read, or the acknowledgement of a write."""
    shared: float = 0.0
    """Seconds at a stage shared by all disks besides the processor: a bus, or a device that holds several folders."""
    wait: float = 0.0
    """Seconds in transit without queueing."""

    def of(self, disks: int) -> BlockTimes:
        """Return the times of the first ``disks`` disks."""
        return replace(self, disks=self.disks[:disks])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StripedRate:
    """Predicted rate of a long transfer."""

    times: BlockTimes
    """Times of a block at each stage."""
    buffers: int
    """Blocks of a disk under way: C."""
    routings: tuple[int, ...]
    """Routing of each disk."""
    solution: Solution
    """Mean values of the network."""

    @property
    def rate(self) -> float:
        """Bytes a second: blocks lie on disks in turn, so the slowest disk sets the rate of all."""
        return float(self.solution.throughput.min()) * len(self.times.disks) * self.times.block

    def seconds(self, nbytes: int) -> float:
        """Return the seconds of transferring a number of bytes, without start and end effects."""
        return nbytes / self.rate


def striped_network(times: BlockTimes, buffers: int, routings: int | Sequence[int] = 1) -> ClosedNetwork:
    """Return the network of a striped file: Figure 6."""
    ways = _routing_of_each(len(times.disks), routings)
    whole(buffers, "buffers", 1)
    shared = {CPU: times.cpu, SHARED: times.shared, WAIT: times.wait}
    classes = [
        {**shared, f"{DISK} {number}": disk, f"{NETWORK} {way}": times.network, f"{BACK} {way}": times.back}
        for number, (disk, way) in enumerate(zip(times.disks, ways, strict=True))
    ]
    for each in classes:
        if not (all(0 <= seconds < math.inf for seconds in each.values()) and any(each.values())):
            raise InputError(f"a block takes {each!r}: seconds, some of them above 0")
    stations = tuple(dict.fromkeys(name for each in classes for name, seconds in each.items() if seconds))
    return ClosedNetwork(
        stations=stations,
        demands=np.array([[each.get(name, 0.0) for name in stations] for each in classes]),
        requests=np.full(len(classes), buffers),
        queueing=np.array([name != WAIT for name in stations]),
    )


def _routing_of_each(disks: int, routings: int | Sequence[int]) -> tuple[int, ...]:
    if disks < 1:
        raise InputError("a striped file has one disk at least")
    if isinstance(routings, Sequence):
        if len(routings) != disks:
            raise InputError(f"routings={list(routings)!r} are of {len(routings)} disks, not of {disks}")
        return tuple(routings)
    many = whole(routings, "routings", 1)
    return tuple(number * min(many, disks) // disks for number in range(disks))


def striped_rate(times: BlockTimes, buffers: int, routings: int | Sequence[int] = 1) -> StripedRate:
    """Predict a long transfer; the parameters are those of `striped_network`."""
    network = striped_network(times, buffers, routings)
    ways = _routing_of_each(len(times.disks), routings)
    return StripedRate(times=times, buffers=buffers, routings=ways, solution=solve(network))


def speed_ups(times: BlockTimes, buffers: int, routings: int | Sequence[int] = 1) -> tuple[float, ...]:
    """Return the speed of the first 1, 2, … disks relative to the first disk with one block under way."""
    one = striped_rate(times.of(1), 1).rate
    ways = _routing_of_each(len(times.disks), routings)
    return tuple(striped_rate(times.of(d), buffers, ways[:d]).rate / one for d in range(1, len(ways) + 1))


def most_rate(times: BlockTimes, routings: int | Sequence[int] = 1) -> tuple[float, str]:
    """Return the maximum bytes a second for any number of blocks under way, and the station that limits it."""
    network = striped_network(times, 1, routings)
    busy = network.demands.sum(axis=0) * network.queueing
    slowest = int(busy.argmax())
    return len(times.disks) * times.block / float(busy[slowest]), network.stations[slowest]


def least_buffers(
    times: BlockTimes, routings: int | Sequence[int] = 1, *, share: float = SATURATED, most: int = MOST_BUFFERS
) -> int:
    """Return the minimum number of blocks of a disk under way that reaches this share of the maximum rate."""
    wanted = share * most_rate(times, routings)[0]
    return next((c for c in range(1, most) if striped_rate(times, c, routings).rate >= wanted), most)


def best_block(
    tried: Iterable[BlockTimes], routings: int | Sequence[int] = 1, *, memory: int | None = None
) -> StripedRate:
    """Return the block size, and the blocks of a disk under way, of the highest rate in some memory.

    Of those within `SATURATED` of the highest rate, it is the one with the least memory.
    """
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
