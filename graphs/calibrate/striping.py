"""Measured disks: seconds of a block on each, alone and together, and the settings that a model recommends.

    alone       a ▒▒▒▒              together    a ▒▒▒▒        trial   the recommended block and buffers,
                    b ▒▒▒▒                      b ▒▒▒▒                 in a striped file that is removed again

Parts are read and written by the code of striped files, so that disks of any kind are measured alike. Wang and Leiss,
section 3, took their service times in the same way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from statistics import mean, quantiles
from typing import Any
from uuid import uuid4

from oocarrays.errors import InputError
from oocarrays.graphs.calibrate.machine import forget, seconds_of
from oocarrays.graphs.settings import kept_disks, local_cores, size_in_bytes
from oocarrays.plan.queueing.advice import StripingPlan, Trial, advised
from oocarrays.plan.queueing.kept import KeptDisks, Measured
from oocarrays.storage.striped.disks import FolderDisk, FolderPart, disks_of
from oocarrays.storage.striped.file_parts import removed
from oocarrays.storage.striped.moving import open_striped

BLOCKS = (2**16, 2**18, 2**20, 2**22)
"""Default sizes of blocks to try, in bytes."""


def plan_striping(
    disks: Sequence[Any],
    *,
    mode: str = "read",
    blocks: Sequence[int | str] = BLOCKS,
    memory: int | str = "64MiB",
    seconds: float = 0.25,
    trial: bool = True,
    kept: bool = False,
) -> StripingPlan:
    """Measure disks, and recommend the block, buffers and I/O ranks of a striped file on them.

    Files of a few megabytes are written to each disk and removed again.

    Parameters
    ----------
    disks : sequence of path
        Disks, as for `open_striped`.
    mode : "read" or "write"
        Direction to measure. Written data is synced to its device before the time is taken.
    blocks : sequence of int or str
        Sizes of blocks to try, in bytes. A folder joins neighbouring blocks into larger requests, so blocks smaller
        than such a request are raised to its size.
    memory : int or str
        Maximum bytes of blocks in flight.
    seconds : float
        Approximate seconds to time blocks of one size on one disk.
    trial : bool
        Whether to run the recommended settings and report predicted and measured seconds.
    kept : bool
        Whether to use the stored measurements of ``oocarrays calibrate --disks`` instead of measuring.

    Returns
    -------
    StripingPlan
        Plan with ``.block``, ``.buffers``, ``.ranks``, ``.bytes_per_second``, ``.unsure``.

    Raises
    ------
    InputError
        If no disks are given, the mode or a block size is invalid, or no measurements of these disks are stored.

    Examples
    --------
    >>> import tempfile
    >>> from oocarrays.testing import SlowDisk
    >>> with tempfile.TemporaryDirectory() as a, tempfile.TemporaryDirectory() as b:
    ...     slow = [SlowDisk(a, seconds=0.005), SlowDisk(b, seconds=0.005)]
    ...     plan = plan_striping(slow, blocks=["4KiB", "16KiB"], seconds=0.02, trial=False)
    >>> plan.block, plan.bytes_per_second < 8e6  # each of them serves 16 KiB in 5 ms
    (16384, True)
    """
    there = disks_of(disks)
    if mode not in ("read", "write"):
        raise InputError(f"mode={mode!r} is not 'read' or 'write'")
    joined = max(disk.joined_bytes for disk in there)
    sizes = sorted({max(size_in_bytes(block, "blocks"), joined) for block in blocks})
    most = size_in_bytes(memory, "memory")
    sizes = [size for size in sizes if size * len(there) <= most] or sizes[:1]
    measured = _kept(there, mode) if kept else [_measured(there, mode, size, seconds) for size in sizes]
    plan = advised((disk.label for disk in there), mode, measured, memory=most, cores=local_cores())
    return replace(plan, trial=_trial(there, plan)) if trial else plan


def calibrate_disks(disks: Sequence[Any]) -> list[KeptDisks]:
    """Measure disks for reading and writing; the result is for `oocarrays.graphs.settings.keep_disks`."""
    plans = [plan_striping(disks, mode=mode, trial=False) for mode in ("read", "write")]
    return [KeptDisks(disks=plan.disks, mode=plan.mode, measured=plan.measured) for plan in plans]


def _kept(disks: Sequence[FolderDisk], mode: str) -> tuple[Measured, ...]:
    labels = {disk.label for disk in disks}
    found = [each for each in kept_disks() if each.mode == mode and {*each.disks} == labels]
    if not found:
        raise InputError(f"no measurements of {', '.join(sorted(labels))}: run oocarrays calibrate --disks")
    return found[-1].measured


def _measured(disks: Sequence[FolderDisk], mode: str, block: int, seconds: float) -> Measured:
    each = [_alone(disk, mode, block, seconds) for disk in disks]
    many = min(len(took) for took, _ in each)
    # the fastest counts: other load only slows it down
    runs = [_together(disks, mode, block, buffers=1, blocks=many * len(disks)) for _ in range(3)]
    together, cpu = (min(each) for each in zip(*runs, strict=True))
    own = [max(mean(took) - busy, 0.0) for took, busy in each]
    return Measured(
        block=block,
        cpu=max(cpu, *(busy for _, busy in each)),
        alone=tuple(own),
        spread=tuple(_spread(took) for took, _ in each),
        together=many * len(disks) * block / together,
    )


def _spread(took: Sequence[float]) -> float:
    """Return the interquartile range divided by the median."""
    first, middle, last = quantiles(took, n=4)
    return (last - first) / middle


def _alone(disk: FolderDisk, mode: str, block: int, seconds: float) -> tuple[list[float], float]:
    """Return the seconds of blocks in sequence, and their mean processor time."""
    name = f".oocarrays-measured-{uuid4().hex}"
    data = memoryview(bytearray(b"\1" * block))  # not zeros: every page is allocated
    part = disk.open_part(name, os.O_RDWR | os.O_CREAT)
    try:
        one = seconds_of(partial(_write, part, data))
        many = max(4, min(64, 2**25 // block, int(seconds / max(one, 1e-9))))  # blocks, of 32 MiB at most
        if mode == "read":
            for number in range(1, many):
                part.write([data], number * block)
            forget(part.path)
        do = part.read if mode == "read" else part.write
        busy = time.thread_time()
        took = [seconds_of(partial(do, [data], number * block)) for number in range(many)]
        synced = seconds_of(part.sync) / many if mode == "write" else 0.0
        return [each + synced for each in took], (time.thread_time() - busy) / many
    finally:
        part.close()
        disk.remove(name)


def _write(part: FolderPart, data: memoryview) -> None:
    part.write([data], 0)
    part.sync()


def _together(disks: Sequence[FolderDisk], mode: str, block: int, *, buffers: int, blocks: int) -> tuple[float, float]:
    """Return the seconds of a striped transfer, and the processor time of a block."""
    name = f".oocarrays-measured-{uuid4().hex}"
    data = bytearray(b"\1" * (block * blocks))
    try:
        with open_striped(name, "w+", disks=disks, block=block, buffers=buffers) as file:
            if mode == "read":
                file.pwrite(data, 0)
                file.sync()
                for disk in disks:
                    forget(os.path.join(disk.folder, name))
            busy, start = time.process_time(), time.perf_counter()
            if mode == "read":
                file.preadinto(data, 0)
            else:
                file.pwrite(data, 0)
                file.sync()
            return time.perf_counter() - start, (time.process_time() - busy) / blocks
    finally:
        removed(name, disks)


def _trial(disks: Sequence[FolderDisk], plan: StripingPlan) -> Trial:
    """Run the recommended settings for about a second by the model, in whole stripes."""
    stripe = plan.block * len(disks)
    stripes = max(2 * plan.buffers, min(int(plan.bytes_per_second // stripe), 2**27 // stripe))
    seconds, _ = _together(disks, plan.mode, plan.block, buffers=plan.buffers, blocks=stripes * len(disks))
    nbytes = stripes * stripe
    return Trial(nbytes=nbytes, seconds=seconds, predicted=plan.best.seconds(nbytes))
