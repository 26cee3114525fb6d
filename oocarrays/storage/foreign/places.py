"""Locations of files of another format, by name and first bytes; and objects of other libraries.

a.nc   a.nc:/group/air   a.nc/air   "days/*.nc"          s3://bucket/a.nc   s3://bucket/days/*.nc/air
files:///data/days/*.nc?concat_dim=time                  files:///data/a.raw?shape=10,20&dtype=<f4
h5py.Dataset   numpy.memmap   numpy.ndarray
"""

from __future__ import annotations

import math
import mmap
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import numpy as np
from zarr.storage import StorePath, ZipStore

from oocarrays.errors import InputError, NotFoundError, UnsupportedError
from oocarrays.mapping.given import element_type, extents, listed, whole
from oocarrays.plan.documents import Settings
from oocarrays.storage.foreign import fits, hdf5, netcdf3, tiff  # noqa: F401  each registers its format
from oocarrays.storage.foreign.arrays import Contents
from oocarrays.storage.foreign.facts import FORMATS, Headed
from oocarrays.storage.foreign.files import Files, listed_files, local_files, remote_files
from oocarrays.storage.foreign.numpy_files import ArrayInMemory, piece_facts, raw_manifest
from oocarrays.storage.foreign.store import ForeignStore, ZipRanges, references
from oocarrays.storage.local.signatures import HEAD_BYTES, NAMED, head_of, kind_of, not_read
from oocarrays.storage.stores.joined import OPENERS, PLACES, SHORTER
from oocarrays.storage.stores.remote import Patience, RemoteStore
from oocarrays.storage.stores.sessions import ZipTarget, session, zip_target
from oocarrays.storage.stores.urls import Ways, check_options, opened, store_of

SCHEME = "files"
ZIP = re.compile(r"(?P<file>.*?\.zip)(/(?P<inner>.+))?", re.IGNORECASE)
"""Pattern of a path to a zip file, and a path in it."""
WILD = re.compile(r"[*?\[]")


def foreign_place(place: Any, options: Mapping[str, Any] | None, ways: Ways) -> Any:
    """Return the store of a location in a file of another format, or a path in it; None for other locations."""
    if isinstance(place, np.ndarray):
        return _mapped(place) or ArrayInMemory(np.asanyarray(place))
    if type(place).__module__.partition(".")[0] == "h5py":
        return _h5py_object(place)
    if isinstance(place, StorePath):
        return _below(session(place.store) or zip_target(place.store), place.path)
    if not isinstance(place, str | os.PathLike):
        return session(place) or zip_target(place)
    text = os.fspath(place)
    if "://" in text and not text.startswith(("file://", "local://")):
        return _remote(text, options, ways)
    text = unquote(text.partition("://")[2]) if "://" in text else text
    found = _split(text)
    if found is not None:
        return _local(*found, None)
    new = ZIP.fullmatch(os.path.abspath(text))
    if new is None or os.path.lexists(new["file"]):
        return None
    return _below(ZipTarget(ZipStore(new["file"], mode="a"), mine=True), new["inner"])


PLACES.append(foreign_place)
SHORTER.append(references)


def open_files(
    place: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    concat_dim: str | int | None = None,
    shape: Sequence[int] | None = None,
    dtype: Any = None,
    offset: int = 0,
    order: str = "C",
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """Return files that are not Zarr as a store, usable as any source.

    Parameters
    ----------
    place : path, URL, or sequence of paths
        NetCDF-3 and -4, HDF5, TIFF, FITS and numpy's files; with ``shape`` and ``dtype`` any file. A name may have
        wildcards.
    concat_dim : str or int, optional
        The axis along which several files are joined, in the order of their names or of the list. If no array has an
        axis of this name, the arrays are stacked along a new first axis. Default: the only unlimited axis of NetCDF, or
        the axis of the only coordinate that differs between the files.
    shape, dtype
        Extents of a raw file, and its element type with byte order.
    offset : int
        Bytes before the first element of a raw file.
    order : str
        ``"C"`` or ``"F"``: whether the last or the first axis of a raw file varies fastest.
    storage_options : mapping, optional
        Options with which URLs are opened.

    Raises
    ------
    InputError
        If the files cannot be read; `NotFoundError` if no file exists.

    Examples
    --------
    >>> import tempfile, zarr
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.arange(12, dtype="<i2").tofile(f"{folder}/a.raw")
    ...     zarr.open_array(open_files(f"{folder}/a.raw", shape=(3, 4), dtype="<i2"), mode="r")[1]
    array([4, 5, 6, 7], dtype=int16)
    """
    check_options(storage_options, [place])
    if isinstance(place, str | os.PathLike):
        named = os.path.expanduser(place)
        if "://" not in named:
            named = os.path.abspath(named)
    else:
        paths = listed(place, "place")
        if not all(isinstance(each, str | os.PathLike) for each in paths):
            raise InputError(f"place={place!r} must be a path, a URL or a list of paths")
        named = ",".join(quote(os.path.abspath(os.path.expanduser(each)), safe="/:@+~ *") for each in paths)
    asked: Settings = {}
    if concat_dim is not None:
        if not isinstance(concat_dim, str):
            concat_dim = whole(concat_dim, "concat_dim")
        elif not concat_dim.isprintable():
            raise InputError(f"concat_dim={concat_dim!r} is neither the name of an axis nor its number")
        asked["concat_dim"] = concat_dim
    if (shape is None) != (dtype is None):
        raise InputError("a raw file has both shape= and dtype=")
    if shape is not None:
        lengths, kind = extents(shape), element_type(dtype)
        asked |= {"shape": ",".join(map(str, lengths)), "dtype": kind.str, "offset": offset, "order": order}
    return opened_files(f"{SCHEME}://{named}{'?' if asked else ''}{urlencode(asked, safe=',<>|')}", storage_options)


def opened_files(url: str, options: Mapping[str, Any] | None = None, ways: Ways | None = None) -> Any:
    """Return the store of a URL made by `files`."""
    rest = url.partition("://")[2]
    names, _, query = rest.rpartition("?") if re.search(r"\?[a-z_]+=[^/]*", rest) else (rest, "", "")
    query, _, inner = query.partition("/")
    asked = dict(parse_qsl(query, keep_blank_values=True))
    unknown = asked.keys() - {"concat_dim", "shape", "dtype", "offset", "order"}
    if unknown:
        raise InputError(f"{url}: files:// takes concat_dim, shape, dtype, offset and order, not {sorted(unknown)}")
    if "shape" in asked:
        return _raw(names, asked, url)
    dim: Any = asked.get("concat_dim")
    dim = int(dim) if dim is not None and re.fullmatch("-?[0-9]+", dim) else dim
    if "://" in names:
        return _remote(names, options, ways or Ways(), dim)
    if "," in names and not os.path.exists(names):
        listed = [unquote(each) for each in names.split(",")]
        name = url if len(listed) <= 16 else f"{len(listed)} files from {listed[0]} to {listed[-1]}"
        return _store(listed_files(listed, names), dim, inner, name)
    pattern, within = _split(names) or (names, "")
    found = _local(pattern, inner or within, dim)
    if found is None:
        raise UnsupportedError(not_read(pattern, head_of(pattern)))
    return found


OPENERS[SCHEME] = opened_files


def _split(text: str) -> tuple[str, str] | None:
    """Split a local location into a file or pattern and a path in it; None if it names no file."""
    before, colon, inner = text.rpartition(":/")
    if colon and (os.path.isfile(before) or WILD.search(before)):
        return before, inner.strip("/")
    if WILD.search(text) and not os.path.lexists(text):
        return _named_part(text)
    path, rest = os.path.abspath(text), ""
    while path != os.path.dirname(path) and not os.path.isdir(path):
        if os.path.isfile(path):
            return path, rest
        path, name = os.path.split(path)
        rest = f"{name}/{rest}" if rest else name
    return None


def _named_part(text: str) -> tuple[str, str] | None:
    """Split a name after the first part with the suffix of a known format; None if no part has one."""
    parts = text.split("/")
    for number, part in enumerate(parts):
        if NAMED.search(part):
            return "/".join(parts[: number + 1]), "/".join(parts[number + 1 :])
    return None


def _local(pattern: str, inner: str, dim: Any) -> Any:
    if os.path.isfile(pattern) and kind_of(head_of(pattern)) is None:
        return None
    return _store(local_files(pattern), dim, inner, _named(os.path.abspath(pattern), dim))


def _remote(url: str, options: Mapping[str, Any] | None, ways: Ways, dim: Any = None) -> Any:
    scheme, _, rest = url.partition("://")
    if scheme in (SCHEME, "striped", "memory", "reference") or scheme in OPENERS:
        return None
    rest, _, inner = rest.partition(":/")
    zipped = ZIP.fullmatch(rest)
    split = (zipped["file"], zipped["inner"] or "") if zipped else _named_part(rest)
    if split is None:
        return None
    path, within = split
    folder = path.partition("*")[0].rpartition("/")[0]
    root: RemoteStore = store_of(f"{scheme}://{folder}", options, ways)
    try:
        found = remote_files(root, path.removeprefix(f"{folder}/"))
    except NotFoundError:
        if "*" in path:
            raise
        return None
    return _store(found, dim, inner or within, _named(f"{scheme}://{path}", dim))


def _named(place: str, dim: Any) -> str:
    return place if dim is None else f"{SCHEME}://{place}?{urlencode({'concat_dim': dim})}"


def _store(found: Files, dim: Any, inner: str, url: str) -> Any:
    """Return the store of files of one format; None for a prefix of a remote store, which has no bytes."""
    first = found.readable(0)
    head = head_of(first) if isinstance(first, str) else first.read(HEAD_BYTES)
    kind = kind_of(head)
    if not head and not found.local and len(found.found) == 1:
        return None
    if kind == "zip" and len(found.found) == 1:
        if found.local:
            return _below(opened(ZipStore(found.path(0), mode="r")), inner)
        return _placed(ZipRanges(found, url), inner)
    if kind not in FORMATS:
        raise UnsupportedError(not_read(found.path(0), head))
    arrays, groups, skipped = FORMATS[kind].manifest(first)
    contents = Contents(files=found, format=FORMATS[kind], names=tuple(arrays), groups=groups, skipped=skipped)
    contents.join(dim)
    contents.prepare(inner)
    return _placed(ForeignStore(contents, url), inner)


def _placed(store: ForeignStore | ZipRanges, inner: str) -> Any:
    return _below(RemoteStore(store, store.url, Patience()), inner)


def _below(store: Any, inner: str | None) -> Any:
    return StorePath(store, inner) if store is not None and inner else store


def _raw(names: str, asked: Mapping[str, str], url: str) -> Any:
    try:
        shape, dtype = tuple(int(n) for n in asked["shape"].split(",") if n), np.dtype(asked["dtype"])
        offset = int(asked.get("offset", 0))
    except (KeyError, ValueError, TypeError):
        raise InputError(f"{url}: a raw file has shape=10,20 and dtype=<f4, and may have offset= and order=") from None
    if "concat_dim" in asked:
        raise InputError(f"concat_dim={asked['concat_dim']!r}: raw files are not joined")
    if asked.get("order", "C") not in ("C", "F"):
        raise InputError(f"order={asked['order']!r} is neither 'C' nor 'F'")
    found, offset = local_files(names), whole(offset, "offset", 0)
    if len(found.found) > 1:
        raise InputError(f"{len(found.found)} files match {names}: shape= and dtype= describe one raw file")
    needed = offset + math.prod(shape) * dtype.itemsize
    if found.found[0].size < needed:
        raise InputError(f"{found.path(0)} has {found.found[0].size} bytes; shape {shape} of {dtype} needs {needed}")
    facts = piece_facts(shape, dtype, offset, columns=asked.get("order") == "F")
    contents = Contents(files=found, format=Headed(partial(raw_manifest, facts)), names=("",), groups={})
    return _placed(ForeignStore(contents, url), "")


def _mapped(array: np.ndarray) -> Any:
    """Return the store of a memory-mapped array's file; None if the array is not contiguous in a file."""
    columns = not array.flags.c_contiguous and array.flags.f_contiguous
    in_file = isinstance(array, np.memmap) and array.filename is not None
    if not in_file or not (array.flags.c_contiguous or columns):
        return None
    if array.flags.writeable:
        array.flush()  # type: ignore[attr-defined]
    mapped: Any = array._mmap  # type: ignore[attr-defined]
    base = np.frombuffer(mapped, np.uint8).ctypes.data
    first = array.offset - array.offset % mmap.ALLOCATIONGRANULARITY  # type: ignore[attr-defined]
    offset, path = first + array.ctypes.data - base, os.path.abspath(array.filename)  # type: ignore[attr-defined]
    asked = {"shape": ",".join(map(str, array.shape)), "dtype": array.dtype.str, "offset": offset}
    asked["order"] = "F" if columns else "C"
    return opened_files(f"{SCHEME}://{path}?{urlencode(asked, safe=',<>|')}")


def _h5py_object(node: Any) -> Any:
    file = node.file
    if not os.path.isfile(file.filename):
        raise UnsupportedError(f"{file.filename} is not a file on this machine: pass its URL")
    if file.mode != "r":
        file.flush()
    return _local(file.filename, node.name.strip("/"), None)
