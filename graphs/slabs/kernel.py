"""Calls of a kernel on windows, checks of its results, and its memory, measured on the first slab of a process.

read      ├── 1 ──┤         ├── 2 ──┤        other allocations wait while the first kernel computes
compute            ├── 0 ──┤├── 1 ──┤├──     one slab is enough: all are alike

The system records a process's peak resident memory (``VmHWM``), which includes the allocations of every library.
Python's `tracemalloc` sees numpy's arrays only, and can crash if other threads run when it stops (CPython gh-128679).
Memory kept from earlier work and reused by the kernel is not measured: it belongs to the idle level.

narrow    ░░███████░░            the requested depth
wide    ▒▒░░███████░░▒▒          the results for █ must be equal
"""

from __future__ import annotations

import os
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from oocarrays.errors import KernelError, RunError
from oocarrays.graphs.run.live import Live
from oocarrays.graphs.slabs.sweeps import Fused, largest, residual_of
from oocarrays.kernels.differences import Tolerance, differences
from oocarrays.kernels.results import BlockInfo, ResultTerms, checked, fitting, takes_info
from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.section import Section
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.storage.local.pages import Pool, give_back
from oocarrays.storage.meter import anonymous_bytes
from oocarrays.storage.sections.windows import Blocks, within

Kernel = Callable[..., Any]
"""Function of a block of each source, with its halo, that returns an array for each target."""


class SlabState:
    """Memory and threads of a pass in one process."""

    def __init__(self, kernel: Any) -> None:
        self.informs = takes_info(kernel)
        """Whether the kernel receives the position of its block."""
        self.memory, self.pool = KernelMemory(), Pool()
        self._threads: dict[tuple[str, int], ThreadPoolExecutor] = {}
        self._opening = threading.Lock()

    def thread(self, verb: str, rank: int) -> ThreadPoolExecutor:
        """Return the thread on which a rank reads, computes or writes: the allocator keeps freed memory by thread."""
        with self._opening:
            if (verb, rank) not in self._threads:
                self._threads[verb, rank] = ThreadPoolExecutor(1, f"{verb}-{rank}")
            return self._threads[verb, rank]

    def release(self) -> None:
        """Release memory and threads kept for the next slab."""
        self.pool.forget()
        with self._opening:
            for thread in self._threads.values():
                thread.shutdown(wait=False)
            self._threads = {}


def state_of(live: Live[Any]) -> SlabState:
    return live.once("slabs", lambda: SlabState(live.program.kernel))


def results_of(live: Live[Any], slab: Slab, blocks: Blocks) -> Blocks:
    """Call the kernel on a complete window; return results without halo, and after sweeps the residual of the last."""
    if live.program.sweep is not None:
        return _called(live, slab, _sweep, blocks)
    plan: SlabPlan = live.program.plan
    core, window, seen = plan.core(slab), plan.window(slab), plan.seen(slab)
    wide: Blocks = []
    if plan.margin:
        narrow = [_copied(live, block, within(seen, window)) for block in blocks]
        count = len(plan.numbers(slab.rank))
        if slab.number in (0, count // 2, count - 1):  # only copies are held when the kernel is called again
            made = _made(live, slab, _called(live, slab, _apply, blocks), window)
            wide = [_copied(live, each, ...) for each in _trimmed(plan, made, core, window)]
            del made
        blocks = narrow
    made = _made(live, slab, _called(live, slab, _apply, blocks), seen)
    _check_memory(live)
    found = _trimmed(plan, made, core, seen)
    check_alike(found, wide, _where(plan, slab))
    return found


def _called(live: Live[Any], slab: Slab, call: Callable[[Live[Any], Slab, Blocks], Any], blocks: Blocks) -> Any:
    """Call the kernel on the thread of its rank; an error names the slab."""
    try:
        return state_of(live).thread("compute", slab.rank).submit(call, live, slab, blocks).result()
    except RunError:
        raise
    except Exception as error:
        raised = f"{type(error).__name__}: {error}{own_line(error)}"
        raise KernelError(f"the kernel failed on {_where(live.program.plan, slab)}: {raised}") from error


def _apply(live: Live[Any], slab: Slab, blocks: Blocks) -> Any:
    plan, kernel, state = live.program.plan, live.program.kernel, state_of(live)
    with state.memory.computing() if plan.estimated else nullcontext():
        if not state.informs:
            return kernel(*blocks)
        core, window = plan.core(slab), plan.window(slab)
        window = window if window.shape == blocks[0].shape else plan.seen(slab)
        return kernel(*blocks, block_info=BlockInfo(core, window, within(core, window)[:-1], plan.shape))


def _sweep(live: Live[Any], slab: Slab, blocks: Blocks) -> Blocks:
    program, plan, pool = live.program, live.program.plan, state_of(live).pool
    fused = Fused(kernel=program.kernel, sweeps=plan.sweeps, threads=plan.threads, fields=len(program.writes))
    residual = program.sweep.residual
    ends = [list(zip(each.lower, each.upper, strict=True)) for each in (plan.window(slab), plan.core(slab))]
    found: list[float] = []
    watch = None if residual is None else lambda before, after: found.append(residual_of(residual, before, after))
    shape, dtypes = plan.core(slab).shape, [each.dtype.newbyteorder("=") for each in blocks[: fused.fields]]
    out = [pool.lend(shape, dtype, elements=plan.window_elements) for dtype in dtypes]
    return [*fused(blocks, *ends, out=out, watch=watch), np.array(largest(found))]


def _made(live: Live[Any], slab: Slab, given: Any, seen: Section) -> Blocks:
    """Check the kernel's results against the elements that it has seen."""
    plan, where = live.program.plan, _where(live.program.plan, slab)
    wanted = [
        ResultTerms(str(array.store), plan.standing(seen, number).shape, array.settings["dtype"])
        for number, array in enumerate(live.program.arrays)
    ]
    return fitting(checked(given, wanted, seen.shape, where), wanted, where)


def _trimmed(plan: SlabPlan, made: Blocks, core: Section, seen: Section) -> Blocks:
    """Cut the results for all visible elements to those of a slab; no copy if they are equal."""
    trimmed: Blocks = []
    for number, each in enumerate(made):
        inner, outer = plan.standing(core, number), plan.standing(seen, number)
        trimmed.append(each if inner == outer else each[within(inner, outer)])
    return trimmed


def _copied(live: Live[Any], array: np.ndarray, place: Any) -> np.ndarray:
    elements = live.program.plan.window_elements
    copied = state_of(live).pool.lend(array[place].shape, array.dtype, elements=elements)
    copied[...] = array[place]
    return copied


def _check_memory(live: Live[Any]) -> None:
    """Raise if the kernel's memory exceeds the budget, with 1 MiB for objects and for errors of the system's count.

    An excess of less than 4 MiB may be that of another thread, and is measured again.
    """
    plan, memory = live.program.plan, state_of(live).memory
    own = (memory.each or 0) - plan.result_bytes
    each = plan.ranks_here * (own - plan.workspace - 2**20)
    if each > 0 and plan.peak_bytes + each > plan.budget:
        if plan.count > 1 and each < 2**22 and memory.measure_again():
            return
        raise KernelError(
            f"the kernel held {own} bytes beside its block and results, more than the {plan.workspace} planned: "
            f"{plan.peak_bytes + each} bytes would be needed of memory={plan.budget}; "
            f"pass Resources(workspace='{ceil_div(own, 2**20)}MiB')"
        )


def _where(plan: SlabPlan, slab: Slab) -> str:
    """Return a description of a slab for messages: its elements in the array."""
    spans = (f"{span.start}:{span.stop}" for span in plan.core(slab).axes)
    return f"slab [{', '.join(spans)}] (number {slab.number} of rank {slab.rank})"


def own_line(error: BaseException) -> str:
    """Return file and line of the last call in the user's code, as the end of a message; "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    others = tuple(f"{folder}{os.sep}" for folder in (ours, *folders))
    own = [frame for frame in frames if not frame.filename.startswith(others)]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


def check_alike(narrow: Sequence[np.ndarray], wide: Sequence[np.ndarray], where: str) -> None:
    """Raise if results differ when the kernel sees more neighbours; check nothing if ``wide`` is empty.

    Floating-point numbers may differ by the square root of their precision, relative to the largest one: transforms
    round differently in blocks of other lengths.
    """
    for one, other in zip(narrow, wide, strict=bool(wide)):
        near = 0.0
        if one.dtype.kind in "fc":
            root = float(np.sqrt(np.finfo(one.dtype).eps))
            parts = (wider[np.isfinite(wider)] for _, wider in _pieces(one, other))
            near = root * max((float(np.abs(part).max(initial=0)) for part in parts), default=0.0)
        for each in _pieces(one, other):
            found = differences(*each, (0,) * one.ndim, Tolerance(atol=near))
            if found.count:
                a, b = found.values
                raise KernelError(
                    f"the kernel returns {a} in {where}, and {b} where it sees more neighbours: depth is too small for "
                    "it, or the result depends on where slabs are cut"
                )


def _pieces(one: np.ndarray, other: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield equal pieces of two arrays along their longest axis.

    Pieces of 8192 elements have temporaries that fit in a cache, and are counted in a plan.
    """
    axis = int(np.argmax(one.shape))
    rows = max(2**13 * one.shape[axis] // max(one.size, 1), 1)
    for start in range(0, one.shape[axis], rows):
        part = (slice(None),) * axis + (slice(start, start + rows),)
        yield one[part], other[part]


class KernelMemory:
    """Measurement of a process's first kernel, during which no other memory is allocated."""

    def __init__(self) -> None:
        self.each: int | None = None
        """Maximum bytes held by the kernel, including its results; None before a measurement."""
        self._changed = threading.Condition()
        self._begun = False
        self._doubted = False
        self._alone = False
        self._under_way = 0

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Allocate or release memory in this block, but not during the measurement."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._under_way += 1
        try:
            yield
        finally:
            with self._changed:
                self._under_way -= 1
                self._changed.notify_all()

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Measure the first kernel, including its imports and compilation."""
        with self._changed:
            first, self._begun = not self._begun, True
            if first:  # all others wait from now on
                self._alone = True
                self._changed.wait_for(lambda: not self._under_way)
        if not first:
            with self.taking():
                yield
            return
        try:
            before = None
            give_back()
            with suppress(OSError):
                Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM
                before = anonymous_bytes()
            yield
            peak = _most()
            if before is not None and peak is not None:
                self.each = max(peak - before, 0)
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()

    def measure_again(self) -> bool:
        """Measure the next kernel instead of the first, once; return whether it will be measured."""
        with self._changed:
            if self._doubted:
                return False
            self._doubted, self._begun, self.each = True, False, None
            return True


def _most() -> int | None:
    """Return the maximum anonymous bytes in memory; None if the system does not report them."""
    with suppress(OSError, KeyError):
        status = Path("/proc/self/status").read_text(encoding="ascii")
        lines = (line.split(":") for line in status.splitlines())
        kib = {name: int(value.split()[0]) for name, value in lines if name in ("VmHWM", "RssFile")}
        return 1024 * (kib["VmHWM"] - kib["RssFile"])
    return None
