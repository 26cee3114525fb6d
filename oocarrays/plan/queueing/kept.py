"""Measured disks: the time of a block of any size, the rate with several requests under way, and the settings advised.

    measured     64 KiB  256 KiB  1 MiB  4 MiB          a chunk of 700 KiB: between the times of two blocks
                 0.4 ms  0.8 ms   3 ms   11 ms          one of 40 MiB: ten times the time of 4 MiB

    under way    1 of 4 disks work       4: all of them       8: two requests of each, and none ever waits for work

An I/O rank has one request under way, so the model gives the number of I/O ranks needed (Wang and Leiss, section 3).

Disks that are slower together than each alone share a device or a bus. Its time per block is fitted so that the
model's rate for all disks together is the measured one. If they are faster together, other load was present during
the measurements of single disks.

measured, seconds a block                  the model                     advice

B        CPU     disk alone   together     shared, so that it predicts   block, buffers C, I/O ranks,
64 KiB   31 µs   0.4 ms       0.4 ms  ──►  the measured rate of all ──►  bytes a second, and how far from
1 MiB    0.3 ms  5 ms         9 ms         disks together                them a trial was
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from oocarrays.errors import InputError
from oocarrays.plan.documents import Document
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurement with one block size."""

    block: int
    """Bytes of a block."""
    cpu: float
    """Seconds of the processor for a block, in a striped transfer."""
    alone: tuple[float, ...]
    """Mean seconds of a block at each disk without competing requests, excluding the processor's."""
    spread: tuple[float, ...]
    """Interquartile range of those seconds over their median, by disk."""
    together: float
    """Bytes a second of all disks, with one block of each under way."""

    @property
    def times(self) -> BlockTimes:
        """Seconds of a block at each stage, with a shared one if the measured rate is off by a tenth."""
        alone = BlockTimes(block=self.block, cpu=self.cpu, disks=self.alone)
        rate = striped_rate(alone, 1).rate
        if len(self.alone) < 2 or 0.9 * rate <= self.together <= rate / 0.9:
            return alone
        if self.together < rate:
            return self._fitted(partial(_sharing, alone), self.block / self.together)
        return self._fitted(partial(_faster, alone), 1.0)

    def _fitted(self, changed: Callable[[float], BlockTimes], most: float) -> BlockTimes:
        """Return the times with which the model predicts the measured rate; the rate falls as the argument grows."""
        low, high = 0.0, most
        for _ in range(40):
            middle = (low + high) / 2
            slow = striped_rate(changed(middle), 1).rate < self.together
            low, high = (low, middle) if slow else (middle, high)
        return changed(high)


def _faster(alone: BlockTimes, share: float) -> BlockTimes:
    """Scale the times of a block at each disk: other load delayed the measurements of single disks."""
    return replace(alone, disks=tuple(share * each for each in alone.disks))


def _sharing(alone: BlockTimes, shared: float) -> BlockTimes:
    """Move seconds of a block from each disk to the shared stage."""
    return replace(alone, shared=shared, disks=tuple(max(each - shared, 0.0) for each in alone.disks))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptDisks:
    """Measurements of several disks, made together in one mode."""

    disks: tuple[str, ...]
    """Names of the disks: folders or URLs."""
    mode: str
    """``"read"`` or ``"write"``."""
    measured: tuple[Measured, ...]
    """Measurements by block size, smallest first."""

    @classmethod
    def from_json(cls, said: Any) -> KeptDisks:
        try:
            rows = tuple(
                Measured(
                    block=int(block),
                    cpu=float(cpu),
                    alone=tuple(map(float, alone)),
                    spread=tuple(map(float, spread)),
                    together=float(together),
                )
                for block, cpu, alone, spread, together in sorted(said["measured"])
            )
            kept = cls(disks=tuple(map(str, said["disks"])), mode=str(said["mode"]), measured=rows)
        except (TypeError, ValueError, KeyError, IndexError):
            raise InputError(f"oocarrays.disks: {said!r} is not what oocarrays calibrate --disks keeps") from None
        if not rows or any(len(row.alone) != len(kept.disks) for row in rows):
            raise InputError(f"oocarrays.disks: what is kept of {', '.join(kept.disks)} is not one time for each disk")
        return kept

    def to_json(self) -> Document:
        rows = [[row.block, row.cpu, list(row.alone), list(row.spread), row.together] for row in self.measured]
        return {"disks": list(self.disks), "mode": self.mode, "measured": rows}

    def places_of(self, parts: Sequence[str]) -> list[int] | None:
        """Return the index of the disk of each part; None if a part lies on none of them."""
        found = [_place_of(part, self.disks) for part in parts]
        return None if None in found else found  # type: ignore[return-value]

    def times(self, nbytes: int, parts: Sequence[str]) -> BlockTimes | None:
        """Return the times of a block of some bytes at the disks of some parts; None if a part lies on none of them."""
        places = self.places_of(parts)
        if places is None:
            return None
        known = [row.times for row in self.measured]
        blocks = [float(each.block) for each in known]
        disks = tuple(_between(nbytes, blocks, [each.disks[place] for each in known]) for place in places)
        return BlockTimes(
            block=max(nbytes, 1),
            disks=disks,
            cpu=_between(nbytes, blocks, [each.cpu for each in known]),
            shared=_between(nbytes, blocks, [each.shared for each in known]),
        )


def _place_of(part: str, disks: Sequence[str]) -> int | None:
    above = (n for n, disk in enumerate(disks) if f"{part}/".startswith(f"{disk.rstrip('/')}/"))
    return next(above, None)


def _between(nbytes: int, blocks: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the seconds of a block, interpolated between the measured ones; above the largest, in proportion to the
    size."""
    larger = max(nbytes / blocks[-1], 1.0)
    return float(np.interp(nbytes, blocks, seconds)) * larger


def kept_times(kept: Sequence[KeptDisks], mode: str, parts: Sequence[str], nbytes: int) -> BlockTimes | None:
    """Return the times of a chunk at each of several disks, from their latest common measurement."""
    absolute = [part if "://" in part else os.path.abspath(part) for part in parts]
    ways = (each.times(nbytes, absolute) for each in reversed(kept) if each.mode == mode)
    return next((times for times in ways if times is not None), None)


@dataclass(frozen=True, slots=True)
class ChunkTimes:
    """Seconds of a chunk at each disk of a striped store."""

    by_mode: Mapping[str, BlockTimes]
    """Times of reading and of writing; only measured modes are included."""

    @property
    def disks(self) -> int:
        return max((len(times.disks) for times in self.by_mode.values()), default=0)

    def seconds(self, mode: str, chunks: float, under_way: int) -> float | None:
        """Return the disks' seconds for some chunks with ``under_way`` requests; None if not measured."""
        times = self.by_mode.get(mode)
        return None if times is None else chunks / chunks_a_second(times, under_way)


def chunks_a_second(times: BlockTimes, under_way: int) -> float:
    """Return the blocks a second that disks move with this number of requests under way; more than 8 a disk gain
    nothing."""
    disks = len(times.disks)
    if under_way < disks:
        mean = sum(times.disks) / disks
        return striped_rate(replace(times, disks=(mean,) * max(under_way, 1)), 1).rate / times.block
    return striped_rate(times, min(under_way // disks, 8)).rate / times.block


# ---------------------------------------------------------------------- advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Run with the advised parameters."""

    nbytes: int
    """Bytes moved."""
    seconds: float
    """Measured seconds."""
    predicted: float
    """Seconds predicted by the model."""

    @property
    def error(self) -> float:
        """Relative error of the predicted seconds."""
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
        return io_ranks(self.best.times, self.cores)

    @property
    def speed_up(self) -> float:
        """Speed relative to the first disk with one block under way."""
        return speed_ups(self.best.times, self.buffers)[-1]

    @property
    def unsure(self) -> float:
        """Relative uncertainty of the speed: half the measurements' spread, or the trial's error."""
        chosen = next(each for each in self.measured if each.block == self.block)
        return max(self.trial.error if self.trial else 0.0, sum(chosen.spread) / len(chosen.spread) / 2)

    def explain(self) -> str:
        """Return the measurements, the advice, its predicted rate and its uncertainty as text."""
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
    """Return bytes in the format of a command-line option."""
    power = next((power for power in (3, 2, 1) if nbytes % 1024**power == 0 and nbytes), 0)
    return f"{nbytes // 1024**power}{('', 'Ki', 'Mi', 'Gi')[power]}B"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.{0 if bytes_per_second >= 1e8 else 1 if bytes_per_second >= 1e5 else 4}f} MB/s"


def io_ranks(times: BlockTimes, cores: int) -> int:
    """Return the number of processors at which the processor is not the bottleneck of the disks."""
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
    """Return the block, and the number of blocks of a disk under way, that the model advises."""
    seen = tuple(measured)
    if not seen:
        raise InputError("no disks were measured")
    best = best_block([each.times for each in seen], memory=memory)
    return StripingPlan(disks=tuple(disks), mode=mode, measured=seen, best=best, cores=cores)
