"""What the tasks of a rechunk do: one method a verb of the graph."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product, repeat
from typing import Any

import numpy as np
from oocarrays.graphs.buffers import Holding, Slab, allocate, shaped

from oocarrays.errors import DiskFullError, UnsupportedError
from oocarrays.mapping.section import Section
from oocarrays.plan.passes import ChunkBox, Part, Pass
from oocarrays.plan.rechunk import RechunkPlan
from oocarrays.storage import array_file
from oocarrays.storage.access import ChunkReader, ChunkWriter, scatter
from oocarrays.storage.array_file import ArrayFile, StoreLike
from oocarrays.storage.blobs import padded
from oocarrays.storage.kept import KeptMessages, Reader
from oocarrays.storage.meter import Meter

SETTLE_SECONDS = 60
"""Seconds that a failed run waits for what its other ranks are in the middle of."""
ONE_PROCESS = "this job runs on threads of one process: compute it with scheduler='threads'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a rechunk writes, and how the array there is made."""

    store: StoreLike
    """Path or store of the target."""
    settings: dict[str, Any]
    """Arguments of ``zarr.create_array``."""
    overwrite: bool
    """Whether an array that is there may be replaced."""
    scratch: str
    """Folder in which scratch arrays are made."""
    past_cache_above: int
    """Bytes: a target of more is written past the system's cache."""


class RechunkRun:
    """One run of a rechunk plan, shared by its tasks. They run in the process that made it."""

    def __init__(self, plan: RechunkPlan, source: ArrayFile, destination: Destination) -> None:
        self.plan = plan
        self.source = source
        self.destination = destination
        self.id = uuid.uuid4().hex[:12]
        self.meter = Meter()
        self.scratch = os.path.join(destination.scratch, f".oocarrays-{self.id}")
        self.batches: list[list[list[list[int]]]] = [
            [list(step.batches(rank)) for rank in range(step.ranks)] for step in plan.passes
        ]
        self._failure: BaseException | None = None
        self._process = os.getpid()
        self._running = 0
        self._idle = threading.Condition()
        self._remove_scratch = weakref.finalize(self, shutil.rmtree, self.scratch, ignore_errors=True)
        self._input = source
        self._output = source
        self._reader: ChunkReader
        self._writer: ChunkWriter
        self._kept: KeptMessages

    @staticmethod
    def task(run: RechunkRun, verb: str, args: tuple[int, ...], buffers: int, *inputs: Any) -> Any:
        """Run one task: ``verb`` with its plain arguments and its first ``buffers`` inputs."""
        if os.getpid() != run._process:
            raise UnsupportedError(ONE_PROCESS)
        if run._failure and verb != "create":
            raise run._failure
        try:
            with run._counted(), run.meter.phase(verb):
                return getattr(run, f"_{verb}")(*args, *inputs[:buffers])
        except BaseException as error:  # noqa: BLE001  what failed first goes on, whatever it is
            raise run.abort(error) from error.__cause__

    @contextmanager
    def _counted(self) -> Iterator[None]:
        """Count a task while it runs."""
        with self._idle:
            self._running += 1
        try:
            yield
        finally:
            with self._idle:
                self._running -= 1
                self._idle.notify_all()

    def settle(self) -> None:
        """Wait until tasks that had begun are done, so that nothing is written after a run has failed."""
        with self._idle:
            self._idle.wait_for(lambda: not self._running, SETTLE_SECONDS)
        shutil.rmtree(self.scratch, ignore_errors=True)

    def __reduce__(self) -> Any:
        raise UnsupportedError(ONE_PROCESS)

    def abort(self, error: BaseException) -> BaseException:
        """Stop: tasks that have not begun will not, and scratch goes. The target stays marked unfinished.

        What failed first is what every later task raises, whichever of them the scheduler hears of first.
        """
        self._failure = self._failure or error
        shutil.rmtree(self.scratch, ignore_errors=True)
        return self._failure

    # ------------------------------------------------------------------ beginning and end

    def _create(self) -> None:
        self._failure = None
        self.meter = Meter()
        destination = self.destination
        array_file.check_target(self.source.zarr, destination.store, overwrite=destination.overwrite)
        self._check_room()
        self.target = array_file.create_target(
            destination.store, destination.settings, self.id, overwrite=destination.overwrite
        )
        self._input = self.source

    def _check_room(self) -> None:
        """Refuse to begin where the bytes that are known beforehand do not fit the devices."""
        plan, wants = self.plan, {}
        folder = array_file.local_folder(self.destination.store)
        if folder and not plan.target.coded:
            wants[folder] = plan.target.grid.count * plan.target.chunk_bytes
        if plan.scratch_bytes:
            wants[self.scratch] = plan.scratch_bytes
        for place, wanted in wants.items():
            free = array_file.free_bytes(place)
            if sum(wants.values()) > free and wanted:
                raise DiskFullError(f"{place} needs {sum(wants.values())} bytes; its device has {free} left")

    def _start(self, number: int) -> None:
        """Begin a pass: what the last one wrote is what this one reads."""
        step, passes = self.plan.passes[number], self.plan.passes
        if number:
            self._input = self._output
        if number > 1:
            shutil.rmtree(self._scratch_folder(number - 2), ignore_errors=True)
        last = number == len(passes) - 1
        self._output = (
            self.target if last else array_file.create_scratch(self._scratch_folder(number), self.source, step.target)
        )
        past_cache = self.plan.target.nbytes > self.destination.past_cache_above
        self._reader = ChunkReader(self._input, self.meter, read_ahead=step.read_ahead)
        self._writer = ChunkWriter(self._output, self.meter, past_cache=past_cache)
        if step.kept:
            self._kept = KeptMessages(self._scratch_folder(number), past_cache=past_cache)

    def _scratch_folder(self, number: int) -> str:
        return os.path.join(self.scratch, str(number))

    def _finish(self) -> str:
        array_file.finish_target(self.target)
        shutil.rmtree(self.scratch, ignore_errors=True)
        return self.target.name

    # ------------------------------------------------------------------ independent

    def _copy(self, number: int, rank: int, batch: int, holding: Holding | None) -> Holding:
        """Build and write some regions, one after the other."""
        step = self.plan.passes[number]
        if holding is None:
            region = min(np.prod(step.region, dtype=int), step.target.grid.count) * step.target.chunk_bytes
            chunk = step.source.chunk_bytes if step.access == "chunks" else 0
            holding = Holding(allocate(int(region)), allocate(chunk))
        for unit in self.batches[number][rank][batch]:
            box = step.chunk_box(unit)
            region = self._region(step, box, holding.region)
            self._gather(step, box, region, holding.chunk)
            if unit + step.ranks < step.units:
                following = step.section(step.chunk_box(unit + step.ranks))
                self._reader.announce(step.source.grid.indices(following))
            self._store(box, region)
        return holding

    def _gather(self, step: Pass, box: ChunkBox, region: np.ndarray, chunk: np.ndarray) -> None:
        """Read all that a region needs, and put it in its place."""
        section = step.section(box)
        for part, data in self._parts(step, section, chunk):
            scatter(region, section.lower, part, self.source.fill_value if data is None else data)

    def _parts(self, step: Pass, section: Section, chunk: np.ndarray) -> Iterator[tuple[Section, np.ndarray | None]]:
        grid = step.source.grid
        if step.access == "mapped":
            yield from self._reader.mapped(grid.indices(section), section)
            return
        if step.access == "ranges":
            yield from self._reader.tiles(grid.indices(section), section, step.tile)
            return
        out = self._chunk_view(step, chunk)
        for index, data in self._reader.whole(grid.indices(section), repeat(out)):
            yield from _common(grid.section(index), section, data)

    def _chunk_view(self, step: Pass, buffer: np.ndarray) -> np.ndarray:
        return shaped(buffer, step.source.grid.chunks, self.source.dtype)

    # ------------------------------------------------------------------ two-phase

    def _read(self, number: int, unit: int, turn: int, rank: int, former: Slab | None) -> Slab:
        """Read this rank's chunks of a round, whoever wants them."""
        step = self.plan.passes[number]
        size = step.source.chunk_bytes
        buffer = former.buffer if former else allocate(step.slab * size)
        outs = (self._chunk_view(step, buffer[i * size : (i + 1) * size]) for i in range(step.slab))
        slab = Slab(buffer)
        for chunk in self._reader.whole(step.reads(unit, turn, rank), outs):
            if not slab.chunks:  # the first one is here: the device may go on to the next round
                self._reader.announce(step.reads_after(unit, turn, rank))
            slab.chunks.append(chunk)
        return slab

    def _exchange(
        self, number: int, unit: int, turn: int, stage: int, rank: int, buffer: np.ndarray | None, slab: Slab
    ) -> np.ndarray:
        """Take from a partner's slab what this rank's target chunks need: a view there, a copy here."""
        step = self.plan.passes[number]
        buffer = self._rank_buffer(step) if buffer is None else buffer
        if step.kept:
            self._keep(step, rank, slab, self._message_pages(step, buffer))
        if stage:
            self.meter.add(messages=1)
        box = step.share(unit, rank)
        if box is None:
            return buffer
        region = self._region(step, box, buffer, blank=turn == stage == 0)
        section = step.section(box)
        for index, chunk in slab.chunks:
            for part, data in _common(step.source.grid.section(index), section, chunk):
                scatter(region, section.lower, part, self.source.fill_value if data is None else data)
        return buffer

    def _keep(self, step: Pass, rank: int, slab: Slab, buffer: np.ndarray) -> None:
        """Pack what this rank needs of a partner's slab in later partitions, and keep it in scratch."""
        chunks = {index: chunk for index, chunk in slab.chunks if chunk is not None}
        self._kept.missing.update(index for index, chunk in slab.chunks if chunk is None)
        halves = np.split(buffer, 2)
        for unit in range(1, step.units):
            for message in step.messages(unit, rank, chunks):
                pages = halves[self._kept.count(rank) % 2]
                for (index, part), out in self._unpacked(message, pages):
                    origin = step.source.grid.section(index).lower
                    out[...] = chunks[index][part.relative_to(origin).slices]
                nbytes = _elements(message) * step.source.itemsize
                self._kept.append(unit, rank, pages.data, nbytes)
                self.meter.add(kept_bytes=nbytes)

    def _take(self, number: int, unit: int, rank: int, buffer: np.ndarray | None) -> np.ndarray:
        """Build this rank's target chunks of a later partition from the messages that were kept for it."""
        step = self.plan.passes[number]
        buffer = self._rank_buffer(step) if buffer is None else buffer
        box = step.share(unit, rank)
        if box is None:
            return buffer
        region, section = self._region(step, box, buffer), step.section(box)
        pages = self._message_pages(step, buffer)

        def unpack(reader: Reader) -> None:
            for indices in step.taken(rank):
                for message in step.messages(unit, rank, (i for i in indices if i not in self._kept.missing)):
                    reader.next(pages.data, _elements(message) * step.source.itemsize)
                    for (_, part), data in self._unpacked(message, pages):
                        scatter(region, section.lower, part, data)

        for index in self._kept.missing:
            for part, _ in _common(step.source.grid.section(index), section, None):
                scatter(region, section.lower, part, self.source.fill_value)
        self._kept.take(unit, rank, unpack)
        return buffer

    def _unpacked(self, message: list[Part], pages: np.ndarray) -> Iterator[tuple[Part, np.ndarray]]:
        """Each part of a message, and where its elements lie in memory: one part behind the other."""
        packed, start = shaped(pages, (_elements(message),), self.source.dtype), 0
        for index, part in message:
            yield (index, part), packed[start : start + part.size].reshape(part.shape)
            start += part.size

    def _rank_buffer(self, step: Pass) -> np.ndarray:
        """Memory for a region and, behind it, for the message that is being packed and the one being written."""
        region_bytes = int(np.prod(step.region, dtype=int)) * step.target.chunk_bytes
        return allocate(padded(region_bytes) + (2 * padded(step.source.chunk_bytes) if step.kept else 0))

    def _message_pages(self, step: Pass, buffer: np.ndarray) -> np.ndarray:
        """The part of a rank's buffer in which two messages are packed, behind its region."""
        return buffer[-2 * padded(step.source.chunk_bytes) :]

    def _write(self, number: int, unit: int, rank: int, buffer: np.ndarray) -> np.ndarray:
        """Write this rank's target chunks of a partition."""
        step = self.plan.passes[number]
        if step.kept and unit + 1 < step.units:
            self._kept.announce(unit + 1, rank)
        box = step.share(unit, rank)
        if box is not None:
            self._store(box, self._region(step, box, buffer, blank=False))
        return buffer

    # ------------------------------------------------------------------ both

    def _region(self, step: Pass, box: ChunkBox, buffer: np.ndarray, blank: bool = True) -> np.ndarray:
        """The chunks of a box, one contiguous chunk after the other, those at the edge padded with the fill value."""
        grid = step.target.grid
        counts = tuple(b - a for a, b in zip(*box, strict=True))
        region = shaped(buffer, counts + grid.chunks, self.source.dtype)
        if blank:
            for axis, (last, n, c) in enumerate(zip(box[1], grid.shape, grid.chunks, strict=True)):
                if last * c > n:
                    padding: list[Any] = [slice(None)] * region.ndim
                    padding[axis], padding[len(counts) + axis] = -1, slice(n - (last - 1) * c, None)
                    region[tuple(padding)] = self.source.fill_value
        return region

    def _store(self, box: ChunkBox, region: np.ndarray) -> None:
        def chunks() -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
            for index in product(*map(range, *box)):
                if self._failure:
                    raise self._failure
                place: Any = (*(i - a for i, a in zip(index, box[0], strict=True)), ...)
                yield index, region[place]

        self._writer.write_all(chunks())


def _elements(message: list[Part]) -> int:
    return sum(part.size for _, part in message)


def _common(there: Section, here: Section, data: np.ndarray | None) -> Iterator[tuple[Section, np.ndarray | None]]:
    """What a chunk at ``there`` has of ``here``: nothing, or one part."""
    part = there.intersection(here)
    if part is not None:
        yield part, None if data is None else data[part.relative_to(there.lower).slices]
