"""Striped files and stores: on slow disks that are simulated (Wang and Leiss), and on folders of one device."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from case import Job

import oocarrays as ooc
from oocarrays.plan.queueing.striping import BlockTimes, striped_rate
from oocarrays.testing import SlowDisk, Station

KIB = 1024
PAPER = {4: (0.0008, 0.001854, 0.0173), 8: (0.001065, 0.003697, 0.0195), 16: (0.001807, 0.007384, 0.0205)}
"""Section 3: seconds of processor, network and disk, by KiB of a block."""
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where simulated disks really are: no device has a say in it."""


@contextmanager
def _folders(count: int, where: str | None = MEMORY) -> Iterator[list[str]]:
    root = tempfile.mkdtemp(prefix="striped-", dir=where)
    try:
        made = [os.path.join(root, str(number)) for number in range(count)]
        for each in made:
            os.mkdir(each)
        yield made
    finally:
        shutil.rmtree(root)


def _seconds(work: Callable[[], Any]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _transfer(disks: list[SlowDisk], block: int, buffers: int, each: int, way: str) -> float:
    """Bytes a second of one long transfer, some blocks of each disk."""
    nbytes = block * len(disks) * each
    with ooc.disks.open_striped(f"x{len(disks)}", "w+", disks=disks, block=block, buffers=buffers) as file:
        data = bytes(nbytes)
        if way == "write":
            return nbytes / _seconds(lambda: file.pwrite(data, 0))
        file.truncate(nbytes)
        room = bytearray(data)
        return nbytes / _seconds(lambda: file.preadinto(room, 0))


def _processor_seconds(block: int) -> float:
    """Seconds of a processor that a block takes here, where disks take none."""
    with _folders(2) as made:
        count = 200
        with ooc.disks.open_striped("x", "w+", disks=[SlowDisk(each) for each in made], block=block) as file:
            before = resource.getrusage(resource.RUSAGE_SELF)
            file.pwrite(bytes(2 * block * count), 0)
            after = resource.getrusage(resource.RUSAGE_SELF)
    used = sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))
    return used / (2 * count)


def transfers(job: Job) -> dict:
    """Transfers over `disks` disks of 20 ms, by block and buffers: MB/s, and that ÷ exact mean value analysis."""
    numbers = {}
    for kib in (4, 16):
        cpu = _processor_seconds(kib * KIB)
        for buffers in (1, 2, 4):
            with _folders(job.disks) as made:
                slow = [SlowDisk(folder, seconds=0.02) for folder in made]
                rate = _transfer(slow, kib * KIB, buffers, job.items, "write")
            model = striped_rate(BlockTimes(block=kib * KIB, cpu=cpu, disks=(0.02,) * job.disks), buffers).rate
            numbers[f"MB/s, blocks of {kib} KiB, {buffers} buffers"] = rate / 1e6
            numbers[f"run ÷ model, blocks of {kib} KiB, {buffers} buffers"] = rate / model
    return {"numbers": numbers}


def paper(job: Job) -> dict:
    """8 disks, 16 KiB, double buffers, 4 routings, beside one plain file on one: 4.53 (read), 11.84 (write) there."""
    numbers = {}
    for way in ("read", "write"):
        with _folders(8) as made, _folders(1) as alone:
            several = _transfer(_routed(made, 16, 4), 16 * KIB, 2, job.items, way)
            one = _transfer(_routed(alone, 16, 1), 16 * KIB, 1, job.items, way)
        numbers[f"8 disks ÷ one, {way}"] = several / one
    return {"numbers": numbers}


def _routed(made: list[str], kib: int, routings: int) -> list[SlowDisk]:
    """Disks as of section 3, behind one processor and some routings."""
    cpu, network, disk = PAPER[kib]
    processor, ways = Station(), [Station() for _ in range(routings)]
    return [
        SlowDisk(folder, seconds=disk, through=[(processor, cpu), (ways[n * routings // len(made)], network)])
        for n, folder in enumerate(made)
    ]


def arrays(job: Job) -> dict:
    """Write, read and rechunk an array over `disks` folders: of the device, or simulated disks of 100 MB/s each."""
    data = np.random.default_rng(0).random((job.edge, job.edge), "f4")
    with _folders(job.disks, MEMORY if job.slow else job.scratch) as made:
        disks = [SlowDisk(folder, bytes_per_second=100e6) for folder in made] if job.slow else made
        source, target = (ooc.disks.StripedStore(disks).below(name) for name in ("source.zarr", "target.zarr"))
        part = max(job.edge // 32, 1)
        array = ooc.create_array(
            ooc.Target(source, compressors=()), shape=data.shape, chunks=(part, job.edge), dtype="f4"
        )
        figures = {"write": [_seconds(lambda: array.__setitem__(..., data))], "read": [_seconds(lambda: array[...])]}
        work = ooc.rechunk(
            source,
            target,
            chunks=(job.edge, part),
            memory=job.budget,
            scheduler="threads",
            resources=ooc.Resources(scratch=job.scratch),
        )
        figures["rechunk"] = [_seconds(work.run)]
        if not np.array_equal(ooc.open_array(target)[...], data):
            raise ValueError("the array was rechunked wrongly")
    return {"figures": figures}
