"""TIFF, BigTIFF and OME-TIFF: tiles and strips as chunks, located by tifffile.

no compression, deflate, zstd      byte ranges, decoded by numcodecs
all else, and partial strips       tifffile reads a section of its own array

Physical pixel sizes are from the OME-XML or ImageJ's description, else from resolution tags.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import numpy as np

from oocarrays.errors import CorruptChunkError, NotFoundError, UnsupportedError, plural
from oocarrays.plan.documents import Document
from oocarrays.plan.files.multiscales import LENGTHS, TIMES, unit_name
from oocarrays.storage.foreign.facts import FORMATS, ChunkTable, Facts, Manifest, Readable, file_name

CODECS: dict[int, Document] = {
    1: {},
    8: {"id": "zlib", "level": 6},
    32946: {"id": "zlib", "level": 6},
    50000: {"id": "zstd", "level": 3},
    34926: {"id": "zstd", "level": 3},
}
"""Codecs of numcodecs by TIFF compression number."""
Scales = dict[str, tuple[float, str | None]]
"""Distance of neighbouring elements and its unit, by axis name."""
OME = {axis: (f"PhysicalSize{axis.upper()}", "µm") for axis in "xyz"} | {"t": ("TimeIncrement", "s")}
"""Attributes of pixels in OME-XML, with their default units."""


class Tiff:
    """TIFF files, by tifffile."""

    def manifest(self, file: Readable) -> Manifest:
        """Return the file itself, or its series and resolution levels, and multi-level series as groups."""
        with _opened(file) as tiff:
            names = dict.fromkeys(_levels(tiff))
        paths = {"": None} | dict.fromkeys(name.rpartition("/")[0] for name in names)
        return Manifest(names, {path: {} for path in paths if "" not in names}, {})

    def facts(
        self, file: Readable, names: tuple[str, ...], *, brief: bool = False, located: bool = False
    ) -> list[Facts]:
        with _opened(file) as tiff:
            _check_files(tiff, file)
            found = [replace(_facts(_level(tiff, n), tiff), scales={} if brief else _scales(tiff, n)) for n in names]
            if not located:
                return found
            return [_located(_level(tiff, name), each, file) for name, each in zip(names, found, strict=True)]

    def read(self, file: Readable, name: str, section: tuple[slice, ...]) -> np.ndarray:
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
    name = file_name(file)
    try:
        with tifffile.TiffFile(file) as opened:
            if not opened.series:
                raise tifffile.TiffFileError("it has no image")
            yield opened
    except (tifffile.TiffFileError, struct.error) as error:
        raise NotFoundError(f"{name} is a damaged TIFF file: {error}") from error


def _levels(tiff: Any) -> Document:
    """Return all series and resolution levels by name; "" if there is only one."""
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


def _scales(tiff: Any, name: str) -> Scales:
    """Return the physical sizes along the axes of a level; coarser levels have larger elements."""
    level = _level(tiff, name)
    number, series = next((n, each) for n, each in enumerate(tiff.series) if any(level is own for own in each.levels))
    found = _tagged(series) | _imagej(tiff, series) | _ome(tiff, number)
    finest = dict(zip(series.axes.lower(), series.shape, strict=True))
    coarse = dict(zip(level.axes.lower(), level.shape, strict=True))
    both = {axis: each for axis, each in found.items() if axis in coarse and axis in finest}
    return {axis: (size * max(finest[axis], 1) / max(coarse[axis], 1), unit) for axis, (size, unit) in both.items()}


def _tagged(series: Any, unit: str | None = None) -> Scales:
    """Return sizes by the resolution tags, in ``unit`` or the unit of the tags."""
    page = series.keyframe
    tags = {name: page.tags.valueof(name) for name in ("XResolution", "YResolution", "ResolutionUnit")}
    unit = unit or {2: "inch", 3: "centimeter"}.get(int(tags["ResolutionUnit"] or 1))
    found: Scales = {}
    for axis in "xy" if unit else "":
        with suppress(TypeError, ValueError, ZeroDivisionError):
            counted, length = tags[f"{axis.upper()}Resolution"]
            found |= _size(axis, length / counted, unit)
    return found


def _imagej(tiff: Any, series: Any) -> Scales:
    said = tiff.imagej_metadata or {}
    unit = unit_name(str(said.get("unit", "")))
    found = _tagged(series, unit) if unit in LENGTHS else {}
    if unit in LENGTHS and "spacing" in said:
        found |= _size("z", said["spacing"], unit_name(str(said.get("zunit", unit))))
    if "finterval" in said:
        found |= _size("t", said["finterval"], unit_name(str(said.get("tunit", "s"))))
    return found


def _described(tiff: Any) -> ElementTree.Element | None:
    """Return the OME-XML of a file, if it has one."""
    with suppress(ElementTree.ParseError):
        return ElementTree.fromstring(tiff.ome_metadata) if tiff.is_ome else None
    return None


def _named(root: ElementTree.Element, tag: str) -> list[ElementTree.Element]:
    return [each for each in root.iter() if each.tag.rpartition("}")[2] == tag]


def _check_files(tiff: Any, file: Readable) -> None:
    """Raise if planes of an OME-TIFF are in other files that are not there: tifffile reads them as zeros."""
    if (root := _described(tiff)) is None or not (planes := _named(root, "UUID")):
        return
    folder, name = os.path.split(file) if isinstance(file, str) else (None, file_name(file).rpartition("/")[2])
    own = root.get("UUID") or next((each.text for each in planes if each.get("FileName") == name), None)
    others = dict.fromkeys(each.get("FileName", "") for each in planes if each.text != own)
    lost = [name for name in others if folder is None or not os.path.exists(os.path.join(folder, name))]
    if lost:
        why = "not beside it" if folder is not None else "read on local disks only"
        raise NotFoundError(f"{file_name(file)} has planes in {plural(len(lost), 'other file')} {why}: {lost[0]}")


def _ome(tiff: Any, number: int) -> Scales:
    root = _described(tiff)
    if root is None:
        return {}
    pixels = _named(root, "Pixels")
    if len(pixels) not in (1, len(tiff.series)):
        return {}
    said = pixels[number if len(pixels) > 1 else 0].attrib
    found: Scales = {}
    for axis, (name, usual) in OME.items():
        found |= _size(axis, said.get(name), unit_name(said.get(f"{name}Unit", usual)))
    return found


def _size(axis: str, size: Any, unit: str | None) -> Scales:
    """Return a size if it is a positive number, with its unit if that is one of length or time."""
    with suppress(TypeError, ValueError):
        if 0 < float(size) < float("inf"):
            return {axis: (float(size), unit if unit in LENGTHS or unit in TIMES else None)}
    return {}


def _facts(level: Any, tiff: Any) -> Facts:
    keyframe, dtype = level.keyframe, np.dtype(level.dtype)
    big = np.dtype(dtype).newbyteorder(keyframe.parent.byteorder) if dtype.itemsize > 1 else dtype
    chunks, names = _chunks(level), tuple(axis.lower() for axis in level.axes)
    coded = CODECS.get(int(keyframe.compression))
    here = all(page is not None and page.parent is tiff for page in level.pages)
    mapped = here and chunks is not None and coded is not None and _is_simple(level, chunks, coded)
    if not mapped or chunks is None:
        inner = len(keyframe.shape)  # a chunk is a whole page
        chunks = chunks or (1,) * (len(level.shape) - inner) + tuple(level.shape[len(level.shape) - inner :])
        return Facts(shape=level.shape, chunks=chunks, dtype=dtype.str, library="tifffile", names=names)
    filters = (json.dumps(coded),) if coded else ()
    return Facts(shape=level.shape, chunks=chunks, dtype=big.str, filters=filters, names=names)


def _chunks(level: Any) -> tuple[int, ...] | None:
    """Return the length of a tile or strip along each axis; None if they do not align with the axes of the series."""
    keyframe = level.keyframe
    if level.shape[len(level.shape) - len(keyframe.shape) :] != tuple(keyframe.shape):
        return None
    return (1,) * (len(level.shape) - len(keyframe.chunks)) + tuple(keyframe.chunks)


def _is_simple(level: Any, chunks: tuple[int, ...], coded: Document) -> bool:
    """Return whether stored tiles are plain whole elements that can be read as byte ranges."""
    keyframe = level.keyframe
    whole_strips = keyframe.is_tiled or not coded or all(n % c == 0 for n, c in zip(level.shape, chunks, strict=True))
    bits = (
        keyframe.bitspersample == 8 * np.dtype(level.dtype).itemsize
        and int(keyframe.predictor) == 1
        and int(keyframe.fillorder) == 1
    )
    return whole_strips and bits and not keyframe.is_subsampled


def _located(level: Any, facts: Facts, file: Readable) -> Facts:
    """Return the facts with stored bytes, and the locations of tiles or strips, or the offset of contiguous pages."""
    pages = [page for page in level if page is not None]
    stored = None if level.dataoffset is not None else sum(sum(page.databytecounts) for page in pages)
    if facts.library:
        return replace(facts, stored=stored)
    count = math.prod(level.keyframe.chunked)
    offsets = np.array([offset for page in pages for offset in page.dataoffsets[:count]], np.int64)
    nbytes = np.array([size for page in pages for size in page.databytecounts[:count]], np.int64)
    plain = level.dataoffset is not None and len(offsets) != math.prod(facts.counts)
    end = level.dataoffset + facts.nbytes if plain else int((offsets + nbytes).max(initial=0))
    if end > (size := level.keyframe.parent.filehandle.size):
        raise CorruptChunkError(f"{file_name(file)} is truncated: its elements end at byte {end}, and it has {size}")
    if not facts.filters:  # the last strip is stored without padding
        nbytes = np.where(nbytes > 0, math.prod(facts.chunks) * np.dtype(facts.dtype).itemsize, 0)
    if len(offsets) == math.prod(facts.counts):
        return replace(facts, stored=stored, table=ChunkTable(counts=facts.counts, offsets=offsets, nbytes=nbytes))
    if not plain or not facts.nbytes:
        raise UnsupportedError("the pages of a TIFF file do not say where they are")
    return replace(facts, offset=level.dataoffset)  # only the first offset is stored, as ImageJ writes them
