"""Chunks of the arrays of a group: as a program gives them, and as they are typed.

chunks={"air": (100, 20), "deep/temp": {"time": -1}}      one for each axis, or by the names of dimensions
--chunks air=100,20 --chunks deep/temp=time:-1            the same; also in one word: air=100,20,deep/temp=time:-1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oocarrays.errors import ChunksError, NotFoundError
from oocarrays.options.chunks import parsed_chunks
from oocarrays.storage.files.formats import is_foreign
from oocarrays.storage.files.group_file import GroupFile
from oocarrays.storage.stores.underway import lists_keys

LINES = 20
"""Arrays that are shown one by one; of more, the rest is counted."""


def asked_for(file: GroupFile, chunks: Any) -> dict[str, Any]:
    """The chunks of each array that is to be rewritten, by its path, checked as far as names go.

    What is coded as another format does it is rewritten in its own chunks, for other readers of Zarr; so is what nobody
    lists, to be copied as it is.

    Raises
    ------
    ChunksError
        Where chunks are not a mapping of names, or name nothing, or an array twice.
    NotFoundError
        Where a name is not that of an array in the group.
    """
    there = _listed(list(file.arrays))
    if not isinstance(chunks, Mapping):
        raise ChunksError(
            f"{file.name} is a group, and chunks={chunks!r} names none of its arrays: "
            f'write chunks={{"name": …}}; there are {there}'
        )
    if not chunks:
        raise ChunksError(f"chunks={{}} names no array of {file.name}; there are {there}")
    wanted: dict[str, Any] = {}
    for given, lengths in chunks.items():
        name = str(given).strip("/")
        if name in file.groups:
            raise NotFoundError(f"{given!r} in {file.name} is a group, not an array; there are {there}")
        if name not in file.arrays:
            raise NotFoundError(f"no array {given!r} in {file.name}; there are {there}")
        if name in wanted:
            raise ChunksError(f"chunks name the array {name!r} twice")
        wanted[name] = lengths
    listed = lists_keys(file.zarr.store_path.store)
    others = {name: array for name, array in file.arrays.items() if name not in wanted}
    return wanted | {name: array.chunks for name, array in others.items() if is_foreign(array) or not listed}


def _listed(names: list[str]) -> str:
    """Names in one line.

    >>> _listed([]), _listed(["lat", "lon"])
    ('no arrays', 'lat, lon')
    """
    more = f" and {len(names) - LINES} more" if len(names) > LINES else ""
    return ", ".join(names[:LINES]) + more if names else "no arrays"


# ---------------------------------------------------------------------- as they are typed


def read_chunks(words: Sequence[str]) -> Any:
    """Read the ``--chunks`` options of a group's arrays, by the arrays' names.

    >>> read_chunks(["air=100,20,time=-1", "deep/temp=time:-1"])
    {'air': (100, 20), 'time': (-1,), 'deep/temp': {'time': -1}}

    Raises
    ------
    ChunksError
        Where they cannot be read, or name an array twice, or some name arrays and some do not.
    """
    named: dict[str, list[str]] = {}
    for word in words:
        name = ""
        for part in filter(None, word.split(",")):
            before, is_named, length = part.rpartition("=")
            name = before if is_named else name
            if is_named and name in named:
                raise ChunksError(f"--chunks {word} names the array {name!r} twice")
            named.setdefault(name, []).append(length)
    if "" in named and max(len(words), len(named)) > 1:
        raise ChunksError(f"--chunks {','.join(named[''])} is for no array: write NAME={','.join(named[''])}")
    read = {name: _lengths(parts) for name, parts in named.items()}
    return read.get("", read)


def _lengths(parts: list[str]) -> Any:
    """Chunks of one array.

    >>> _lengths(["100", "auto"]), _lengths(["time:-1"])
    ((100, 'auto'), {'time': -1})
    """
    try:
        return parsed_chunks(",".join(parts).replace(":", "="))
    except ValueError:
        raise ChunksError(
            f"--chunks {','.join(parts)!r} is not a list of lengths such as 16384,256, nor time:-1,lat:20"
        ) from None
