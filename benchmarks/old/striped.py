"""Striped files and stores on slow disks that are simulated, on one real device, and on two; and what a model says.

    python benchmarks/striped.py
    python benchmarks/striped.py --parts cells,figures --json striped.json
    python benchmarks/striped.py --scale 64

`cells`     D = 1 … 8 disks of 20 ms, B = 4, 8, 16 KiB, C = 1, 2, 4: measured beside exact mean value analysis
`figures`   Figures 7 and 8 of Wang and Leiss: 8 disks, 4 routings and 1, with the times of their section 3
`paper`     their best, 4.53 (read) and 11.84 (write): ours on 8 disks beside one plain file on one of them
`real`      4 folders of one device beside one plain file in one folder, with processor time
`arrays`    an array striped over 4 folders of one device beside the same in one folder: written, read, rechunked
`devices`   a folder on the disk and one in memory, both as slow as a disk, beside each of them alone
`rechunk`   an array on 4 simulated disks of 100 MB/s beside one; scratch on two of them beside one
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import machine
import numpy as np
import zarr

import oocarrays as ooc
from oocarrays.plan.queueing.striping import BlockTimes, striped_rate
from oocarrays.testing import SlowDisk, Station

KIB = 1024
PARTS = ("cells", "figures", "paper", "real", "arrays", "devices", "rechunk")
PAPER = {4: (0.0008, 0.001854, 0.0173), 8: (0.001065, 0.003697, 0.0195), 16: (0.001807, 0.007384, 0.0205)}
"""Section 3: seconds of processor, network and disk, by KiB of a block."""
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where simulated disks really are: no device has a say in it."""
WAYS = ("write", "write again", "read", "write and sync", "read cold")
"""The first three are of the system's cache, the others of the device."""
CALL_BYTES = 2**23
"""Bytes of one call, on a real device."""


@contextmanager
def folders(count: int, where: str | None = None) -> Iterator[list[str]]:
    """Some empty folders, which are gone in the end."""
    root = tempfile.mkdtemp(prefix="striped-", dir=where or MEMORY)
    try:
        made = [os.path.join(root, str(number)) for number in range(count)]
        for each in made:
            os.mkdir(each)
        yield made
    finally:
        shutil.rmtree(root)


def seconds_of(work: Callable[[], Any]) -> tuple[float, float]:
    """Seconds of some work, by the clock and of processors."""
    before, begun = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    work()
    seconds, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_SELF)
    return seconds, sum(getattr(after, name) - getattr(before, name) for name in ("ru_utime", "ru_stime"))


def best(rounds: int, run: Callable[[], float]) -> float:
    """The best of some rates: what else runs on a machine takes away, and gives nothing."""
    return max(run() for _ in range(rounds))


def transfer(disks: list[SlowDisk], block: int, buffers: int, each: int, way: str) -> float:
    """Bytes a second of one long transfer, of so many blocks of each disk."""
    nbytes = block * len(disks) * each
    with ooc.open_striped(f"x{len(disks)}", "w+", disks=disks, block=block, buffers=buffers) as file:
        data = bytes(nbytes)
        room = bytearray(data) if way == "read" else bytearray()
        work = (lambda: file.pwrite(data, 0)) if way == "write" else (lambda: file.preadinto(room, 0))
        if way == "read":
            file.truncate(nbytes)
        seconds, _ = seconds_of(work)
    return nbytes / seconds


def processor_seconds(block: int) -> float:
    """Seconds of a processor that a block takes here, where disks take none."""
    with folders(2) as made:
        disks, count = [SlowDisk(each) for each in made], 500
        with ooc.open_striped("x", "w+", disks=disks, block=block) as file:
            _, processor = seconds_of(lambda: file.pwrite(bytes(2 * block * count), 0))
    return processor / (2 * count)


# ---------------------------------------------------------------------------------------------------------- the parts


def cells(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Speed-up by D, B and C, beside what exact mean value analysis predicts."""
    rows, each = [], max(40 // options.scale, 4)
    for kib in (4, 8, 16):
        cpu = processor_seconds(kib * KIB)
        for buffers in options.buffers:
            one = 0.0
            for count in range(1, 9 if options.scale < 16 else 3):
                with folders(count) as made:
                    disks = [SlowDisk(folder, seconds=0.02) for folder in made]
                    way = "write" if count % 2 else "read"
                    rate = best(options.rounds, partial(transfer, disks, kib * KIB, buffers, each, way))
                one = one or rate
                times = BlockTimes(block=kib * KIB, cpu=cpu, disks=(0.02,) * count)
                predicted = striped_rate(times, buffers).rate
                rows.append(
                    {"B": kib, "C": buffers, "D": count, "MB/s": rate / 1e6, "speed-up": rate / one, "cpu": cpu}
                    | {"predicted": predicted / 1e6, "run/model": rate / predicted}
                )
    return rows


def slow_disks(made: list[str], kib: int, routings: int) -> list[SlowDisk]:
    """Disks as of section 3, behind one processor and some routings."""
    cpu, network, disk = PAPER[kib]
    processor, ways = Station(), [Station() for _ in range(routings)]
    return [
        SlowDisk(folder, seconds=disk, through=[(processor, cpu), (ways[n * routings // len(made)], network)])
        for n, folder in enumerate(made)
    ]


def figures(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Figures 7 and 8: 2 MiB over 8 disks, by block, buffers and routings."""
    rows = []
    for routings in (4, 1):
        for kib, (cpu, network, disk) in PAPER.items():
            for buffers in (1, 2):
                times = BlockTimes(block=kib * KIB, cpu=cpu, network=network, disks=(disk,) * 8)
                predicted = striped_rate(times, buffers, routings=routings).rate
                for way in ("read", "write"):
                    with folders(8) as made:
                        disks = slow_disks(made, kib, routings)
                        each = max(512 // kib // options.scale, 2)
                        rate = best(options.rounds, partial(transfer, disks, kib * KIB, buffers, each, way))
                    rows.append(
                        {"routings": routings, "B": kib, "C": buffers, "way": way, "MB/s": rate / 1e6}
                        | {"predicted": predicted / 1e6, "run/model": rate / predicted}
                    )
    return rows


def paper(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Ours on 8 disks, 16 KiB, double buffers, 4 routings, beside one plain file on one of them."""
    rows, blocks = [], max(128 // options.scale, 8)
    for way, theirs in (("read", 4.53), ("write", 11.84)):
        with folders(8) as made:
            rate = transfer(slow_disks(made, 16, 4), 16 * KIB, 2, blocks // 8 * 4, way)
        with folders(1) as made:
            one = transfer(slow_disks(made, 16, 1), 16 * KIB, 1, blocks // 8 * 4, way)
        rows.append(
            {"way": way, "8 disks, MB/s": rate / 1e6, "one, MB/s": one / 1e6}
            | {"times": rate / one}
            | {"paper": theirs}
        )
    return rows


def real(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Four folders of one device beside a plain file in one, in turn."""
    nbytes, rows = 2**29 // options.scale, []
    data = np.random.default_rng(0).integers(0, 255, CALL_BYTES, np.uint8).data
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    with folders(5, options.folder or tempfile.gettempdir()) as made:
        for _ in range(options.rounds):
            for kind, disks in (("striped", made[:4]), ("plain", made[4:])):
                with ooc.open_striped("x", "w+", disks=disks) if kind == "striped" else plain(disks[0]) as file:
                    for way in WAYS:
                        if way == "read cold":
                            list(map(machine.make_cold, disks))
                        found.setdefault((way, kind), []).append(seconds_of(partial(through, file, way, nbytes, data)))
    for way in WAYS:
        ours, theirs = found[way, "striped"], found[way, "plain"]
        seconds = statistics.median(b[0] / a[0] for a, b in zip(ours, theirs, strict=True))
        cpu = statistics.median(a[1] / b[1] for a, b in zip(ours, theirs, strict=True))
        best = min(a[0] for a in ours)
        rows.append({"way": way, "GB/s": nbytes / best / 1e9, "speed/plain": seconds, "cpu/plain": cpu})
    return rows


def arrays(options: argparse.Namespace) -> list[dict[str, Any]]:
    """An array in 4 folders of one device beside one in one of them, in turn: what is done, and how long it takes."""
    edge = int((2**28 // options.scale / 4) ** 0.5) // 64 * 64
    data = np.random.default_rng(0).random((edge, edge), "f4")
    found: dict[str, list[float]] = {}
    with folders(5, options.folder or tempfile.gettempdir()) as made:
        for number in range(options.rounds + 1):
            took = {kind: done_with(disks, data, number, options.memory) for kind, disks in two_kinds(made)}
            for what in took["one"] if number else ():  # the first time warms
                found.setdefault(what, []).append(took["one"][what] / took["striped"][what])
    return [
        {"what": what, "speed/one folder": statistics.median(ratios), "least": min(ratios), "most": max(ratios)}
        for what, ratios in found.items()
    ]


def two_kinds(made: list[str]) -> list[tuple[str, str]]:
    """Where an array is: in one folder, and in several."""
    return [("one", f"{made[4]}/"), ("striped", f"striped://{','.join(made[:4])}!")]


def done_with(place: str, data: np.ndarray, number: int, memory: str) -> dict[str, float]:
    """Seconds to write an array there, to read it, to read a part, and to rechunk it."""
    source, target, edge = f"{place}s{number}.zarr", f"{place}t{number}.zarr", len(data)
    array = ooc.create_array(source, shape=data.shape, chunks=(edge // 32, edge), dtype="f4", compressors=())
    took = {"write": seconds_of(lambda: array.__setitem__(..., data))[0]}
    took["read"] = seconds_of(lambda: array[...])[0]
    took["read 1 of 16 columns"] = seconds_of(lambda: array[:, : edge // 16])[0]
    job = ooc.rechunk(source, target, chunks=(edge, edge // 32), memory=memory, scheduler="threads")
    took["rechunk"] = seconds_of(job.run)[0]
    assert (ooc.open_array(target)[:, 7] == data[:, 7]).all()
    return took


class Plain:
    """A plain file, with the calls of a striped one."""

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def pwrite(self, data: memoryview, offset: int) -> int:
        """Write all of it."""
        return os.pwrite(self.file, data, offset)

    def preadinto(self, data: memoryview, offset: int) -> int:
        """Fill it."""
        return os.preadv(self.file, [data], offset)

    def sync(self) -> None:
        """Put it on the device."""
        os.fsync(self.file)


@contextmanager
def plain(folder: str) -> Iterator[Plain]:
    """Open a plain file."""
    file = Plain(os.path.join(folder, "x"))
    yield file
    os.close(file.file)


def through(file: Any, way: str, nbytes: int, data: memoryview) -> None:
    """Read or write all of a file, and where it is to be on the device wait for that."""
    room = memoryview(bytearray(len(data)))
    for at in range(0, nbytes, len(data)):
        file.preadinto(room, at) if way.startswith("read") else file.pwrite(data, at)
    if way == "write and sync":
        file.sync()


def devices(options: argparse.Namespace) -> list[dict[str, Any]]:
    """A folder on the disk and one in memory, each as slow as asked, together and alone."""
    rows, each = [], max(64 // options.scale, 8)
    with folders(1, options.folder or tempfile.gettempdir()) as here, folders(1) as there:
        for way in ("read", "write"):

            def rate(made: list[str], way: str = way) -> float:
                return transfer(
                    [SlowDisk(m, bytes_per_second=options.disk_rate * 1e6) for m in made], 2**20, 2, each, way
                )

            alone = best(options.rounds, partial(rate, here)) + best(options.rounds, partial(rate, there))
            both = best(options.rounds, partial(rate, here + there))
            rows.append({"way": way, "both, MB/s": both / 1e6, "sum, MB/s": alone / 1e6, "share": both / alone})
    return rows


def rechunk(options: argparse.Namespace) -> list[dict[str, Any]]:
    """An array on 4 simulated disks beside one, with scratch in memory; and staged with scratch on two beside one.

    In turn, several disks first: if the beginning of a process is slow, that counts against them. All rounds count.
    """
    rows = []
    for what, disks in (("rechunk", 4), ("scratch", 2)):
        pairs = [(on_disks(what, disks, options), on_disks(what, 1, options)) for _ in range(options.rounds)]
        times = [one / several for several, one in pairs]
        several, one = (statistics.median(each) for each in zip(*pairs, strict=True))
        rows.append(
            {"what": what, "one, s": one, "several, s": several, "disks": disks}
            | {"times": statistics.median(times), "least": min(times), "most": max(times)}
        )
    return rows


def on_disks(what: str, count: int, options: argparse.Namespace) -> float:
    """Seconds of a rewriting with so many slow disks: as source and target, or as scratch."""
    edge = int((2**30 // options.scale / 4) ** 0.5) // 64 * 64
    with folders(count) as made, folders(1) as fast:
        slow = [SlowDisk(folder, bytes_per_second=options.disk_rate * 1e6) for folder in made]
        if what == "rechunk":
            return rechunked(striped(slow, "s"), striped(slow, "t"), fast[0], edge, "auto", options.memory)
        source, target = os.path.join(fast[0], "s"), os.path.join(fast[0], "t")
        return rechunked(source, target, striped(slow, "scratch", block=2**20), edge, "staged", options.memory)


def striped(disks: list[SlowDisk], name: str, block: int | None = None) -> Any:
    """A striped store on slow disks."""
    return ooc.StripedStore(disks, block=block).below(name)


def unthrottled(store: Any) -> Any:
    """The same store without its disks' times: what is read in a benchmark is made before."""
    return ooc.StripedStore([f"{part._store.label}/{part.prefix.rstrip('/')}" for part in store.parts])


def rechunked(source: Any, target: Any, scratch: Any, edge: int, method: str, memory: str) -> float:
    """Seconds to rewrite an array of rows in columns."""
    place = source if isinstance(source, str) else unthrottled(source)
    array = zarr.create_array(place, shape=(edge, edge), dtype="f4", chunks=(edge // 64, edge), compressors=None)
    for row in range(0, edge, edge // 32):
        array[row : row + edge // 32] = np.arange(row, row + edge // 32, dtype="f4")[:, None]
    job = ooc.rechunk(
        source, target, chunks=(edge, edge // 64), method=method, memory=memory, scratch=scratch, scheduler="threads"
    )
    seconds, _ = seconds_of(job.run)
    assert (ooc.open_array(target)[:, 0] == np.arange(edge, dtype="f4")).all()
    return seconds


def main() -> None:
    """Run the benchmark as the command line asks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", default=",".join(PARTS), help="which, with commas between (default: all)")
    parser.add_argument("--scale", type=int, default=1, help="how many times as small (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of each (default: %(default)s)")
    parser.add_argument("--buffers", type=lambda t: [*map(int, t.split(","))], default=[1, 2, 4], help="C of `cells`")
    parser.add_argument(
        "--disk-rate",
        type=float,
        default=100.0,
        help="MB/s of a disk in `devices` and `rechunk` (default: %(default)s)",
    )
    parser.add_argument("--memory", default="1GiB", help="budget of a rechunk (default: %(default)s)")
    parser.add_argument("--folder", help="on the real device (default: the system's temporary folder)")
    parser.add_argument("--json", type=Path, help="where to keep what was measured")
    options = parser.parse_args()
    results = {}
    print(machine.facts(None))
    for name in options.parts.split(","):
        results[name] = globals()[name](options)
        print(f"\n{name}", table(results[name]), sep="\n", flush=True)
        if "run/model" in results[name][0]:
            off = [abs(1 - row["run/model"]) for row in results[name]]
            least = min(row["run/model"] for row in results[name])
            median, most = statistics.median(off), max(off)
            print(f"run/model: least {least:.3f}; off by {median:.1%} at the median, {most:.1%} at most")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


def table(rows: list[dict[str, Any]]) -> str:
    """Rows of numbers, one below the other."""
    lines = [list(rows[0])] + [[f"{v:.3g}" if isinstance(v, float) else str(v) for v in row.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(word.rjust(width) for word, width in zip(line, widths, strict=True)) for line in lines)


if __name__ == "__main__":
    main()
