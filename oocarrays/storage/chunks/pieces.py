"""Writing any sections of a plain array in local files, by many writers at once.

        chunk file   ··████··············     a piece: the byte runs of its own elements
                     ········███·███·····     its neighbour's, at the same time or in another process

A piece touches no byte that is not its own, so nothing is read, and nothing is lost. A file gets its full length from
whoever comes first; what nobody has written yet is a hole.
"""

from __future__ import annotations

import os

import numpy as np

from oocarrays.errors import RunError
from oocarrays.mapping.section import Section
from oocarrays.storage.chunks.elements import element_runs
from oocarrays.storage.files.array_file import ArrayFile
from oocarrays.storage.local.blobs import byte_view
from oocarrays.storage.local.private import make_folders, mode_of
from oocarrays.storage.local.refused import write_error
from oocarrays.storage.local.regular import open_regular
from oocarrays.storage.local.syncing import written
from oocarrays.storage.meter import Meter


class PieceWriter:
    """Writes sections of one plain local array file.

    Examples
    --------
    >>> import tempfile, zarr
    >>> from oocarrays.storage.files.array_file import describe
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     array = zarr.create_array(folder, shape=(5,), chunks=(2,), dtype="i4", compressors=None)
    ...     writer = PieceWriter(describe(array), Meter())
    ...     writer.write(Section((3,), (5,)), np.array([3, 4]))
    ...     writer.write(Section((0,), (3,)), np.array([0, 1, 2]))
    ...     array[:]
    array([0, 1, 2, 3, 4], dtype=int32)
    """

    def __init__(self, file: ArrayFile, meter: Meter) -> None:
        assert not file.stored.coded, "pieces are bytes of plain chunks"
        assert file.stored.order is None, "scratch lies in C order"
        assert file.folder, "scratch is in local files"
        self.file = file
        self.meter = meter
        self._folder: str = file.folder

    def write(self, section: Section, data: np.ndarray) -> None:
        """Write the elements of ``section``: ``data.shape == section.shape``."""
        grid = self.file.stored.grid
        for index in grid.indices(section) if section.size else ():
            chunk = grid.section(index)
            part = section.intersection(chunk)
            assert part is not None, "a touched chunk shares an element with the section"
            piece = np.ascontiguousarray(data[part.relative_to(section.lower).slices], self.file.dtype)
            self._put(os.path.join(self._folder, self.file.chunk_key(index)), part.relative_to(chunk.lower), piece)
            self.meter.add(write_requests=1, written_bytes=piece.nbytes)

    def _put(self, path: str, part: Section, piece: np.ndarray) -> None:
        starts, elements = element_runs(part, self.file.stored.grid.chunks)
        data, length = byte_view(piece), elements * piece.itemsize
        try:
            file = self._opened(path)
            try:
                for at, start in zip(range(0, len(data), length), starts.tolist(), strict=True):
                    _write_all(file, data[at : at + length], start * piece.itemsize)
                written(path)
            finally:
                os.close(file)
        except OSError as error:
            raise write_error(path, error) from error

    def _opened(self, path: str) -> int:
        if not os.path.isdir(self._folder):
            raise RunError(f"{self._folder} is not there on this worker: scratch must be shared, or has been removed")
        make_folders(os.path.dirname(path))
        file = open_regular(path, os.O_WRONLY | os.O_CREAT, mode_of(path))
        os.truncate(file, self.file.stored.chunk_bytes)  # each writer asks for the same length: that loses nothing
        return file


def _write_all(file: int, data: memoryview, offset: int) -> None:
    """One call writes less than 2 GiB."""
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
