"""Disks measured: seconds of a block at each of them, alone and together, and what a model advises from that.

    alone       a ▒▒▒▒              together    a ▒▒▒▒        trial   the block and the buffers that are advised,
                    b ▒▒▒▒                      b ▒▒▒▒                 in a striped file that is removed again

Parts are read and written by the code of striped files, so that disks of any kind are measured alike. Wang and Leiss,
section 3, took their service times in the same way.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import mean, quantiles
from typing import Any
from uuid import uuid4

from oocarrays.errors import InputError
from oocarrays.graphs.settings import kept_disks, local_cores, size_in_bytes
from oocarrays.plan.queueing.advice import Measured, StripingPlan, Trial, advised
from oocarrays.plan.queueing.kept import KeptDisks
from oocarrays.storage.striped.disks import Disk, DiskPart, disks_of
from oocarrays.storage.striped.moving import open_striped
from oocarrays.storage.striped.table import removed

BLOCKS = (2**16, 2**18, 2**20, 2**22)
"""Bytes of the blocks that are tried where nothing else is said."""
LEAST, MOST = 4, 64
"""Blocks of a disk that are timed."""
MOST_BYTES = 2**25
"""Bytes of a disk that are timed at most, but for the fewest blocks."""
MEMORY = "64MiB"
"""What blocks under way hold at most where nothing else is said."""
SECONDS = 0.25
"""Seconds in which blocks of one size are read or written at a disk, about."""
TIMES = 3
"""Times that all disks are asked together: whatever else is at work only makes that slower."""
TRIAL_SECONDS = 1.0
"""Seconds that a trial is to take by the model, about."""


def plan_striping(
    disks: Sequence[Any],
    *,
    mode: str = "read",
    blocks: Sequence[int | str] = BLOCKS,
    memory: int | str = MEMORY,
    seconds: float = SECONDS,
    trial: bool = True,
    kept: bool = False,
) -> StripingPlan:
    """Measure disks, and advise the block, the buffers and the I/O ranks of a striped file on them.

    Files of some megabytes are made on each disk and removed again.

    Parameters
    ----------
    disks : sequence of path
        As `open_striped` takes them.
    mode : "read" or "write"
        What is measured. What is written is on its device before its time is taken.
    blocks : sequence of int or str
        Bytes of the blocks that are tried; smaller ones than a folder's requests, in which neighbouring blocks are
        joined, are as fast as those.
    memory : int or str
        Bytes that blocks under way hold at most.
    seconds : float
        Seconds in which blocks of one size are timed at one disk, about.
    trial : bool
        Whether to run what is advised: predicted beside measured.
    kept : bool
        Whether to advise by what ``oocarrays calibrate --disks`` has measured, and not to measure again.

    Returns
    -------
    StripingPlan
        With ``.block``, ``.buffers``, ``.ranks``, ``.bytes_per_second``, ``.unsure``.

    Raises
    ------
    InputError
        Where disks are none, the mode is none, or a block is; or nothing is kept of these disks.

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
    """Measure disks for reading and for writing, for `oocarrays.graphs.calibrate.keeping.keep_disks`."""
    plans = [plan_striping(disks, mode=mode, trial=False) for mode in ("read", "write")]
    return [KeptDisks(disks=plan.disks, mode=plan.mode, measured=plan.measured) for plan in plans]


def _kept(disks: Sequence[Disk], mode: str) -> tuple[Measured, ...]:
    """Return the measurements of the same disks that were kept before."""
    labels = {disk.label for disk in disks}
    found = [each for each in kept_disks() if each.mode == mode and {*each.disks} == labels]
    if not found:
        raise InputError(f"nothing is kept of {', '.join(sorted(labels))}: oocarrays calibrate --disks measures them")
    return found[-1].measured


def _measured(disks: Sequence[Disk], mode: str, block: int, seconds: float) -> Measured:
    each = [_alone(disk, mode, block, seconds) for disk in disks]
    many = min(len(took) for took, _ in each)
    runs = [_together(disks, mode, block, buffers=1, blocks=many * len(disks)) for _ in range(TIMES)]
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
    """How far the middle half lie apart, over the median."""
    first, middle, last = quantiles(took, n=4)
    return (last - first) / middle


def _alone(disk: Disk, mode: str, block: int, seconds: float) -> tuple[list[float], float]:
    """Seconds of blocks one after the other, and the processor's of each, on the mean."""
    name = f".oocarrays-measured-{uuid4().hex}"
    data = memoryview(bytearray(b"\1" * block))  # so that it is in memory
    part = disk.open_part(name, os.O_RDWR | os.O_CREAT)
    try:
        one = _timed(partial(_write, part, data))
        many = max(LEAST, min(MOST, MOST_BYTES // block, int(seconds / max(one, 1e-9))))
        if mode == "read":
            for number in range(1, many):
                part.write([data], number * block)
            part.sync()
            _forget(part)
        do = part.read if mode == "read" else part.write
        busy = time.thread_time()
        took = [_timed(partial(do, [data], number * block)) for number in range(many)]
        synced = _timed(part.sync) / many if mode == "write" else 0.0
        return [each + synced for each in took], (time.thread_time() - busy) / many
    finally:
        part.close()
        disk.remove(name)


def _write(part: DiskPart, data: memoryview) -> None:
    part.write([data], 0)
    part.sync()


def _timed(do: Callable[[], Any]) -> float:
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


def _forget(part: DiskPart) -> None:
    """Let the system's cache forget a local part."""
    path = getattr(part, "path", None)
    if isinstance(path, str) and hasattr(os, "posix_fadvise"):
        file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)


def _together(disks: Sequence[Disk], mode: str, block: int, *, buffers: int, blocks: int) -> tuple[float, float]:
    """Seconds of a striped transfer of so many blocks, and the processor's of each."""
    name = f".oocarrays-measured-{uuid4().hex}"
    data = bytearray(b"\1" * (block * blocks))
    try:
        with open_striped(name, "w+", disks=disks, block=block, buffers=buffers) as file:
            if mode == "read":
                file.pwrite(data, 0)
                file.sync()
                for disk in disks:
                    part = disk.open_part(name, os.O_RDONLY)
                    _forget(part)
                    part.close()
            busy, start = time.process_time(), time.perf_counter()
            if mode == "read":
                file.preadinto(data, 0)
            else:
                file.pwrite(data, 0)
                file.sync()
            return time.perf_counter() - start, (time.process_time() - busy) / blocks
    finally:
        removed(name, disks)


def _trial(disks: Sequence[Disk], plan: StripingPlan) -> Trial:
    """Run what is advised: a transfer that takes about a second by the model, and ends with a stripe."""
    stripe = plan.block * len(disks)
    wanted = plan.bytes_per_second * TRIAL_SECONDS
    stripes = max(2 * plan.buffers, min(int(wanted // stripe), 2**27 // stripe))
    seconds, _ = _together(disks, plan.mode, plan.block, buffers=plan.buffers, blocks=stripes * len(disks))
    nbytes = stripes * stripe
    return Trial(nbytes=nbytes, seconds=seconds, predicted=plan.best.seconds(nbytes))
