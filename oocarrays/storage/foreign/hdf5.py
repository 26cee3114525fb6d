"""NetCDF-4 and HDF5: chunk locations from h5py, without reading the chunks.

h5py                 chunk_iter of 64 files of 24 chunks: 0.6 ms a file
kerchunk             12 ms a file: it creates references, for other programs
"""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.lib.recfunctions import repack_fields
from zarr.dtype import parse_dtype

from oocarrays.errors import NotFoundError, UnsupportedError
from oocarrays.plan.documents import Document
from oocarrays.storage.foreign.facts import FORMATS, ChunkTable, Facts, Manifest, Readable, file_name, rows_of
from oocarrays.storage.foreign.packing import PACKED, TELLING, as_json

HIDDEN = frozenset(
    ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST", "_Netcdf4Dimid", "_Netcdf4Coordinates", "_nc3_strict",
     "_NCProperties")
)  # fmt: skip
"""Attributes of the file's structure."""
NON_COORDINATE = "_nc4_non_coord_"
"""Prefix in the file of variables that share an axis's name without being its coordinate."""
DEFLATE, SHUFFLE, FLETCHER32, SZIP, LZF, BLOSC_ID, ZSTD_ID = 1, 2, 3, 4, 32000, 32001, 32015
"""Numbers of filters that numcodecs also implements."""


class Hdf5:
    """NetCDF-4 and HDF5 files, by h5py."""

    def manifest(self, file: Readable) -> Manifest:
        """Return the groups, and all datasets except placeholders for axis lengths; Zarr lacks some of their types."""
        with _opened(file) as opened:
            root = _h5py().Group(_h5py().h5g.open(opened, b"/"))
            nodes = dict(_walked(root))
            groups = {path: _attributes(node) for path, node in nodes.items() if isinstance(node, _h5py().Group)}
            why = {path: _reason(node) for path, node in nodes.items() if isinstance(node, _h5py().Dataset)}
            skipped = {path: reason for path, reason in why.items() if reason is not None}
            arrays = dict.fromkeys(path for path in why if path not in skipped)
            return Manifest(arrays, {"": _attributes(root)} | groups, skipped)

    def facts(
        self, file: Readable, names: tuple[str, ...], *, brief: bool = False, located: bool = False
    ) -> list[Facts]:
        path = file_name(file)
        with _opened(file) as opened:
            found = [_dataset(opened, name, path) for name in names]
            facts = [_facts(node, n, path, brief=brief) for node, n in zip(found, names, strict=True)]
            if not located:
                return facts
            tables = map(_table, found, names, facts)
            sizes = (node.id.get_storage_size() for node in found)
            return [replace(f, table=t, stored=size) for f, t, size in zip(facts, tables, sizes, strict=True)]

    def read(self, file: Readable, name: str, section: tuple[slice, ...]) -> np.ndarray:
        with _opened(file) as opened:
            node = _dataset(opened, name, file_name(file))
            dtype = _element(node.dtype)
            return np.asarray(node.asstr()[section] if dtype == "O" else node[section].astype(dtype))


FORMATS["hdf5"] = Hdf5()


def _h5py() -> Any:
    try:
        import h5py
    except ImportError:
        raise UnsupportedError("NetCDF-4 and HDF5 files are read by h5py: pip install 'oocarrays[netcdf]'") from None
    return h5py


@contextmanager
def _opened(file: Readable) -> Iterator[Any]:
    """Open a file by h5py's low-level calls: a third of the time, for many files."""
    h5py, opened = _h5py(), None
    if isinstance(file, str):
        with suppress(OSError):  # it is damaged, or already open by h5py's own settings
            opened = h5py.h5f.open(os.fsencode(file), h5py.h5f.ACC_RDONLY, fapl=_access())
    try:
        opened = opened or h5py.File(file, "r", locking=False).id
    except OSError as error:
        if "locking flag" not in str(error):  # this process has already opened it with the default locking
            raise NotFoundError(f"{file_name(file)} cannot be opened as an HDF5 file: {error}") from error
        opened = h5py.File(file, "r").id
    try:
        yield opened
    finally:
        opened.close()


def _walked(root: Any) -> Iterator[tuple[str, Any]]:
    """Yield all groups and variables with their paths; follow links once."""
    seen = {root.id.__hash__()}
    waiting = [("", root)]
    while waiting:
        above, group = waiting.pop()
        for name in group:
            node, path = group.get(name), f"{above}{name.removeprefix(NON_COORDINATE)}"
            if node is None or _stands_for_an_axis(node):
                continue
            yield path, node
            if isinstance(node, _h5py().Group) and node.id.__hash__() not in seen:
                seen.add(node.id.__hash__())
                waiting.append((f"{path}/", node))


def _stands_for_an_axis(node: Any) -> bool:
    name = node.attrs["NAME"] if isinstance(node, _h5py().Dataset) and "NAME" in node.attrs else b""
    text = name if isinstance(name, bytes) else str(name).encode()
    return text.startswith(b"This is a netCDF dimension but not a netCDF variable")


def _dataset(file: Any, name: str, path: str) -> Any:
    h5py, (group, _, last) = _h5py(), name.rpartition("/")
    try:
        above = h5py.h5g.open(file, f"/{group}".encode())
        beside = (NON_COORDINATE + last).encode()
        return h5py.Dataset(h5py.h5d.open(above, beside if above.links.exists(beside) else last.encode()))
    except (KeyError, ValueError):
        raise NotFoundError(f"no array {name} in {path}") from None


@cache
def _access() -> Any:
    h5py = _h5py()
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_file_locking(False, True)
    return access


def _facts(node: Any, name: str, path: str, *, brief: bool) -> Facts:
    stored, shape, where, created = node.dtype, node.shape, f"{name} in {path}", node.id.get_create_plist()
    why, dtype = _reason(node), _element(stored)
    if why is not None or dtype is None:
        raise UnsupportedError(f"{where} {why}, which Zarr does not have; open the other arrays by name")
    filters, library = _filters(created, stored.itemsize, where)
    layout = created.get_layout()
    h5d = _h5py().h5d
    odd = dtype != stored.str or layout not in (h5d.CHUNKED, h5d.CONTIGUOUS) or created.get_external_count()
    if odd or (library is None and (_is_converted(node) or _is_elsewhere(node, path))):
        library = "h5py"
    size = 16 if dtype == "O" else stored.itemsize
    has_fill = dtype != "O" and created.fill_value_defined() == h5d.FILL_VALUE_USER_DEFINED
    chunks = created.get_chunk() if layout == h5d.CHUNKED else rows_of(shape, size)
    return Facts(
        shape=shape,
        chunks=chunks,
        dtype=dtype,
        offset=node.id.get_offset() if layout == h5d.CONTIGUOUS and not library else None,
        filters=() if library else filters,
        library=library,
        fill=node.fillvalue if has_fill else None,
        attributes=_attributes(node, TELLING if brief else ()),
        **({} if brief else _described(node, created)),
    )


def _described(node: Any, created: Any) -> dict[str, Any]:
    """Return the facts of a variable that NetCDF-4 readers report besides its attributes."""
    names = _axes(node)
    endless = {name for name, most in zip(names or (), node.maxshape, strict=False) if name and most is None}
    return {
        "names": names,
        "endless": frozenset(endless),
        "native": {name: _scalar(node, name) for name in PACKED if name in node.attrs and _is_told(node, name)},
        "encoding": _encoding(node, created),
    }


def _scalar(node: Any, name: str) -> Any:
    """Return an attribute as h5netcdf does: single elements as scalars, bytes as text unless the variable has bytes."""
    value = node.attrs[name]
    value = value[0] if isinstance(value, np.ndarray) and value.size == 1 and value.ndim == 1 else value
    is_text = isinstance(value, bytes) and node.dtype.kind != "S"
    return value.decode(errors="replace") if is_text else value


def _encoding(node: Any, created: Any) -> Document:
    """Return layout and filters under the names of xarray's NetCDF-4 readers."""
    chunked = created.get_layout() == _h5py().h5d.CHUNKED
    filters = {code: values for code, _, values, _ in map(created.get_filter, range(created.get_nfilters()))}
    made: Document = {"contiguous": not chunked, "chunksizes": created.get_chunk() if chunked else None}
    made |= {"zlib": DEFLATE in filters, "shuffle": SHUFFLE in filters, "fletcher32": FLETCHER32 in filters}
    made |= {"zstd": ZSTD_ID in filters, "blosc": BLOSC_ID in filters}
    if filters.keys() & {SZIP, LZF}:  # named by h5py only
        made |= {"compression": node.compression, "compression_opts": node.compression_opts}
    return made | ({"complevel": int(filters[DEFLATE][0])} if filters.get(DEFLATE) else {})


def _is_converted(node: Any) -> bool:
    """Return whether stored elements need conversion for numpy: odd bit widths, or other string padding."""
    h5t, stored = _h5py().h5t, node.id.get_type()
    if stored.get_class() == h5t.STRING and stored.get_size() == 1:
        return False
    return not stored.equal(h5t.py_create(node.dtype, logical=True))


def _is_elsewhere(node: Any, path: str) -> bool:
    """Return whether a dataset is in another file by a link, or in a file with a user block."""
    h5py = _h5py()
    file = h5py.h5i.get_file_id(node.id)
    linked = os.path.isabs(path) and os.fsdecode(h5py.h5f.get_name(node.id)) != path
    return linked or file.get_create_plist().get_userblock() != 0


def _reason(node: Any) -> str | None:
    """Return why a dataset is unsupported in Zarr, as the end of a sentence; None if it is supported."""
    if node.shape is None:
        return "holds nothing (a null dataspace)"
    if _element(node.dtype) is not None:
        return None
    h5py, dtype = _h5py(), node.dtype
    if h5py.check_ref_dtype(dtype) is not None:
        return "holds references to objects"
    if h5py.check_vlen_dtype(dtype) is not None:
        return "holds lists of unequal lengths"
    return f"holds elements of type {dtype}"


def _has_lists(dtype: np.dtype) -> bool:
    fields = [dtype[name] for name in dtype.names or ()]
    return any(each.subdtype is not None or _has_lists(each) for each in fields)


def _element(dtype: np.dtype) -> Any:
    """Return the Zarr element type: numpy's name, "O" for strings of any length, a structure, or None if none fits."""
    text = _h5py().check_string_dtype(dtype)
    if text is not None and text.length is None:
        return "O"
    if dtype.kind in "biufcS":
        return dtype.str if dtype.itemsize else None
    return _structure(dtype) if dtype.kind == "V" and not dtype.hasobject else None


@lru_cache(maxsize=512)
def _structure(dtype: np.dtype) -> Any:
    """Return a structure, or raw bytes, as Zarr stores it: packed, in native byte order; None if unsupported."""
    if _has_lists(dtype):
        return None
    packed = repack_fields(dtype, recurse=True).newbyteorder("=")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # structures are new in format 3: they are only read here
            parse_dtype(packed, zarr_format=3)
    except Exception:  # noqa: BLE001  each Zarr version raises its own error for unsupported fields
        return None
    return packed


def _filters(created: Any, itemsize: int, where: str) -> tuple[tuple[str, ...], str | None]:
    """Return filters as numcodecs configurations; or none, and the library to read by, if one is unsupported."""
    found = []
    for number in range(created.get_nfilters()):
        code, _, values, _ = created.get_filter(number)
        made = _filter(code, tuple(values), itemsize)
        if made is None:
            if not _h5py().h5z.filter_avail(code):
                raise UnsupportedError(
                    f"{where} has filter {code} of HDF5, which is not installed here: "
                    "pip install hdf5plugin has most of them"
                )
            return (), "h5py"
        found.append(made)
    return tuple(found), None


@cache
def _filter(code: int, values: tuple[int, ...], itemsize: int) -> str | None:
    """Return a filter as a numcodecs configuration; None if numcodecs has no such one."""
    blosc = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
    made: dict[int, Callable[[], Document]] = {
        DEFLATE: lambda: {"id": "zlib", "level": int(values[0]) if values else 1},
        SHUFFLE: lambda: {"id": "shuffle", "elementsize": int(values[0]) if values else itemsize},
        FLETCHER32: lambda: {"id": "fletcher32"},
        ZSTD_ID: lambda: {"id": "zstd", "level": int(values[0]) if values else 3},
        BLOSC_ID: lambda: {
            "id": "blosc", "cname": blosc[values[6] if len(values) > 6 else 0], "clevel": int(values[4]),
            "shuffle": int(values[5]),
        },
    }  # fmt: skip
    return json.dumps(made[code]()) if code in made else None


def _attributes(node: Any, only: tuple[str, ...] = ()) -> Document:
    """Return attributes as JSON: all, or some that are there."""
    exists, id = _h5py().h5a.exists, node.id
    names = [name for name in only if exists(id, name.encode())] if only else node.attrs
    return as_json({name: node.attrs[name] for name in names if name not in HIDDEN and _is_told(node, name)})


def _is_told(node: Any, name: str) -> bool:
    return bool(node.attrs.get_id(name).get_space().get_simple_extent_type() != _h5py().h5s.NULL)


def _axes(node: Any) -> tuple[str | None, ...] | None:
    """Return the axis names in NetCDF's convention: from attached scales, or the variable itself if it is a scale."""
    if _is_scale(node) and len(node.shape) == 1:
        return (os.path.basename(node.name),)
    if _is_scale(node) and "_Netcdf4Coordinates" in node.attrs:  # several axes: no scale can be attached to it
        known = _dimensions(node.parent)
        return tuple(known.get(int(number)) for number in np.ravel(node.attrs["_Netcdf4Coordinates"]))
    named: list[str | None] = []
    for dim in node.dims:
        scale = dim[0].name if len(dim) else None
        named.append(os.path.basename(scale) if scale else (dim.label or None))
    return tuple(named) if any(named) else None


def _is_scale(node: Any) -> bool:
    return "CLASS" in node.attrs and bool(node.attrs["CLASS"] == b"DIMENSION_SCALE")


def _dimensions(group: Any) -> dict[int, str]:
    found = {} if group.name == "/" else _dimensions(group.parent)
    nodes = [node for name in group if isinstance(node := group.get(name), _h5py().Dataset)]
    numbered = [node for node in nodes if _is_scale(node) and "_Netcdf4Dimid" in node.attrs]
    return found | {int(np.ravel(node.attrs["_Netcdf4Dimid"])[0]): os.path.basename(node.name) for node in numbered}


def _table(node: Any, name: str, facts: Facts) -> ChunkTable | None:
    """Return the locations of the chunks of a dataset; None if it has none, or its library reads them."""
    if facts.library or node.chunks is None:
        return None
    offsets, nbytes = np.zeros(math.prod(facts.counts), np.int64), np.zeros(math.prod(facts.counts), np.int64)
    found: list[Any] = []
    node.id.chunk_iter(found.append)
    if any(each.filter_mask for each in found):
        raise UnsupportedError(f"a chunk of {name} was stored without one of its filters: read it through h5py")
    if found:
        starts = np.array([each.chunk_offset for each in found], np.int64).reshape(len(found), -1)
        numbers = np.ravel_multi_index((starts // np.array(facts.chunks)).T, facts.counts)
        offsets[numbers] = [each.byte_offset for each in found]
        nbytes[numbers] = [each.size for each in found]
    return ChunkTable(counts=facts.counts, offsets=offsets, nbytes=nbytes)
