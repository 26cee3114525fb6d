"""Table of a striped file: its parts and descriptors on all disks.

PIO_OPEN and PIO_CLOSE of Wang and Leiss, Figure 4: one file on each disk, all opened and closed together.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import replace

from oocarrays.errors import DescriptorError, InputError, NotFoundError, TargetError
from oocarrays.storage.striped.descriptor import (
    DiskDescriptor,
    FoundDescriptor,
    announced,
    descriptors_in,
    in_order,
    newest_of,
)
from oocarrays.storage.striped.disks import FolderDisk, FolderPart
from oocarrays.storage.striped.layout import length_of, part_bytes

SUFFIX = ".striped"
"""Suffix of a descriptor's file name."""


class StripedParts:
    """Open parts of a striped file, in order."""

    def __init__(self, name: str, disks: Sequence[FolderDisk], block: int | None, mode: str) -> None:
        self.name, self._lock = name, threading.Lock()
        make, new = mode[0] in "wxa", mode[0] == "x"
        found = self._read(disks)
        order = self._order_to_blank(found, block) if mode[0] == "w" else self._order(found, make, new)
        if order is None:
            if not make:
                raise NotFoundError(f"no striped file {name!r} on {', '.join(disk.label for disk in disks)}")
            order = list(range(len(disks)))
            found = self._made(disks, found, block)
        self.disks = [disks[place] for place in order]
        self.descriptors = [d for place in order if (d := found[place].descriptor) is not None]
        self.closed = all(each.closed for each in self.descriptors)
        """Whether no writer was active when the file was opened."""
        newest = newest_of(found)
        assert newest.block is not None, "a file has blocks"
        self.block: int = newest.block
        if block not in (None, self.block):
            raise InputError(f"block={block}: striped file {name!r} has blocks of {self.block} bytes")
        self._dirty = False
        self.open_parts = self._opened(mode != "r")

    def _order(self, found: Sequence[FoundDescriptor], make: bool, new: bool) -> list[int] | None:
        """Return the positions of the disks in order; None if the file must be created."""
        what = f"striped file {self.name!r}"
        being_made = _half_made(found)
        if being_made and not make:
            raise DescriptorError(f"{what} is incomplete because its writer died; open it with mode 'w' or 'a'")
        order = None if being_made else in_order(what, found)
        if new and (order or (being_made and being_made.replaces)):
            raise TargetError(f"{what} exists on {found[order[0] if order else 0].label}; mode 'x' makes a new one")
        return order

    def _order_to_blank(self, found: Sequence[FoundDescriptor], block: int | None) -> list[int] | None:
        """Return the order of the disks for a file to be emptied in place; None if it must be created anew."""
        what, present = f"striped file {self.name!r}", [d for each in found if (d := each.descriptor) is not None]
        if not present or _half_made(found):
            return None
        numbers = {d.number for d in present}
        ours = len({d.id for d in present}) == 1 and len(numbers) == len(present) and present[0].disks <= len(found)
        if not ours:
            return in_order(what, found)
        same = len(found) == len(present) == present[0].disks and block in (None, present[0].block)
        try:
            return in_order(what, found) if same else None
        except DescriptorError:
            return None

    def _read(self, disks: Sequence[FolderDisk]) -> list[FoundDescriptor]:
        name = self.name + SUFFIX
        return descriptors_in([disk.get_document(name) for disk in disks], [d.label for d in disks], name, "file")

    def _made(
        self, disks: Sequence[FolderDisk], found: Sequence[FoundDescriptor], block: int | None
    ) -> list[FoundDescriptor]:
        """Create the file, possibly replacing another; descriptors are marked until all parts exist and are empty."""
        for disk, each in zip(disks, found, strict=True):
            if each.descriptor is None and self._holds(disk):
                raise TargetError(f"{self.name} on {disk.label} is no part of a striped file: it is not overwritten")
        before = next((each.descriptor.id for each in found if each.descriptor), "")
        making = _half_made(found) or DiskDescriptor(
            name=self.name, id=uuid.uuid4().hex, kind="file", disks=0, block=0, number=0, replaces=before
        )
        making = replace(making, disks=len(disks), block=block or 2**20)
        numbered = [replace(making, number=number) for number in range(len(disks))]
        self._put(disks, numbered)
        for disk in disks:
            disk.open_part(self.name, os.O_RDWR | os.O_CREAT | os.O_TRUNC).close()
        made = [replace(each, replaces=None) for each in numbered]
        self._put(disks, made)
        return [FoundDescriptor(disk.label, each) for disk, each in zip(disks, made, strict=True)]

    def _holds(self, disk: FolderDisk) -> bool:
        """Return whether a disk has data of that name; raise if it cannot be opened, before another disk is changed."""
        with suppress(NotFoundError), closing(disk.open_part(self.name, os.O_RDONLY)) as part:
            return bool(part.size())
        return False

    def _opened(self, write: bool) -> list[FolderPart]:
        """Open all parts; raise if one is shorter than its descriptor states."""
        parts: list[FolderPart] = []
        try:
            for disk, wanted in zip(self.disks, self.descriptors, strict=True):
                try:
                    parts.append(disk.open_part(self.name, os.O_RDWR if write else os.O_RDONLY))
                except NotFoundError:
                    raise DescriptorError(
                        f"{disk.label} has lost its part of striped file {self.name!r}, number {wanted.number}"
                    ) from None
                nbytes = parts[-1].size()
                if self.closed and nbytes < wanted.part:
                    what = f"its part of striped file {self.name!r}"
                    raise DescriptorError(f"{disk.label} has {nbytes} of the {wanted.part} bytes of {what}")
        except BaseException:
            for part in parts:
                part.close()
            raise
        return parts

    def length(self) -> int:
        return length_of([part.size() for part in self.open_parts], self.block)

    def begin_to_write(self) -> None:
        with self._lock:
            if self._dirty:
                return
            self._reread()
            for descriptors in announced(self.descriptors):
                self._write(descriptors)
            self._dirty = True

    def set_length(self, length: int) -> None:
        for number, part in enumerate(self.open_parts):
            nbytes = part_bytes(length, self.block, len(self.open_parts), number)
            if part.size() != nbytes:
                part.truncate(nbytes)

    def end_writing(self) -> None:
        """Extend parts to their final sizes and mark the file closed, unless another handle has written since."""
        with self._lock:
            if not self._dirty:
                return
            mine = self.descriptors
            self._reread()
            if all(now.generation == was.generation for now, was in zip(self.descriptors, mine, strict=True)):
                length = self.length()
                self.set_length(length)
                sizes = [part.size() for part in self.open_parts]
                each = zip(self.descriptors, sizes, strict=True)
                self._write([replace(d, closed=True, phase="", length=length, part=nbytes) for d, nbytes in each])
            self._dirty = False

    def _reread(self) -> None:
        """Read the descriptors again, because another process may have written."""
        again = [each.descriptor for each in self._read(self.disks)]
        if any(now is None or now.id != was.id for now, was in zip(again, self.descriptors, strict=True)):
            raise DescriptorError(f"striped file {self.name!r} was removed or replaced while it was open")
        self.descriptors = [now for now in again if now is not None]

    def lost(self, number: int) -> bool:
        """Return whether a part is shorter than its descriptor states, with no write by another handle since."""
        before, now = self.descriptors[number], self._read([self.disks[number]])[0].descriptor
        if now is None or now.id != before.id:
            raise DescriptorError(f"striped file {self.name!r} was removed or replaced while it was open")
        return now.generation == before.generation and self.open_parts[number].size() < before.part

    def _write(self, descriptors: list[DiskDescriptor]) -> None:
        self._put(self.disks, descriptors)
        self.descriptors = descriptors

    def _put(self, disks: Sequence[FolderDisk], descriptors: Sequence[DiskDescriptor]) -> None:
        for disk, each in zip(disks, descriptors, strict=True):
            disk.put_document(self.name + SUFFIX, each.to_json())

    def close(self) -> None:
        for part in self.open_parts:
            part.close()


def _half_made(found: Sequence[FoundDescriptor]) -> DiskDescriptor | None:
    """Return a descriptor of a file that was left half created; None if there is no such file."""
    present = [each.descriptor for each in found if each.descriptor is not None]
    making = next((each for each in present if each.replaces is not None), None)
    if making is None:
        old = 0 < len(present) < len(found) and all(each.closed and not each.generation for each in present)
        return replace(present[0], replaces="") if old else None  # 0.5.0 wrote descriptors of generation 0 in turn
    for each in found:
        if each.descriptor is not None and each.descriptor.id not in (making.id, making.replaces):
            raise DescriptorError(
                f"{each.label} has a part of another striped file, {each.descriptor.name!r}, "
                f"and not of striped file {making.name!r}"
            )
    return making


def removed(name: str, disks: Sequence[FolderDisk]) -> None:
    """Remove a striped file, descriptors first, so that an interrupted removal leaves no striped file."""
    for disk in disks:
        disk.remove(name + SUFFIX)
    for disk in disks:
        disk.remove(name)
