"""Creation of striped stores, and addition and removal of their disks.

    lay_out    all keys of a store ──► striped; documents last, so that an interrupted copy is not an array
    add        1  write on all disks: chunks follow the new cycle, or still the old           (readers check both)
               2  copy the new disk's share there, then remove it from its old disk
               3  write on all disks: chunks follow the new cycle
    empty      the same, with a cycle in which a disk has no turn

An interrupted command leaves a readable store; the same command resumes.
"""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from zarr.abc.store import Store
from zarr.core.sync import sync
from zarr.storage import LocalStore, StorePath

from oocarrays.errors import CorruptChunkError, InputError, NotFoundError, TargetError
from oocarrays.mapping.given import whole
from oocarrays.storage.local.fs import PARTIAL_END, SAYING
from oocarrays.storage.striped.catalog import HEAD, DiskLayout, head_on, key_of
from oocarrays.storage.striped.disks import DOCUMENT, HIDDEN, PROTOTYPE, clear_folders, disks_of, label_of, part_of
from oocarrays.storage.striped.file import StripedFile
from oocarrays.storage.striped.file_parts import StripedParts
from oocarrays.storage.striped.layout import joined_by, left_by, turn_of
from oocarrays.storage.striped.store import StripedStore, striped_of
from oocarrays.storage.striped.verifying import AT_ONCE, Recorded, each_of, put_record, receipt_of, record_of


def open_striped(
    name: str,
    mode: str = "r",
    *,
    disks: Sequence[Any],
    block: int | None = None,
    buffers: int = 2,
    buffering: int = 0,
    encoding: str | None = None,
    errors: str | None = None,
    newline: str | None = None,
) -> Any:
    """Open a file striped over several disks, for the sum of their bandwidths.

    Each disk has a part of the file and a small descriptor, ``name.striped``. Disks may therefore be given in any
    order, and an error names a disk that is missing, empty, an old copy or another file's.

    Parameters
    ----------
    name : str
        Name of the file on each disk.
    mode : str
        Mode of ``open``: ``"r"``, ``"r+"``, ``"w"``, ``"x"``, ``"a"``, with ``"+"``, ``"b"`` or ``"t"``. Without
        ``"t"`` the file holds bytes.
    disks : sequence of path
        Folders, one per disk.
    block : int, optional
        Bytes of a block when the file is created; 1 MiB by default.
    buffers : int
        Maximum requests in flight per disk; by default the double buffers of the paper.
    buffering : int
        Bytes of a buffer in this process as in ``open``; 1 for the default size, 0 for none.
    encoding, errors, newline
        Text options of ``open``.

    Returns
    -------
    StripedFile
        An `io.RawIOBase` with ``pread``, ``pwrite``, ``readstart`` and ``readend``, wrapped in the buffered and text
        layers of `io` on request.

    Raises
    ------
    InputError
        As a subclass: `NotFoundError`, `TargetError` if ``"x"`` finds a file, `DescriptorError` for wrong disks.

    Examples
    --------
    >>> import os, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     disks = [os.path.join(folder, each) for each in "abc"]
    ...     for disk in disks: os.mkdir(disk)
    ...     with open_striped("field", "w+", disks=disks, block=4) as file:
    ...         file.write(b"0123456789abcdef"), file.seek(3), file.read(6), file.pread(2, 14)
    ...     with open(os.path.join(disks[1], "field"), "rb") as part: part.read()
    (16, 3, b'345678', b'ef')
    b'4567'
    """
    if not isinstance(name, str) or not name or "/" in name or "\0" in name or name in (".", ".."):
        raise InputError(f"name={name!r} is no name of a file: the folders are given as disks=")
    kind, text = _mode(mode)
    block = None if block is None else whole(block, "block", 1)
    buffers, there = whole(buffers, "buffers", 1), disks_of(disks)
    parts = StripedParts(name, there, block, kind)
    raw = StripedFile(parts, kind, buffers)
    try:
        if kind[0] == "w":
            raw.truncate(0)
        if kind[0] == "a":
            raw.seek(0, os.SEEK_END)
        return _layered(raw, kind, text, buffering, encoding=encoding, errors=errors, newline=newline)
    except BaseException:
        raw.close()
        raise


def _mode(mode: Any) -> tuple[str, bool]:
    letters = "".join(sorted(set(mode))) if isinstance(mode, str) else ""
    kind = [letter for letter in "rwxa" if letter in letters]
    if len(kind) != 1 or len(letters) != len(mode) or set(letters) - set("rwxa+bt") or {"b", "t"} <= set(letters):
        raise InputError(f"mode={mode!r}: it takes 'r', 'w', 'x' or 'a', with '+', and 'b' or 't'")
    return kind[0] + "+" * ("+" in letters), "t" in letters


def _layered(raw: StripedFile, kind: str, text: bool, buffering: int, **how: Any) -> Any:
    buffering = whole(buffering, "buffering", -1)
    if not (buffering or text):
        if any(value is not None for value in how.values()):
            raise InputError("encoding=, errors= and newline= are of text: give mode 'rt' or 'wt'")
        return raw
    size = buffering if buffering > 1 else max(io.DEFAULT_BUFFER_SIZE, min(raw.block, 2**20))
    layer: Any = io.BufferedReader if kind == "r" else io.BufferedRandom if "+" in kind else io.BufferedWriter
    return io.TextIOWrapper(layer(raw, size), **how) if text else layer(raw, size)


BUSY = "{} has an unfinished move: finish it first, with the disk that was added or emptied"


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """Count of copied or moved values."""

    keys: int
    """Number of values."""
    nbytes: int
    """Bytes of the values."""


def lay_out(source: Any, target: StripedStore, *, resume: bool = False) -> Moved:
    """Copy all values of a store to a striped store, as stored; with ``resume``, those that are missing."""
    store, prefix = _place(source)
    return sync(_lay_out(store, prefix, target, resume=resume))


def _place(source: Any) -> tuple[Store, str]:
    if isinstance(source, StorePath):
        return source.store, source.path
    return (source, "") if isinstance(source, Store) else (LocalStore(str(source), read_only=True), "")


async def _lay_out(store: Store, prefix: str, target: StripedStore, *, resume: bool) -> Moved:
    there = {key async for key in target.list_prefix("")}
    if there and not resume:
        raise TargetError(
            f"the target {target} already exists; pass resume=True to continue, or name disks without this store"
        )
    before = f"{prefix}/" if prefix else ""
    keys = [key.removeprefix(before) async for key in store.list_prefix(before)]
    if not any(key in SAYING for key in keys):
        raise NotFoundError(f"no Zarr array or group in {store}")
    keys = [key for key in keys if key not in HIDDEN and not key.endswith(PARTIAL_END)]
    if foreign := there.difference(keys):
        raise TargetError(f"the target {target} already exists, with {min(foreign)}, which {store} lacks")
    documents = sorted((key for key in keys if turn_of(key) is None), key=lambda key: -key.count("/"))

    receipts: Recorded = {}
    written: dict[str, int] = {}

    async def copied(key: str) -> int:
        value = await store.get(before + key, PROTOTYPE)
        if value is None:
            raise InputError(f"{key} of {store} was deleted while it was copied")
        receipts[key] = receipt_of(value)
        kept = await target.get(key, PROTOTYPE) if key in there else None
        if kept is not None and kept.to_bytes() != value.to_bytes():
            raise TargetError(f"the target {target} already exists, with another {key} than {store}")
        if kept is None:
            await target.set(key, value)
            written[key] = len(value)
        return len(value)

    await each_of(copied, [key for key in keys if turn_of(key) is not None], AT_ONCE * len(target.disks))
    for key in documents:
        await copied(key)
    await put_record(target, receipts)
    return Moved(keys=len(written), nbytes=sum(written.values()))


def add(store: Any, disk: Any, options: Any = None) -> Moved:
    """Add a disk to a striped store, and move only its share of the values to it.

    No other process may have the store open for writing. After an interruption, call it again.
    """
    striped, part = striped_of(store), part_of(disk, options)
    layout = striped.layout()
    if not layout.made:
        raise NotFoundError(f"no striped store {striped}")
    if label_of(part) in striped.disks:
        if not layout.before:
            raise InputError(f"disk {label_of(part)} is one of {striped} already")
        return _moved(striped, layout)  # resume
    wider = striped.with_disks([*layout.parts.values(), part])
    if sync(part.get(DOCUMENT, PROTOTYPE)) is not None:
        return _moved(wider, wider.layout())
    if layout.before:
        raise InputError(BUSY.format(striped))
    number = max(layout.parts) + 1  # the new disk first, which no reader uses before the others name it
    return _begun(wider, {number: part} | layout.parts, joined_by(layout.cycle, number), striped)


def empty(store: Any, disk: Any, options: Any = None) -> Moved:
    """Move all values of a disk to the others, after which the disk can be removed.

    No other process may have the store open for writing. After an interruption, call it again.
    """
    striped, label = striped_of(store), label_of(part_of(disk, options))
    layout = striped.layout()
    number = next((n for n, part in layout.parts.items() if label_of(part) == label), None)
    if number is None:
        raise InputError(f"disk {label} is none of {', '.join(striped.disks)}")
    if len(layout.parts) == 1:
        raise InputError(f"disk {label} is the only one of {striped}")
    if layout.before and number in layout.cycle:
        raise InputError(BUSY.format(striped))
    if layout.before:
        return _moved(striped, layout)  # resume
    return _begun(striped, layout.parts, left_by(layout.cycle, number), striped)


def _begun(target: StripedStore, parts: dict[int, Store], cycle: tuple[int, ...], source: StripedStore) -> Moved:
    """Write a new cycle to all disks, and move values by it."""
    record, before = sync(record_of(source)), source.layout().cycle
    generation = source.end_writing() + 1
    newest = replace(sync(source.catalog.descriptors())[0], generation=generation, closed=False)
    members = len({*cycle, *before})
    sync(source.catalog.write(parts, replace(newest, disks=members, cycle=cycle, before=before)))
    return _moved(target, target.layout(), record)


def _moved(striped: StripedStore, layout: DiskLayout, record: Recorded | None = None) -> Moved:
    """Move values to the disks of the cycle, then record the end of the move, and keep the record of values."""
    done = sync(_move(striped, layout))
    stay = {number: part for number, part in layout.parts.items() if number in layout.cycle}
    newest = replace(sync(striped.catalog.descriptors())[0], closed=True, disks=len(stay), before=())
    sync(striped.catalog.write(stay, newest))
    for number in layout.parts.keys() - stay.keys():
        for name in reversed(HIDDEN):
            sync(layout.parts[number].delete(name))
        clear_folders(layout.parts[number])
    if record is not None:
        sync(put_record(striped.with_disks(list(stay.values())), record))
    return done


async def _move(striped: StripedStore, layout: DiskLayout) -> Moved:
    wrong: list[tuple[Store, str, str, bool]] = []
    for number, part in layout.parts.items():
        async for name in part.list():
            key = key_of(name)
            if key is None or name.endswith(PARTIAL_END):
                continue
            head = await head_on(part, key) if name.endswith(HEAD) else None
            leaves = head is not None and not set(head.disks) <= set(layout.cycle)
            if leaves or layout.number_of(key) != number:
                wrong.append((part, name, key, leaves))

    async def moved(each: tuple[Store, str, str, bool]) -> int:
        """Move a value, or the head of a split one; rewrite it if blocks must move, too."""
        part, name, key, leaves = each
        value = await (striped.get(key, PROTOTYPE) if leaves else part.get(name, PROTOTYPE))
        if leaves and value is None:
            raise CorruptChunkError(f"{key} of {striped} has lost its blocks")
        if value is None:
            return 0
        if leaves:
            await striped.set(key, value)
        else:
            await layout.part_of(key).set_if_not_exists(name, value)
            await part.delete(name)
        return len(value)

    sizes = await each_of(moved, wrong, AT_ONCE * len(layout.parts))
    return Moved(keys=len(sizes), nbytes=sum(sizes))
