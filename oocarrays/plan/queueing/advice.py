"""Advice on a striped file: which block, how many of a disk under way, who does the I/O; from what was measured.

    measured, seconds a block                  the model                     advice
    B        CPU     disk alone   together     shared, so that it says       block, buffers C, I/O ranks,
    64 KiB   31 µs   0.4 ms       0.4 ms  ──►  what was measured of all ──►  bytes a second, and how far from
    1 MiB    0.3 ms  5 ms         9 ms         disks together                them a trial was

Disks that are slower together than each alone share something: a device, a bus. How much a block takes there is what
makes the model's rate for all together the measured one. Where they are faster together, something else was at work
while they were measured alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from oocarrays.errors import InputError
from oocarrays.plan.plan import table
from oocarrays.plan.queueing.striping import (
    SATURATED,
    BlockTimes,
    StripedRate,
    best_block,
    most_rate,
    speed_ups,
    striped_rate,
)

NOTICED = 0.9
"""Of the rate by the model, what disks that share nothing reach together at least."""
HALVINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurement with one block size."""

    block: int
    """Bytes of a block."""
    cpu: float
    """Seconds of the processor for a block, in a striped transfer."""
    alone: tuple[float, ...]
    """Seconds of a block at each disk while nobody else asks, without the processor's; the mean."""
    spread: tuple[float, ...]
    """How far the middle half of them lie apart, over the median, of each disk."""
    together: float
    """Bytes a second of all disks, one block of each under way."""

    @property
    def times(self) -> BlockTimes:
        """Seconds of a block at each stage, what is shared among them."""
        alone = BlockTimes(block=self.block, cpu=self.cpu, disks=self.alone)
        rate = striped_rate(alone, 1).rate
        if len(self.alone) < 2 or NOTICED * rate <= self.together <= rate / NOTICED:
            return alone
        if self.together < rate:
            return self._fitted(partial(_sharing, alone), self.block / self.together)
        return self._fitted(partial(_faster, alone), 1.0)

    def _fitted(self, changed: Callable[[float], BlockTimes], most: float) -> BlockTimes:
        """Return what makes the model's rate the measured one: the more is changed, the lower the rate."""
        low, high = 0.0, most
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            slow = striped_rate(changed(middle), 1).rate < self.together
            low, high = (low, middle) if slow else (middle, high)
        return changed(high)


def _faster(alone: BlockTimes, share: float) -> BlockTimes:
    """Take a share of what a block took at each disk: while it was measured alone, others kept it waiting."""
    return replace(alone, disks=tuple(share * each for each in alone.disks))


def _sharing(alone: BlockTimes, shared: float) -> BlockTimes:
    """Take what a block needs at what all disks share from what it takes at each."""
    return replace(alone, shared=shared, disks=tuple(max(each - shared, 0.0) for each in alone.disks))


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run with what was advised."""

    nbytes: int
    """Bytes that were moved."""
    seconds: float
    """Measured."""
    predicted: float
    """Seconds by the model."""

    @property
    def error(self) -> float:
        """How far the model was off, as a share of what was measured."""
        return abs(self.predicted / self.seconds - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StripingPlan:
    """Plan that a model advises for a striped file on some disks."""

    disks: tuple[str, ...]
    """What a person calls them."""
    mode: str
    """``"read"`` or ``"write"``."""
    measured: tuple[Measured, ...]
    """By block size."""
    best: StripedRate = field(repr=False)
    """What is predicted of the block and the buffers that are advised."""
    cores: int
    """Processors that ranks can use."""
    trial: Trial | None = None
    """A run with them, if there was one."""

    @property
    def block(self) -> int:
        """Bytes of a block that are advised: B."""
        return self.best.times.block

    @property
    def buffers(self) -> int:
        """Blocks of a disk under way that are advised: C."""
        return self.best.buffers

    @property
    def bytes_per_second(self) -> float:
        """The speed that is predicted of one rank."""
        return self.best.rate

    @property
    def ranks(self) -> int:
        """I/O ranks that are advised: as many as disks need processors."""
        return io_ranks(self.best.times, self.cores)

    @property
    def speed_up(self) -> float:
        """How many times as fast as the first disk with one block under way."""
        return speed_ups(self.best.times, self.buffers)[-1]

    @property
    def unsure(self) -> float:
        """How far off the speed may be, as a share of it: half the measurements' spread, or the trial's error."""
        chosen = next(each for each in self.measured if each.block == self.block)
        return max(self.trial.error if self.trial else 0.0, sum(chosen.spread) / len(chosen.spread) / 2)

    def explain(self) -> str:
        """Describe what was measured, what is advised, what that is to reach, and how sure that is."""
        head = ("block", "processor", "a disk alone", "shared by all", "all together", "predicted", "buffers")
        rows = [_row(each, self.best.times.block) for each in self.measured]
        holds = most_rate(self.best.times)[1]
        return "\n".join(
            [
                f"{self.mode} on {len(self.disks)} disks: {', '.join(self.disks)}",
                "",
                table([head, *rows]),
                "",
                f"advised: --block {_size(self.block)}, {self.buffers} of each disk under way, {self.ranks} "
                f"rank{'s' * (self.ranks > 1)} to do the I/O",
                f"predicted: {_rate(self.bytes_per_second)} by one rank, {self.speed_up:.2f} times one disk; "
                f"{holds} forbids more",
                *self._trial_lines(),
                f"sure within {100 * self.unsure:.0f} %"
                + (
                    ""
                    if self.best.solution.exact
                    else f", the model itself within {100 * self.best.solution.error:.0f} %"
                ),
            ]
        )

    def _trial_lines(self) -> list[str]:
        if self.trial is None:
            return []
        measured = _rate(self.trial.nbytes / self.trial.seconds)
        predicted = _rate(self.trial.nbytes / self.trial.predicted)
        return [f"a run of {_size(self.trial.nbytes)}: predicted {predicted}, measured {measured}"]


def _row(seen: Measured, chosen: int) -> tuple[str, ...]:
    times = seen.times
    best = best_block([times])
    slowest, fastest = max(seen.alone), min(seen.alone)
    alone = _time(fastest) if slowest < 1.05 * fastest else f"{_time(fastest)} to {_time(slowest)}"
    return (
        f"{_size(seen.block)}{' ◄' * (seen.block == chosen)}",
        _time(seen.cpu),
        alone,
        _time(times.shared) if times.shared else "–",
        _rate(seen.together),
        _rate(best.rate),
        str(best.buffers),
    )


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{1e3 * seconds:.2f} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.1f} µs"


def _size(nbytes: int) -> str:
    """Bytes as an option takes them."""
    power = next((power for power in (3, 2, 1) if nbytes % 1024**power == 0 and nbytes), 0)
    return f"{nbytes // 1024**power}{('', 'Ki', 'Mi', 'Gi')[power]}B"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.{0 if bytes_per_second >= 1e8 else 1 if bytes_per_second >= 1e5 else 4}f} MB/s"


def io_ranks(times: BlockTimes, cores: int) -> int:
    """Return how many processors it takes that the processor is not what holds disks back."""
    if not times.cpu:
        return 1
    free = replace(times, cpu=0.0)
    if not any((*free.disks, free.shared, free.network, free.back)):
        return cores
    blocks = most_rate(free)[0] / times.block
    return max(1, min(cores, -int(-blocks * times.cpu // SATURATED)))


def advised(
    disks: Iterable[str], mode: str, measured: Iterable[Measured], *, memory: int | None = None, cores: int = 1
) -> StripingPlan:
    """Return the block, and the blocks of a disk under way, that a model advises."""
    seen = tuple(measured)
    if not seen:
        raise InputError("nothing was measured of which anything could be advised")
    best = best_block([each.times for each in seen], memory=memory)
    return StripingPlan(disks=tuple(disks), mode=mode, measured=seen, best=best, cores=cores)
