"""Iterator over slabs: a thread reads the next ones while the caller computes with one.

    loop     ┬─ slab 0 ────┬─ slab 1 ────┬─ …
    thread   └─ read 1 ────┴─ read 2 ────┴─ …      `prefetch` slabs ahead

Thakur 1995, section 5.5.2 and Figure 5.8.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np
from dask.utils import format_bytes

from oocarrays.graphs import settings
from oocarrays.graphs.run.telling import warn_of_missing
from oocarrays.mapping.section import Section
from oocarrays.plan.slabs.cuts import plan_slabs
from oocarrays.plan.slabs.geometry import Slab
from oocarrays.plan.slabs.options import SlabOptions
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.show import report
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.metered import new_meter
from oocarrays.storage.sections.windows import Blocks, Windows, within

Window = tuple[Slab, Blocks]


@dataclass(frozen=True, slots=True, eq=False)
class SlabWindow:
    """A slab in memory, with its halo."""

    data: np.ndarray
    """Its elements, which the caller may change: rows for the next slab have been copied."""
    section: Section
    """Elements of the array in it, without its halo."""
    inside: tuple[slice, ...]
    """Position of these in ``data``."""

    def __repr__(self) -> str:
        spans = ", ".join(f"{taken.start}:{taken.stop}" for taken in self.section.axes)
        return f"<oocarrays.SlabWindow [{spans}], {report.shape_text(self.data.shape)} with its halo>"


class SlabIterator:
    """Iterator over the slabs of an array. Created by `OutOfCoreArray.slabs`; nothing is read before the first slab.

    A ``with`` block, or `close`, ends it early.
    """

    def __init__(self, file: ArrayFile, plan: SlabPlan, prefetch: int) -> None:
        self.plan = plan
        """Frozen plan: reads, and peak memory."""
        self.meter = new_meter()
        """Meter of the reads so far."""
        self._name = file.presence.name
        self._windows = _read_ahead(Windows(plan, [file], self.meter).in_order(), prefetch)

    def __iter__(self) -> SlabIterator:
        return self

    def __next__(self) -> SlabWindow:
        window = next(self._windows, None)
        if window is None:
            warn_of_missing(self.meter, self._name)
            raise StopIteration
        slab, (data,) = window
        core = self.plan.core(slab)
        return SlabWindow(data, core, within(core, self.plan.window(slab))[:-1])

    def __len__(self) -> int:
        return self.plan.count

    def close(self) -> None:
        """Stop reading, and end the thread; allowed after the end, too."""
        self._windows.close()
        warn_of_missing(self.meter, self._name)

    def __enter__(self) -> SlabIterator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        plan = self.plan
        return (
            f"<oocarrays.SlabIterator {report.shape_text(plan.shape)} in {report.fact_text(plan.cut_fact(' slabs'))}, "
            f"{format_bytes(plan.peak_bytes)} of {format_bytes(plan.budget)}>"
        )


def _read_ahead(windows: Iterator[Window], prefetch: int) -> Generator[Window, None, None]:
    """Yield the windows, with `prefetch` of them read ahead by a thread that ends with this generator."""
    if not prefetch:
        yield from windows
        return
    pool, ahead = ThreadPoolExecutor(1, "oocarrays-slabs"), deque[Future[Window | None]]()
    try:
        ahead.append(pool.submit(next, windows, None))
        while (window := ahead.popleft().result()) is not None:
            while len(ahead) < prefetch:
                ahead.append(pool.submit(next, windows, None))
            yield window
    finally:
        pool.shutdown(cancel_futures=True)


def slabs_of(file: ArrayFile, options: SlabOptions, memory: int | float | str | None) -> SlabIterator:
    """Plan the slabs of an array file: see `OutOfCoreArray.slabs`."""
    asked = replace(
        options,
        budget=settings.budget(memory),
        prefetch=options.prefetch or 1,  # a loop holds its slab while it asks for the next
        workspace=0,
        past_cache_above=settings.past_cache_above(),
    )
    return SlabIterator(file, plan_slabs([file.stored], (), asked), options.prefetch)
