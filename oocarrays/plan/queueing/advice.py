"""Advice on a striped file from measurements: the block, the requests under way per disk, and the I/O ranks.

measured, seconds a block                  the model                     advice

B        CPU     disk alone   together     shared, so that it predicts   block, buffers C, I/O ranks,
64 KiB   31 µs   0.4 ms       0.4 ms  ──►  the measured rate of all ──►  bytes a second, and how far from
1 MiB    0.3 ms  5 ms         9 ms         disks together                them a trial was
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from oocarrays.errors import InputError, plural
from oocarrays.plan.plan import table
from oocarrays.plan.queueing.kept import Measured
from oocarrays.plan.queueing.striping import SATURATED, StripedRate, best_block, most_rate, speed_up


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Run with the advised parameters."""

    nbytes: int
    seconds: float
    predicted: float

    @property
    def error(self) -> float:
        return abs(self.predicted / self.seconds - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StripingPlan:
    """Advice of a model for a striped file on several disks."""

    disks: tuple[str, ...]
    """Names of the disks for display."""
    mode: str
    """``"read"`` or ``"write"``."""
    measured: tuple[Measured, ...]
    """Measurements, by block size."""
    best: StripedRate = field(repr=False)
    """Predicted rate of the advised block and buffers."""
    cores: int
    """Processors that ranks can use."""
    trial: Trial | None = None
    """Run with the advised parameters, if any."""

    @property
    def block(self) -> int:
        """Advised bytes of a block: B."""
        return self.best.times.block

    @property
    def buffers(self) -> int:
        """Advised number of blocks of a disk under way: C."""
        return self.best.buffers

    @property
    def bytes_per_second(self) -> float:
        """Predicted bytes a second of one rank."""
        return self.best.rate

    @property
    def ranks(self) -> int:
        """Advised number of I/O ranks: the processors that the disks need."""
        times = self.best.times
        if not times.cpu:
            return 1
        free = replace(times, cpu=0.0)
        if not any((*free.disks, free.shared, free.network)):
            return self.cores
        blocks = most_rate(free)[0] / times.block
        return max(1, min(self.cores, -int(-blocks * times.cpu // SATURATED)))

    @property
    def speed_up(self) -> float:
        """Speed relative to the first disk with one block under way."""
        return speed_up(self.best.times, self.buffers)

    @property
    def unsure(self) -> float:
        """Relative uncertainty of the speed: half the measurements' spread, or the trial's error."""
        chosen = next(each for each in self.measured if each.block == self.block)
        return max(self.trial.error if self.trial else 0.0, sum(chosen.spread) / len(chosen.spread) / 2)

    def explain(self) -> str:
        """Return the measurements, the advice, its predicted rate and its uncertainty as text."""
        head = ("block", "processor", "a disk alone", "shared by all", "all together", "predicted", "buffers")
        rows = [_row(each, self.best.times.block) for each in self.measured]
        holds, trial, solution = most_rate(self.best.times)[1], [], self.best.solution
        model = "" if solution.exact else f", the model itself within {100 * solution.error:.0f} %"
        if self.trial is not None:
            predicted, measured = (_rate(self.trial.nbytes / s) for s in (self.trial.predicted, self.trial.seconds))
            trial = [f"a run of {_size(self.trial.nbytes)}: predicted {predicted}, measured {measured}"]
        return "\n".join(
            [
                f"{self.mode} on {plural(len(self.disks), 'disk')}: {', '.join(self.disks)}",
                "",
                table([head, *rows]),
                "",
                f"advised: --block {_size(self.block)}, {self.buffers} of each disk under way, {self.ranks} "
                f"rank{'s' * (self.ranks > 1)} to do the I/O",
                f"predicted: {_rate(self.bytes_per_second)} by one rank, {self.speed_up:.2f} times one disk; "
                f"{holds} forbids more",
                *trial,
                f"sure within {100 * self.unsure:.0f} %{model}",
            ]
        )


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
    """Return bytes in the format of a command-line option."""
    power = next((power for power in (3, 2, 1) if nbytes % 1024**power == 0 and nbytes), 0)
    return f"{nbytes // 1024**power}{('', 'Ki', 'Mi', 'Gi')[power]}B"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.{0 if bytes_per_second >= 1e8 else 1 if bytes_per_second >= 1e5 else 4}f} MB/s"


def advised(
    disks: Iterable[str], mode: str, measured: Iterable[Measured], *, memory: int | None = None, cores: int = 1
) -> StripingPlan:
    """Return the block, and the number of blocks of a disk under way, that the model advises."""
    seen = tuple(measured)
    if not seen:
        raise InputError("no disks were measured")
    best = best_block([each.times for each in seen], memory=memory)
    return StripingPlan(disks=tuple(disks), mode=mode, measured=seen, best=best, cores=cores)
