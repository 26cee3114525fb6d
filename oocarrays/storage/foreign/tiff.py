"""TIFF, BigTIFF and OME-TIFF: tiles and strips are chunks, where tifffile says they lie.

no compression, deflate, zstd      byte ranges, decoded by numcodecs
all else, and strips cut short     tifffile reads a section of its own array
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from oocarrays.errors import NotFoundError, UnsupportedError
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign.facts import FORMATS, ChunkTable, Facts, Readable

CODECS: dict[int, Document] = {
    1: {},
    8: {"id": "zlib", "level": 6},
    32946: {"id": "zlib", "level": 6},
    50000: {"id": "zstd", "level": 3},
    34926: {"id": "zstd", "level": 3},
}
"""Compressions of TIFF that numcodecs knows, by their numbers."""


class Tiff:
    """TIFF files, by tifffile."""

    extra = "tiff"

    def groups(self, file: Readable) -> dict[str, Document]:
        """Attributes of the file, where it has several series or levels."""
        with _opened(file) as tiff:
            return {} if len(_levels(tiff)) == 1 else {"": {}}

    def arrays(self, file: Readable) -> tuple[str, ...]:
        """Return the file itself; where there are several series, or levels of resolution, their numbers."""
        with _opened(file) as tiff:
            return tuple(_levels(tiff))

    def skipped(self, file: Readable) -> dict[str, str]:
        """Return that no array is left out."""
        return {}

    def facts(self, file: Readable, names: tuple[str, ...], *, brief: bool = False) -> list[Facts]:
        """Facts of some series."""
        with _opened(file) as tiff:
            return [_facts(_level(tiff, name), brief=brief) for name in names]

    def table(self, file: Readable, name: str, facts: Facts) -> ChunkTable:
        """Where the tiles or strips of a series lie."""
        with _opened(file) as tiff:
            return _table(_level(tiff, name), facts)

    def stored_bytes(self, file: Readable, name: str) -> int:
        """Bytes of the tiles or strips of a series; of pages that follow the first without a directory, all."""
        with _opened(file) as tiff:
            level = _level(tiff, name)
            if level.dataoffset is not None:
                return int(level.nbytes)
            return sum(sum(page.databytecounts) for page in level if page is not None)

    def read(self, file: Readable, name: str, section: tuple[slice, ...]) -> np.ndarray:
        """Read elements by tifffile, which decodes the tiles that they are in."""
        import zarr

        with _opened(file) as tiff:
            array = zarr.open_array(_level(tiff, name).aszarr(), mode="r")
            return np.asarray(array[section])


FORMATS["tiff"] = Tiff()


@contextmanager
def _opened(file: Readable) -> Iterator[Any]:
    try:
        import tifffile
    except ImportError:
        raise UnsupportedError("TIFF files are read by tifffile: pip install 'oocarrays[tiff]'") from None
    if not isinstance(file, str):
        file.seek(0)
    name = file if isinstance(file, str) else "the file"
    try:
        with tifffile.TiffFile(file) as opened:
            if not opened.series:
                raise tifffile.TiffFileError("it has no image")
            yield opened
    except (tifffile.TiffFileError, struct.error) as error:
        raise NotFoundError(f"{name} is a damaged TIFF file: {error}") from error


def _levels(tiff: Any) -> Document:
    """All series and their levels of resolution, by names: "" where there is but one."""
    found = {
        f"{s}/{number}" if len(series.levels) > 1 else str(s): level
        for s, series in enumerate(tiff.series)
        for number, level in enumerate(series.levels)
    }
    if len(found) == 1:
        return {"": next(iter(found.values()))}
    if len(tiff.series) == 1:
        return {name.partition("/")[2]: level for name, level in found.items()}
    return found


def _level(tiff: Any, name: str) -> Any:
    found = _levels(tiff).get(name)
    if found is None:
        raise NotFoundError(f"no series {name} in {tiff.filename}")
    return found


def _facts(level: Any, *, brief: bool) -> Facts:
    keyframe, dtype = level.keyframe, np.dtype(level.dtype)
    big = np.dtype(dtype).newbyteorder(keyframe.parent.byteorder) if dtype.itemsize > 1 else dtype
    chunks = _chunks(level)
    coded = CODECS.get(int(keyframe.compression))
    mapped = chunks is not None and coded is not None and _is_simple(level, chunks, coded)
    if not mapped or chunks is None:
        chunks = chunks or _whole_pages(level)
        return Facts(shape=level.shape, chunks=chunks, dtype=dtype.str, library="tifffile", names=_names(level))
    filters = (json.dumps(coded),) if coded else ()
    return Facts(shape=level.shape, chunks=chunks, dtype=big.str, filters=filters, names=_names(level))


def _names(level: Any) -> tuple[str | None, ...]:
    return tuple(axis.lower() for axis in level.axes)


def _whole_pages(level: Any) -> tuple[int, ...]:
    """A page as one chunk."""
    inner = len(level.keyframe.shape)
    return (1,) * (len(level.shape) - inner) + tuple(level.shape[len(level.shape) - inner :])


def _chunks(level: Any) -> tuple[int, ...] | None:
    """Length of a tile or a strip along each axis; None where they do not lie along axes of the series."""
    keyframe = level.keyframe
    if level.shape[len(level.shape) - len(keyframe.shape) :] != tuple(keyframe.shape):
        return None
    return (1,) * (len(level.shape) - len(keyframe.chunks)) + tuple(keyframe.chunks)


def _is_simple(level: Any, chunks: tuple[int, ...], coded: Document) -> bool:
    """Whether bytes of tiles are elements, whole ones, one tile behind the other."""
    keyframe = level.keyframe
    whole_strips = keyframe.is_tiled or not coded or all(n % c == 0 for n, c in zip(level.shape, chunks, strict=True))
    bits = (
        keyframe.bitspersample == 8 * np.dtype(level.dtype).itemsize
        and int(keyframe.predictor) == 1
        and int(keyframe.fillorder) == 1
    )
    return whole_strips and bits and not keyframe.is_subsampled and all(page is not None for page in level.pages)


def _table(level: Any, facts: Facts) -> ChunkTable:
    offsets, nbytes = [], []
    for page in level:
        count = int(np.prod(level.keyframe.chunked, dtype=np.int64))
        there = page is not None
        offsets += list(page.dataoffsets[:count]) if there else [0] * count
        nbytes += list(page.databytecounts[:count]) if there else [0] * count
    places, sizes = np.array(offsets, np.int64), np.array(nbytes, np.int64)
    if not facts.filters:  # a strip at the end is stored as long as it is
        full = int(np.prod(facts.chunks, dtype=np.int64)) * np.dtype(facts.dtype).itemsize
        sizes = np.where(sizes > 0, full, 0)
    return (
        _pages_in_one_piece(level, facts)
        if len(places) != np.prod(facts.counts)
        else ChunkTable(counts=facts.counts, offsets=places, nbytes=sizes)
    )


def _pages_in_one_piece(level: Any, facts: Facts) -> ChunkTable:
    """Where chunks lie of pages of which only the first one says where it is, as ImageJ writes them."""
    first, pages = level.dataoffset, int(np.prod(facts.shape, dtype=np.int64))
    if first is None or not pages:
        raise UnsupportedError("the pages of a TIFF file do not say where they are")
    from oocarrays.storage.foreign.facts import in_one_piece

    return in_one_piece(facts, first)
