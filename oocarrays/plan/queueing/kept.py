"""Stored measurements of disks: the time of a block of any size, and the rate with several requests under way.

    measured     64 KiB  256 KiB  1 MiB  4 MiB          a chunk of 700 KiB: between the times of two blocks
                 0.4 ms  0.8 ms   3 ms   11 ms          one of 40 MiB: ten times the time of 4 MiB

    under way    1 of 4 disks work       4: all of them       8: two requests of each, and none ever waits for work

An I/O rank has one request under way, so the model gives the number of I/O ranks needed (Wang and Leiss, section 3).

Disks that are slower together than each alone share a device or a bus. Its time per block is fitted so that the
model's rate for all disks together is the measured one. If they are faster together, other load was present during
the measurements of single disks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oocarrays.errors import InputError
from oocarrays.plan.documents import Document
from oocarrays.plan.queueing.striping import BlockTimes, striped_rate


@dataclass(frozen=True, slots=True)
class Measured:
    """Measurement with one block size."""

    block: int
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
        shared = self.together < rate  # otherwise other load delayed the measurements of single disks

        def changed(share: float) -> BlockTimes:
            """Move seconds of a block from each disk to the shared stage, or scale those at each disk."""
            disks = (max(each - share, 0.0) if shared else share * each for each in self.alone)
            return replace(alone, shared=share if shared else 0.0, disks=tuple(disks))

        low, high = 0.0, self.block / self.together if shared else 1.0
        for _ in range(40):  # the predicted rate falls as the share grows
            middle = (low + high) / 2
            slow = striped_rate(changed(middle), 1).rate < self.together
            low, high = (low, middle) if slow else (middle, high)
        return changed(high)


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
                Measured(int(block), float(cpu), tuple(map(float, alone)), tuple(map(float, spread)), float(together))
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

    def times(self, nbytes: int, parts: Sequence[str]) -> BlockTimes | None:
        """Return the times of a block of some bytes at the disks of some parts; None if a part lies on none of them."""
        folders = [f"{disk.rstrip('/')}/" for disk in self.disks]
        above = [[n for n, folder in enumerate(folders) if f"{part}/".startswith(folder)] for part in parts]
        if not all(above):
            return None
        known = [row.times for row in self.measured]
        blocks = [float(each.block) for each in known]
        disks = tuple(_between(nbytes, blocks, [each.disks[place] for each in known]) for place, *_ in above)
        return BlockTimes(
            block=max(nbytes, 1),
            disks=disks,
            cpu=_between(nbytes, blocks, [each.cpu for each in known]),
            shared=_between(nbytes, blocks, [each.shared for each in known]),
        )


def _between(nbytes: int, blocks: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the seconds of a block, interpolated; above the largest measured block, in proportion to its size."""
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
    """Return the blocks a second with these requests under way; more than 8 a disk gain nothing."""
    disks = len(times.disks)
    if under_way < disks:
        mean = sum(times.disks) / disks
        return striped_rate(replace(times, disks=(mean,) * max(under_way, 1)), 1).rate / times.block
    return striped_rate(times, min(under_way // disks, 8)).rate / times.block
