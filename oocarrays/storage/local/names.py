"""Names in the folder of an array: Zarr's documents and their drafts, partial files, and our own names.

zarr.json                                        document of format 3
.zattrs  .zarray  .zgroup                        documents of format 2
.oocarrays/draft.zarr.json                       draft of a document, until the array is finished
c/0/3.0123456789abcdef0123456789abcdef.partial   file that is being written
.oocarrays/  .oocarrays.source  .oocarrays.made  journal, and notes of a finished array
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

METADATA, ARRAY_2, GROUP_2, ATTRIBUTES_2 = "zarr.json", ".zarray", ".zgroup", ".zattrs"
"""Document of format 3; documents of format 2."""
DOCUMENTS = (ATTRIBUTES_2, ARRAY_2, GROUP_2, METADATA)
"""Metadata documents of formats 2 and 3, in writing order: the first holds the mark of format 2."""
SAYING = (*DOCUMENTS, ".zmetadata")
"""All documents, including consolidated metadata."""
ATTRIBUTES = (METADATA, ATTRIBUTES_2)
"""Documents with attributes, in format 3 and in format 2."""
NODES = (METADATA, ARRAY_2, GROUP_2)
"""Documents that make a folder an array or a group."""
MARK = "oocarrays:unfinished"
"""Attribute of an unfinished target; its value is the id of the run."""
OURS = ".oocarrays"
"""Prefix of names that do not belong to an array."""
SHARED = (".oocarrays.source", ".oocarrays.made")
"""Keys of a finished array's source and request: readable by every user with read access to the array."""
DRAFT = "draft."
"""Prefix of the names of drafts."""
PARTIAL_END = ".partial"
"""Suffix of the names of partial files: ours, and those of Zarr's `LocalStore`."""
PARTIAL = re.compile(r"\.[0-9a-f]{32}\.partial$")
"""Pattern of the complete suffix."""


def partial_name(path: str, mark: str = "") -> str:
    """Return the name of a file while it is written; without a mark, it is unique and names the writing process."""
    return f"{path}.{mark or f'{_machine()}{os.getpid():08x}{os.urandom(6).hex()}'}{PARTIAL_END}"


def mark_of_plan(run: str, beginning: str, number: int) -> str:
    """Return the mark in the names of unfinished chunks, for one pass of one plan of a run."""
    return hashlib.sha256(f"{run} {beginning} {number}".encode()).hexdigest()[:32]


@cache
def _machine() -> str:
    """Return 12 digits for the processes of this machine, or container, since it has started; else random ones."""
    with suppress(OSError):
        boot, numbers = Path("/proc/sys/kernel/random/boot_id").read_bytes(), os.stat("/proc/self/ns/pid").st_ino
        return hashlib.sha256(b"%s %d" % (boot, numbers)).hexdigest()[:12]
    return os.urandom(6).hex()


def is_abandoned(name: str) -> bool:
    """Return whether a partial file was written by a process of this machine that has died."""
    found = PARTIAL.search(name)
    if found is None or found[0][1:13] != _machine():
        return False
    try:
        os.kill(int(found[0][13:21], 16), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # of another user, or no number of a process
        return False
    return False


def array_document(zarr_format: int) -> str:
    """Return the name of the document that makes a folder an array."""
    return ARRAY_2 if zarr_format == 2 else METADATA


def is_document(key: str) -> bool:
    """Return whether a key is that of a metadata document."""
    return key.rpartition("/")[2] in SAYING


def draft_key(key: str) -> str:
    """Return the key of the draft of a document."""
    path, slash, name = key.rpartition("/")
    return f"{path}{slash}{OURS}/{DRAFT}{name.removeprefix('.')}"


def is_draft(key: str) -> bool:
    """Return whether a key is that of a draft."""
    return f"{OURS}/{DRAFT}" in key


def names_below(keys: Iterable[str], prefix: str) -> Iterator[str]:
    """Yield each name directly below a prefix once."""
    before = f"{prefix.rstrip('/')}/" if prefix else ""
    below = (key.removeprefix(before).partition("/")[0] for key in keys if key.startswith(before))
    yield from dict.fromkeys(below)


def chunk_key(index: Iterable[int]) -> str:
    """Return the default key of a chunk in format 3."""
    return "/".join(("c", *map(str, index)))


def chunk_index(key: str, counts: Sequence[int]) -> tuple[int, ...] | None:
    """Return the index of a chunk from its default key; None if an array of ``counts`` chunks has no such one."""
    word, *numbers = key.split("/")
    if word != "c" or len(numbers) != len(counts) or not all(map(str.isdecimal, numbers)):
        return None
    index = tuple(map(int, numbers))
    return index if all(i < n for i, n in zip(index, counts, strict=True)) else None


def index_of_chunk(key: str, array: Any) -> tuple[int, ...] | None:
    """Return the index of a chunk, or shard, by its key below a Zarr array; None for a key that is not one of its
    own."""
    names = [name for name in key.replace(".", "/").split("/") if name != "c"][: array.ndim]
    if len(names) != array.ndim or not all(name.isascii() and name.isdigit() for name in names):
        return None
    index = tuple(map(int, names))
    return index if array.metadata.encode_chunk_key(index) == key else None


def chunk_keys(counts: Sequence[int]) -> Iterator[str]:
    """Yield the default keys of all chunks."""
    return map(chunk_key, product(*map(range, counts)))
