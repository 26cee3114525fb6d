"""Overlap of disk and processor, measured (Thakur 1995, section 5.5.2): a kernel that takes as long as the disk.

    A   read 0  compute 0  write 0  read 1  compute 1  …        prefetch=0
    B   read 0  read 1     read 2   …                           prefetch=2
                compute 0  compute 1  …

A loop over `a.slabs()` reads and computes; a pass of `map_slabs` writes, too, and to the device that it reads from. How
long that takes by itself is measured first; the kernel then computes for just as long (of a pass once as long as the
read alone, and once as long as the device is busy). A and B take turns, and the fastest run of each counts. What is
ideal is the longest of what the device does and what the kernel does in A, and one slab more, which nothing can hide.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import machine
import numpy as np
import slab_cases
from cases import MIB
from report import row
from slab_cases import EDGE, Case

import oocarrays as ooc
from oocarrays.storage.meter import MemoryWatch, Span

PHASES = {"read": "#4878a8", "compute": "#d97b29", "write": "#6a9a58"}
SLABS = 128
DRAWN = 12
"""Slabs in the picture."""
AHEAD = 2
"""Slabs that are read ahead: with one, each that comes late stops the kernel, where both take as long."""
MUST = 1.1
"""Wall, less one slab, ÷ the longer of what the device does and what the kernel does."""
NAMES = ("", "cache", "slab read / compute / write ms", "without s", "with s", "ideal s", "of the ideal", "must be")


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """One pass."""

    seconds: float
    """Wall time."""
    cpu: float
    """Seconds of processors."""
    peak: int
    """Bytes held at most, above the level before."""
    planned: int
    """What the plan says of it."""
    moved: tuple[int, int]
    """Bytes read and written."""
    one_device: bool
    """Whether what is read and what is written wait for the same device; else the system's cache has a part in it."""
    spans: tuple[Span, ...]
    """When each slab was read, computed and written, in seconds from the first."""

    def each(self, phase: str) -> list[float]:
        """Seconds of each slab."""
        return [span.stop - span.start for span in self.spans if span.phase == phase]

    @property
    def device_seconds(self) -> float:
        """Seconds in which reading and writing cannot but wait for each other, or the longer of the two."""
        each = sum(self.each("read")), sum(self.each("write"))
        return sum(each) if self.one_device else max(each)


def overlap(options: argparse.Namespace) -> Iterator[dict]:
    """Three rows for each state of the cache; the picture is of the last pass."""
    edge = 4 * EDGE // options.scale
    case = Case(operation="none", times=0, dtype="f4", kind="smooth", edge=edge, memory=options.memory)
    height = max(edge // SLABS, 1)
    folder = os.path.join(options.workdir, "sources")
    os.makedirs(folder, exist_ok=True)
    store = slab_cases.source(case, (height, edge), folder)
    print(
        f"\n**overlap**: {case.nbytes / MIB:.0f} MiB in {SLABS} slabs, one rank. Two threads that compute in cache take"
    )
    print(f"{_beside_another():.2f} times as long as one: what processors do at the same time, they do slower.\n")
    print(row([*NAMES, "CPU s", "peak MiB", "read, written MiB"]), row(["---", *["---:"] * 10]), sep="\n", flush=True)
    for cache in options.cache:
        place = store, height, cache, options
        read, device = _alone(*place)
        loops = _turns(options, partial(_loop, *place, _taking(read / SLABS)))
        print(_loop_row(cache, read, *map(min, loops)), flush=True)
        for name, seconds in {"as the read": read, "as the device": device}.items():
            runs = _turns(options, partial(_pass, *place, _taking(seconds / SLABS)))
            both = [min(each, key=lambda run: run.seconds) for each in runs]
            print(_row(f"pass, kernel {name}", cache, *both, case), flush=True)
        yield {"question": "overlap", "cache": cache, "loop": loops, "best": [asdict(run) for run in both]}
    if options.picture:
        draw(options.picture, *both)
        print(f"\nFigure 5.8: {options.picture}")


def _beside_another() -> float:
    """Return how much longer a thread sorts numbers beside another one than alone."""
    seconds: list[float] = []

    numbers = np.random.default_rng(0).random(2**20)

    def compute() -> None:
        start = time.perf_counter()
        for _ in range(10):
            np.sort(numbers)  # one call at a time, without the interpreter's lock
        seconds.append(time.perf_counter() - start)

    compute()
    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(compute) for _ in range(2)]:
            each.result()
    return max(seconds[1:]) / seconds[0]


def _alone(store: str, height: int, cache: str, options: argparse.Namespace) -> tuple[float, float]:
    """Seconds of reading by itself, and of all that the device does in a pass."""
    read = min(_loop(store, height, cache, options, _taking(0), 0) for _ in range(2))
    runs = [_pass(store, height, cache, options, _taking(0), 0) for _ in range(2)]
    return read, min(run.device_seconds for run in runs)


def _turns(options: argparse.Namespace, run: Callable[[int], Any]) -> list[list[Any]]:
    """Runs without prefetch, and runs with it, made in turn."""
    both = [[run(ahead) for ahead in (0, AHEAD)] for _ in range(options.discard + options.rounds)]
    return [list(each) for each in zip(*both[options.discard :], strict=True)]


def _taking(seconds: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return a kernel that computes for some time, some rows after others, and leaves its block as it is."""

    def kernel(block: np.ndarray) -> np.ndarray:
        stop = time.perf_counter() + seconds
        scratch = np.empty_like(block[:16])
        while time.perf_counter() < stop:
            np.multiply(block[: len(scratch)], 1.0, out=scratch[: len(block)])
        return block

    return kernel


def _loop(store: str, height: int, cache: str, options: argparse.Namespace, kernel: Any, prefetch: int) -> float:
    """Seconds of a loop over slabs."""
    _prepare(store, cache)
    start = time.perf_counter()
    with ooc.open_array(store).slabs(height=height, prefetch=prefetch, memory=options.memory) as slabs:
        for slab in slabs:
            kernel(slab.data)
    return time.perf_counter() - start


def _pass(store: str, height: int, cache: str, options: argparse.Namespace, kernel: Any, prefetch: int) -> Watched:
    """One pass of one rank."""
    how = {"height": height, "ranks": 1, "prefetch": prefetch, "memory": options.memory, "workspace": "1MiB"}
    target = os.path.join(options.workdir, "target")
    shutil.rmtree(target, ignore_errors=True)
    job = ooc.map_slabs(kernel, store, target, scheduler="threads", **how)
    _prepare(store, cache)
    return watched(job, cache)


def _prepare(store: str, cache: str) -> None:
    {"cold": machine.make_cold, "warm": machine.make_warm}[cache](store)


def watched(job, cache: str = "") -> Watched:
    """Run a job and return its times, memory and spans, these counted from the first on."""
    with MemoryWatch() as watch:
        start, busy = time.perf_counter(), time.process_time()
        job.run()
        seconds, cpu = time.perf_counter() - start, time.process_time() - busy
    meter = job.meter
    spans = sorted((span for span in meter.spans if span.phase in PHASES), key=lambda span: span.start)
    begin = spans[0].start
    return Watched(
        seconds=seconds,
        cpu=cpu,
        peak=watch.peak_bytes,
        planned=job.plan.peak_bytes,
        moved=(meter.read_bytes, meter.written_bytes),
        one_device=cache == "cold" and job.plan.past_cache,
        spans=tuple(replace_times(span, begin) for span in spans),
    )


def replace_times(span: Span, begin: float) -> Span:
    """Return the same span, counted from ``begin``."""
    return span._replace(start=span.start - begin, stop=span.stop - begin)


def _loop_row(cache: str, read: float, without: float, ahead: float) -> str:
    return row(["loop, kernel as the read", cache, f"{1e3 * read / SLABS:.1f} / {1e3 * read / SLABS:.1f} /",
                *_reached(without, ahead, read, 2 * read / SLABS), "", "", ""])  # fmt: skip


def _row(name: str, cache: str, without: Watched, ahead: Watched, case: Case) -> str:
    longest = max(without.device_seconds, sum(without.each("compute")))
    slab = sum(median(without.each(phase)) for phase in PHASES)
    phases = " / ".join(f"{1e3 * median(without.each(phase)):.1f}" for phase in PHASES)
    over = "" if ahead.peak <= ahead.planned <= case.memory else " OVER ITS PLAN"
    cells = [name, cache, phases, *_reached(without.seconds, ahead.seconds, longest, slab), f"{ahead.cpu:.2f}"]
    cells += [f"{ahead.peak / MIB:.0f} of {ahead.planned / MIB:.0f} planned{over}"]
    return row([*cells, ", ".join(f"{moved / MIB:.0f}" for moved in ahead.moved)])


def _reached(without: float, ahead: float, longest: float, slab: float) -> list[str]:
    share = (ahead - slab) / longest
    told = f"{MUST}: {'reached' if share <= MUST else 'NOT REACHED'}"
    return [f"{without:.3f}", f"{ahead:.3f}", f"{longest:.3f} + {slab:.3f}", f"{share:.2f}", told]


# ---------------------------------------------------------------------- Figure 5.8


def draw(path: Path, without: Watched, ahead: Watched) -> None:
    """A bar for each read, each computing and each write of the first slabs, without prefetch and with it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 6), layout="constrained")
    panels = figure.subplots(2, 1, sharex=True)
    for axes, run, name in zip(panels, (without, ahead), ("A: without prefetch", "B: with prefetch"), strict=True):
        for lane, (phase, color) in enumerate(PHASES.items()):
            for span in (span for span in run.spans if span.phase == phase and span.args[0] < DRAWN):
                width = 1e3 * (span.stop - span.start)
                axes.barh(lane, width, left=1e3 * span.start, height=0.8, color=color, edgecolor="white", linewidth=0.6)
                axes.annotate(
                    str(span.args[0]),
                    (1e3 * span.start + width / 2, lane),
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white",
                    annotation_clip=True,
                )
        axes.set_yticks(range(len(PHASES)), list(PHASES))
        axes.invert_yaxis()
        axes.set_title(f"{name}, {run.seconds:.2f} s in all", loc="left")
        axes.spines[["top", "right"]].set_visible(False)
    panels[-1].set_xlabel("ms; numbers are slabs")
    figure.savefig(path, dpi=120)
