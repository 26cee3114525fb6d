"""Reading a section of coded chunks in local files: many small ones in one go, large ones from the system's cache.

files or shards     ▪ ▪ ▪ ▪          coded bytes of a batch: one call for all of them
decoded             ▬▬▬▬▬▬▬▬         one behind the other in a buffer that a core's cache holds
result              ░░█░░█░░         what is taken of all of them, in one strided copy
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from oocarrays.storage.chunks.places import Places
from oocarrays.storage.codecs.codec import decode_into
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.local.pages import can_map, mapped, want
from oocarrays.storage.sections.sieved import PendingBatch, SectionReader, taken_buffer

ALONE_BYTES = 2**19
"""A section for which less is decoded is read by one thread."""


@dataclass(frozen=True, slots=True)
class _Name:
    """The name of a chunk, made where it is told."""

    file: ArrayFile
    asked: PendingBatch
    number: int

    def __str__(self) -> str:
        index = list(product(*self.asked.batch.chunks))[self.number]
        key = self.file.place_of(index)
        return f"chunk {key if isinstance(key, str) else f'{key.number} in {key.shard}'} of {self.file.name}"


class CodedReader(SectionReader):
    """Reads what a plan says of coded chunks: each is read and decoded once."""

    def _is_little(self) -> bool:
        return self.plan.decoded_bytes < ALONE_BYTES

    def _ask(self, asked: PendingBatch, places: Places, free: list[np.ndarray]) -> bool:
        """Copy what the cache has of the coded bytes, and let the device bring the rest; whether all is there."""
        self._open(asked, places)
        nbytes = asked.nbytes
        self.meter.add(read_requests=len(nbytes), read_bytes=int(nbytes.sum()))
        if nbytes.sum() > self.plan.coded_bytes:
            for file, at, n in zip(asked.file.tolist(), asked.offset.tolist(), nbytes.tolist(), strict=True):
                want(file, at, n)
            return False
        if nbytes.sum():
            asked.buffer = taken_buffer(free, self.plan.coded_bytes)
        if asked.buffer is not None:
            ranges = [asked.file, asked.offset, nbytes, np.cumsum(nbytes) - nbytes]
            asked.left = self._read(asked.buffer, ranges, wait=False)
        return not asked.left

    def _finish(self, asked: PendingBatch, free: list[np.ndarray]) -> None:
        """Wait for what has not come, decode it, and take what is wanted."""
        while asked.buffer is not None and asked.left:
            asked.left = self._read(asked.buffer, asked.left, wait=True)
        (part,) = asked.batch.parts
        decoded = taken_buffer(free, asked.batch.buffer_bytes)
        into, size = self._bytes if decoded is None else decoded, self.file.stored.chunk_bytes
        rooms = self._places(asked.batch, part)[asked.here, 0].tolist()
        for number, coded, at in zip(asked.here.tolist(), self._coded(asked), rooms, strict=True):
            decode_into(self.file.chain.compressor, coded, into[at : at + size], _Name(self.file, asked, number))
        self.meter.add(decoded_bytes=len(rooms) * size)
        self._take(asked.batch, part, decoded, asked.missing)
        asked.close()
        free += [buffer for buffer in (asked.buffer, decoded) if buffer is not None]

    def _coded(self, asked: PendingBatch) -> Iterator[np.ndarray]:
        """The coded bytes of each chunk that is stored."""
        nbytes = asked.nbytes
        if asked.buffer is not None:
            ends = np.cumsum(nbytes)
            yield from (
                asked.buffer[low:high] for low, high in zip((ends - nbytes).tolist(), ends.tolist(), strict=True)
            )
            return
        for file, at, n in zip(asked.file.tolist(), asked.offset.tolist(), nbytes.tolist(), strict=True):
            yield self._pages(file, at, n)

    def _pages(self, file: int, offset: int, nbytes: int) -> np.ndarray:
        """Return the coded bytes of a large chunk, in place where the system can."""
        if can_map():
            return mapped(file, self.file.name, offset, nbytes)
        data = np.empty(nbytes, np.uint8)
        ranges = [np.array([each]) for each in (file, offset, nbytes, 0)]
        while ranges:
            ranges = self._read(data, ranges, wait=True)
        return data
