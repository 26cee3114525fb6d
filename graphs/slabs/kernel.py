"""Tasks of a pass over slabs.

A run is one object for all its tasks. Threads share it; on a cluster it is sent once to each worker, and opens its
files there.
"""

from __future__ import annotations

import os
import sysconfig
import threading
import traceback
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import zarr

from oocarrays.errors import KernelError, RunError
from oocarrays.graphs.run.journaled import JournaledRun, check_folder, check_room
from oocarrays.graphs.run.recovery import NOTHING_LEFT, Recovered
from oocarrays.graphs.run.tasks import Sealed
from oocarrays.graphs.slabs.workspace import KernelMemory, check_alike, is_verified
from oocarrays.kernels.binding import BlockInfo, takes_info
from oocarrays.kernels.results import ResultTerms, checked, fitting
from oocarrays.mapping.grid import ceil_div
from oocarrays.mapping.section import Section
from oocarrays.mapping.selection import Axes
from oocarrays.plan.documents import Document
from oocarrays.plan.slabs.geometry import Slab, written
from oocarrays.plan.slabs.plan import SlabPlan
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.files.documents import remove_partials, unfinished_run
from oocarrays.storage.files.local_files import RankFiles, placed
from oocarrays.storage.files.places import StoreLike, local_folder
from oocarrays.storage.files.presence import Presence
from oocarrays.storage.files.target import TargetSpec
from oocarrays.storage.journal.receipts import Receipt, Receipts
from oocarrays.storage.pool import Pool
from oocarrays.storage.sections.windows import Blocks, Windows, within
from oocarrays.storage.sections.write import write_section
from oocarrays.storage.stores.remote import RemoteStore


def own_line(error: BaseException) -> str:
    """Return file and line of the last call in the user's code, as the end of a message; "" if there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    others = tuple(f"{folder}{os.sep}" for folder in (ours, *folders))
    own = [frame for frame in frames if not frame.filename.startswith(others)]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""


Kernel = Callable[..., Any]
"""Function of a block of each source, with its halo, that returns an array for each target."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlabFiles:
    """Files that a pass over slabs reads and writes."""

    sources: Sequence[Any]
    """Sources, `ArrayFile` or `RankFiles`, aligned."""
    targets: Sequence[TargetSpec]
    """One or more targets."""
    group: TargetSpec | None = None
    """Group of the targets, if any; the journal is beside it, or else beside the first target."""


class SlabRun(JournaledRun):
    """One pass over slabs, shared by its tasks."""

    merges: ClassVar[bool] = True
    own_files: ClassVar[bool] = False
    """Whether each rank makes and closes its own files."""
    iterates: ClassVar[bool] = False
    """Whether it is one of several passes, each of which returns its residual."""
    phases: ClassVar[Mapping[str, str]] = {verb: verb for verb in ("read", "fetch", "give", "compute", "write")}
    plan: SlabPlan
    destination: TargetSpec

    def __init__(
        self,
        plan: SlabPlan,
        kernel: Kernel,
        files: SlabFiles,
        content: Document,
        *,
        processes: int | None = None,
        remains: Recovered = NOTHING_LEFT,
    ) -> None:
        self.plan = plan
        self.targets = tuple(files.targets)
        self.destination = files.group or self.targets[0]
        self.content = content
        self.remains = remains
        self._given: Sealed[tuple[Kernel, tuple[Any, ...]]] = Sealed((kernel, tuple(files.sources)))
        self.informs = takes_info(kernel)
        self.copied: Sequence[ArrayFile] = ()
        """Sources, or their copies in scratch, that are read; empty for the sources themselves."""
        super().__init__(self.destination.store, processes, remains.id)

    def _here(self) -> None:
        super()._here()
        self._opening = threading.RLock()
        self._memory = KernelMemory()
        self._pool = Pool()
        self._threads: dict[tuple[str, int], ThreadPoolExecutor] = {}
        self._written: list[Any] | None = None

    @property
    def given(self) -> tuple[Kernel, tuple[Any, ...]]:
        return self._given.value

    @property
    def read_from(self) -> Sequence[zarr.Array]:
        return [source.zarr for source in self.given[1]]

    @property
    def written_places(self) -> list[StoreLike]:
        return [target.store for target in self.targets]

    @property
    def stores(self) -> dict[str, Any]:
        read = {f"source {number}": _store_of(source) for number, source in enumerate(self._presumed())}
        return read | {f"target {number}": target.store for number, target in enumerate(self.targets)}

    def _presumed(self) -> Sequence[Any]:
        """Return the sources that the run does not make itself."""
        return self.given[1]

    @property
    def expected(self) -> tuple[float, float]:
        """Requests for reading, and chunks to write, in the remaining work."""
        traffic = self.plan.passing
        return self.left * traffic.read_requests, self.left * traffic.write_requests

    @property
    def left(self) -> float:
        """Share of the slabs that remains to be written."""
        return 1 - len(self.done.intersection(self.plan.all_slabs())) / max(self.plan.count, 1)

    # ------------------------------------------------------------------ beginning and end

    def reads(self) -> Iterable[Presence]:
        """Return the sources; of local array files, those open in this process."""
        return chain.from_iterable(source.presences for source in self._presumed())

    def _check_visible(self) -> None:
        for target in self.targets:
            check_folder(target.store)

    def _begin_anew(self) -> None:
        super()._begin_anew()
        self._memory, self._written = KernelMemory(), None

    def _check_target(self) -> None:
        for target in self._unmade():
            for source in self.given[1]:
                target.check(source)

    def _check_room(self) -> None:
        stored = zip(self.targets, self.plan.targets, strict=True)
        plain = [(local_folder(target.store), known) for target, known in stored if not known.coded]
        check_room({folder: known.grid.count * known.chunk_bytes for folder, known in plain if folder})

    def _make_targets(self) -> None:
        """Make the targets, the first one last: its mark shows that all exist."""
        for target in reversed(self._unmade()):
            target.create(self.id, durable=self.durable)

    def _unmade(self) -> list[TargetSpec]:
        """Return the targets that this run has not made, in this or an earlier process."""
        return [target for target in self.targets if unfinished_run(target.store) != self.id]

    def _forget_what_is_gone(self) -> None:
        """Raise if a target was replaced while slabs remain; finished targets have no mark any more."""
        gone = self._unmade()
        if gone and not all(map(self.is_done, self.plan.all_slabs())):
            raise RunError(f"{gone[0].store} has changed since run {self.id} stopped")
        super()._forget_what_is_gone()

    def _changed_places(self) -> Sequence[StoreLike | RemoteStore]:
        """Return the files in which chunks may be partially written."""
        return [place for target in self.targets for place in target.places]

    def _remove_partials(self) -> None:
        for target in self.targets:
            remove_partials(target.store)

    def _finish(self) -> str:
        self._end(None)
        self._let_go_of_memory()
        return str(self.destination.store)

    def _finishing(self) -> Callable[[], None]:
        each = zip(self.targets, self._open_targets(), strict=True)
        ready = [target.finishing(opened, durable=self.durable) for target, opened in each]

        def finish() -> None:
            """Publish the targets, the first one last: its mark shows that some still carry one."""
            for each in reversed(ready):
                each()

        return finish

    def take_back(self) -> None:
        """Remove targets without any written part, the first one last, as if the run had not begun."""
        self._remove_begun(self._begun(), lambda part: len(part) > 1)

    def _begun(self) -> Sequence[StoreLike]:
        """Return the targets, to remove if nothing has been written."""
        return self.written_places

    def settle(self, *, resumable: bool = False) -> None:
        """Wait for running tasks, so that nothing is written after a run has failed."""
        super().settle(resumable=resumable)
        self._let_go_of_memory()

    def _open_targets(self) -> list[Any]:
        with self._opening:
            if self._written is None:
                self.journal.join()
                self._written = [target.open() for target in self.targets]
            return self._written

    # ------------------------------------------------------------------ slabs

    @property
    def windows(self) -> Windows:
        """Return the reader of windows, with this run's counter."""
        return Windows(self.plan, self.copied or self.given[1], self.meter, self._pool)

    def _read(self, number: int, rank: int) -> Blocks | None:
        """Read a band of each source into the middle of a window; return None if no slab needs it."""
        slab = Slab(number, rank)
        if self.is_done(slab) and all(map(self.is_done, self.plan.takers(slab))):
            return None
        with self._memory.taking():
            return self._thread_of("read", rank).submit(self.windows.read, slab).result()

    def _give(self, taker: int, taker_rank: int, number: int, rank: int, blocks: Blocks | None) -> list[Blocks] | None:
        """Return copies of the band's share in the window of another slab."""
        return self.windows.given(Slab(taker, taker_rank), Slab(number, rank), blocks) if blocks else None

    def _fetch(self, taker: int, taker_rank: int, rank: int) -> list[Blocks]:
        """Read again the elements that the window of another rank lacks."""
        return self.windows.fetched(Slab(taker, taker_rank), rank)

    def _compute(self, number: int, rank: int, blocks: Blocks | None, *given: list[Blocks] | None) -> Blocks | None:
        """Call the kernel on a completed window; return results without halo, or None if they have been written."""
        slab = Slab(number, rank)
        if blocks is None or self.is_done(slab):
            return None
        self.windows.fill(slab, blocks, [came for came in given if came is not None])
        return self._results(slab, blocks)

    def _results(self, slab: Slab, blocks: Blocks) -> Blocks:
        """Call the kernel on a complete window; return results without halo."""
        core, window, seen = self.plan.core(slab), self.plan.window(slab), self.plan.seen(slab)
        wide: Blocks = []
        if self.plan.margin:
            narrow = [self._copied(block, within(seen, window)) for block in blocks]
            if is_verified(self.plan, slab):  # release everything but the copies before the kernel is called again
                made = self._made(slab, self._called(slab, blocks), window)
                wide = [self._copied(each, ...) for each in self._trimmed(made, core, window)]
                del made
            blocks = narrow
        results = self._made(slab, self._called(slab, blocks), seen)
        self._check_memory()
        found = self._trimmed(results, core, seen)
        check_alike(found, wide, self._where(slab))
        return found

    def _trimmed(self, results: Blocks, core: Section, seen: Section) -> Blocks:
        """Cut the results for all visible elements to those of a slab; no copy if they are equal."""
        trimmed: Blocks = []
        for number, made in enumerate(results):
            inner, outer = self.plan.standing(core, number), self.plan.standing(seen, number)
            trimmed.append(made if inner == outer else made[within(inner, outer)])
        return trimmed

    def _copied(self, array: np.ndarray, place: Any) -> np.ndarray:
        copied = self._pool.lend(array[place].shape, array.dtype, elements=self.plan.window_elements)
        copied[...] = array[place]
        return copied

    def _called(self, slab: Slab, blocks: Blocks) -> Any:
        try:
            return self._thread_of("compute", slab.rank).submit(self._apply, slab, blocks).result()
        except RunError:
            raise
        except Exception as error:
            raised = f"{type(error).__name__}: {error}{own_line(error)}"
            raise KernelError(f"the kernel failed on {self._where(slab)}: {raised}") from error

    def _thread_of(self, verb: str, rank: int) -> ThreadPoolExecutor:
        """Return the thread on which a rank reads, computes or writes: the allocator keeps freed memory by thread."""
        with self._opening:
            if (verb, rank) not in self._threads:
                self._threads[verb, rank] = ThreadPoolExecutor(1, f"{verb}-{rank}")
            return self._threads[verb, rank]

    def _let_go_of_memory(self) -> None:
        """Release memory and threads kept for the next slab."""
        self._pool.forget()
        with self._opening:
            for thread in self._threads.values():
                thread.shutdown(wait=False)
            self._threads = {}

    def _apply(self, slab: Slab, blocks: Blocks) -> Any:
        kernel, _ = self.given
        with self._memory.computing() if self.plan.estimated else nullcontext():
            if not self.informs:
                return kernel(*blocks)
            core, window = self.plan.core(slab), self.plan.window(slab)
            window = window if window.shape == blocks[0].shape else self.plan.seen(slab)
            return kernel(*blocks, block_info=BlockInfo(core, window, within(core, window)[:-1], self.plan.shape))

    def _check_memory(self) -> None:
        """Raise if the kernel's memory exceeds the budget, with 1 MiB for objects and for errors of the system's count.

        An excess of less than 4 MiB may be that of another thread, and is measured again.
        """
        plan, held = self.plan, self._memory.each or 0
        own = held - plan.result_bytes
        each = plan.ranks_here * (own - plan.workspace - 2**20)
        if each > 0 and plan.peak_bytes + each > plan.budget:
            if plan.count > 1 and each < 2**22 and self._memory.measure_again():
                return
            raise KernelError(
                f"the kernel held {own} bytes beside its block and results, more than the {plan.workspace} planned: "
                f"{plan.peak_bytes + each} bytes would be needed of memory={plan.budget}; "
                f"pass workspace='{ceil_div(own, 2**20)}MiB'"
            )

    def _where(self, slab: Slab) -> str:
        """Return a description of a slab for messages: its elements in the array."""
        spans = (f"{span.start}:{span.stop}" for span in self.plan.core(slab).axes)
        return f"slab [{', '.join(spans)}] (number {slab.number} of rank {slab.rank})"

    def _made(self, slab: Slab, results: Any, seen: Section) -> Blocks:
        """Check the kernel's results against the elements that it has seen."""
        where = self._where(slab)
        wanted = [
            ResultTerms(str(target.store), self.plan.standing(seen, number).shape, target.settings["dtype"])
            for number, target in enumerate(self.targets)
        ]
        return fitting(checked(results, wanted, seen.shape, where), wanted, where)

    def _write(self, number: int, rank: int, results: Blocks | None) -> Any:
        if results is not None:
            slab = Slab(number, rank)
            self.record(slab, self._stored(slab, results))

    def _stored(self, slab: Slab, results: Blocks) -> dict[str, dict[str, Receipt]]:
        """Write the results of a slab; return the receipts of its chunks by location."""
        stored, targets = {}, self._open_targets()
        for each in written(self.plan):
            file, axes = placed(targets[each], slab.rank, self.plan.made(slab, each).axes)
            name = self._place_name(each, slab.rank)
            with self._memory.taking():
                stored[name] = self._put(slab.rank, file, axes, results[each], self.remains.kept.get(name, {}))
        return stored

    def _place_of(self, part: tuple[int, ...], name: str) -> StoreLike | None:
        return self.targets[int(name)].store if name.isdigit() and int(name) < len(self.targets) else None

    def _place_name(self, number: int, rank: int) -> str:
        """Return the name of the place at which a rank writes a target, as in the journal."""
        return self.targets[number].place_name(number, rank)

    def _put(
        self, rank: int, file: ArrayFile, axes: Axes, values: np.ndarray, kept: Container[str] = ()
    ) -> dict[str, Receipt]:
        """Write some elements, except for kept chunks, and return the receipts of their chunks."""
        receipts = Receipts(kept)
        how: Any = {"meter": self.meter, "past_cache": self.plan.past_cache, "receipts": receipts}
        self._thread_of("write", rank).submit(write_section, file, axes, values, **how).result()
        return receipts.kept


def _store_of(source: ArrayFile | RankFiles) -> Any:
    return source.files.store if isinstance(source, RankFiles) else source.zarr.store_path.store
