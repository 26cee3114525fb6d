"""Messages between ranks that wait in scratch: one file a rank and partition, appended to and read in the same order.

Each begins on a sector, so that it can go past the system's cache. One is written while the next is packed.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from oocarrays.errors import StoreFailure
from oocarrays.storage.local.blobs import LocalBlob, MissingBlob
from oocarrays.storage.local.pages import fetch_ahead
from oocarrays.storage.local.refused import write_error
from oocarrays.storage.local.sectors import open_past_cache, padded, write_all


class KeptMessages:
    """The kept messages of one pass.

    Parameters
    ----------
    folders : str
        Where the files are made, below scratch: on one disk, or in turn on several.
    past_cache : bool
        Whether to write past the system's cache.
    """

    def __init__(self, *folders: str, past_cache: bool) -> None:
        self.folders = folders
        self.past_cache = past_cache
        self.missing: set[tuple[int, ...]] = set()
        """Source chunks that are not stored: no message holds any of them."""
        self._written: set[str] = set()
        self._writing: defaultdict[int, deque[Future[None]]] = defaultdict(deque)
        self._counts: Counter[int] = Counter()
        self._writer = ThreadPoolExecutor(1, "keep")
        for folder in folders:
            try:
                os.makedirs(folder)
            except OSError as error:
                raise write_error(folder, error) from error

    def _path(self, unit: int, rank: int) -> str:
        return os.path.join(self.folders[(unit + rank) % len(self.folders)], f"{unit}-{rank}")

    def count(self, rank: int) -> int:
        """Messages that a rank has kept; the last of them may still be on its way."""
        return self._counts[rank]

    def append(self, unit: int, rank: int, buffer: memoryview, nbytes: int) -> None:
        """Keep the first ``nbytes`` of ``buffer``, memory on sectors, for ``rank`` in partition ``unit``.

        When this returns, all but this message of the rank have been written, and their memory is free.

        Raises
        ------
        DiskFullError
            Where there is no room.
        StoreFailure
            Where the file cannot be written.
        """
        self._writing[rank].append(self._writer.submit(self._write, self._path(unit, rank), buffer[: padded(nbytes)]))
        self._counts[rank] += 1
        while len(self._writing[rank]) > 1:
            self._writing[rank].popleft().result()

    def _write(self, path: str, message: memoryview) -> None:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            file = open_past_cache(path, flags)[0] if self.past_cache else os.open(path, flags, 0o666)
            try:
                write_all(file, message)
            finally:
                os.close(file)
            self._written.add(path)
        except OSError as error:
            raise write_error(path, error) from error

    def announce(self, unit: int, rank: int) -> None:
        """Let the system fetch the first messages for ``rank`` in partition ``unit``, while something else is done."""
        fetch_ahead([self._path(unit, rank)])

    def take(self, unit: int, rank: int, read: Callable[[Reader], None]) -> None:
        """Let ``read`` have the messages for ``rank`` in partition ``unit``; they are gone when it returns."""
        for writing in tuple(self._writing[rank]):  # which stay there: other partitions are taken at the same time
            writing.result()
        path = self._path(unit, rank)
        if path not in self._written:
            return
        try:
            blob = LocalBlob(path, read_ahead=False)
        except MissingBlob:
            raise StoreFailure(f"{path} has gone: messages were kept in it, for later in this run") from None
        try:
            read(Reader(blob))
        finally:
            blob.close()
        os.unlink(path)


class Reader:
    """Reads the messages of one file in their order."""

    def __init__(self, blob: LocalBlob) -> None:
        self._blob = blob
        self._offset = 0

    def next(self, buffer: memoryview, nbytes: int) -> None:
        """Fill the first ``nbytes`` of ``buffer``, memory on sectors."""
        wanted = padded(nbytes)
        self._blob.read_into(self._offset, buffer[:wanted])
        self._offset += wanted
