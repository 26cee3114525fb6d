"""The table of a striped file: its parts and descriptors on all disks, opened, found in order, written down.

PIO_OPEN and PIO_CLOSE of Wang and Leiss, Figure 4: a file on each disk, all of which are opened and closed together.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Sequence
from dataclasses import replace

from oocarrays.errors import DescriptorError, InputError, NotFoundError, TargetError
from oocarrays.storage.striped.descriptor import DiskDescriptor, FoundDescriptor, in_order, newest_of
from oocarrays.storage.striped.disks import Disk, DiskPart
from oocarrays.storage.striped.layout import length_of, part_bytes

SUFFIX = ".striped"
"""What stands behind a file's name in that of its descriptor."""
BLOCK_BYTES = 2**20
"""Bytes of a block where nothing is said, and there is no file yet."""


class Table:
    """The open parts of a striped file, in their order.

    Parameters
    ----------
    disks : sequence of Disk
        In any order, where there is such a file.
    make : bool
        Whether a file that is not there is made.
    new : bool
        Whether one that is there is an error.
    """

    def __init__(
        self, name: str, disks: Sequence[Disk], block: int | None, *, write: bool, make: bool, new: bool
    ) -> None:
        self.name, self._lock = name, threading.Lock()
        found = [FoundDescriptor(label=disk.label, descriptor=self._described(disk)) for disk in disks]
        order = None if make and _half_made(found) else in_order(f"striped file {name!r}", found)
        if order is not None and new:
            raise TargetError(f"striped file {name!r} exists on {found[order[0]].label}; mode 'x' makes a new one")
        if order is None:
            if not make:
                raise NotFoundError(f"no striped file {name!r} on {', '.join(disk.label for disk in disks)}")
            order = list(range(len(disks)))
            found = self._made(disks, block)
        self.disks = [disks[place] for place in order]
        self.descriptors = [d for place in order if (d := found[place].descriptor) is not None]
        said = newest_of(found)
        assert said.block is not None, "a file has blocks"
        self.block: int = said.block
        if block not in (None, self.block):
            raise InputError(f"block={block}: striped file {name!r} has blocks of {self.block} bytes")
        self._dirty = False
        self.parts = self._opened(write)

    def _described(self, disk: Disk) -> DiskDescriptor | None:
        where = f"{disk.label}/{self.name}{SUFFIX}"
        text = disk.get_document(self.name + SUFFIX)
        made = None if text is None else DiskDescriptor.from_json(text, where)
        if made is not None and made.kind != "file":
            raise DescriptorError(f"{where} is of a striped store, not of a file")
        return made

    def _made(self, disks: Sequence[Disk], block: int | None) -> list[FoundDescriptor]:
        """Make the file: the parts first, so that whoever finds a descriptor finds its part."""
        id, made = uuid.uuid4().hex, []
        for number, disk in enumerate(disks):
            part = disk.open_part(self.name, os.O_RDWR | os.O_CREAT)
            nbytes = part.size()
            part.close()
            if nbytes:
                raise TargetError(f"{self.name} on {disk.label} is no part of a striped file: it is not overwritten")
            made.append(
                DiskDescriptor(
                    name=self.name, id=id, kind="file", disks=len(disks), block=block or BLOCK_BYTES, number=number
                )
            )
        for disk, descriptor in zip(disks, made, strict=True):
            disk.put_document(self.name + SUFFIX, descriptor.to_json())
        return [FoundDescriptor(label=disk.label, descriptor=each) for disk, each in zip(disks, made, strict=True)]

    def _opened(self, write: bool) -> list[DiskPart]:
        """Open all parts, and look whether each has what its descriptor says."""
        parts: list[DiskPart] = []
        try:
            for disk, said in zip(self.disks, self.descriptors, strict=True):
                try:
                    parts.append(disk.open_part(self.name, os.O_RDWR if write else os.O_RDONLY))
                except NotFoundError:
                    raise DescriptorError(
                        f"{disk.label} has lost its part of striped file {self.name!r}, number {said.number}"
                    ) from None
                nbytes = parts[-1].size()
                if self.closed and nbytes < said.part:
                    raise DescriptorError(
                        f"{disk.label} has {nbytes} of the {said.part} bytes of its part of striped file {self.name!r}"
                    )
        except BaseException:
            for part in parts:
                part.close()
            raise
        return parts

    @property
    def closed(self) -> bool:
        """Whether nobody was writing when the descriptors were read."""
        return all(said.closed for said in self.descriptors)

    def length(self) -> int:
        """Bytes of the file, as its parts are now."""
        return length_of([part.size() for part in self.parts], self.block)

    def begin_to_write(self) -> None:
        """Say on all disks that somebody writes, before anything is written."""
        with self._lock:
            if self._dirty:
                return
            self._reread()
            newest = max(said.generation for said in self.descriptors)
            if self.closed:
                newest += 1
            self._say([replace(said, generation=newest, closed=False) for said in self.descriptors])
            self._dirty = True

    def set_length(self, length: int) -> None:
        """Make every part as long as a file of that length has it."""
        for number, part in enumerate(self.parts):
            nbytes = part_bytes(length, self.block, len(self.parts), number)
            if part.size() != nbytes:
                part.truncate(nbytes)

    def end_writing(self) -> None:
        """Make parts as long as they must be, holes at their ends too, and say so, unless another writes since."""
        with self._lock:
            if not self._dirty:
                return
            mine = self.descriptors
            self._reread()
            if all(now.generation == was.generation for now, was in zip(self.descriptors, mine, strict=True)):
                length = self.length()
                self.set_length(length)
                sizes = [part.size() for part in self.parts]
                self._say(
                    [
                        replace(said, closed=True, length=length, part=nbytes)
                        for said, nbytes in zip(self.descriptors, sizes, strict=True)
                    ]
                )
            self._dirty = False

    def _reread(self) -> None:
        """Read the descriptors again: another process may have written."""
        again = [self._described(disk) for disk in self.disks]
        if any(now is None or now.id != was.id for now, was in zip(again, self.descriptors, strict=True)):
            raise DescriptorError(f"striped file {self.name!r} has been taken away, or replaced, while it was open")
        self.descriptors = [now for now in again if now is not None]

    def _say(self, descriptors: list[DiskDescriptor]) -> None:
        for disk, said in zip(self.disks, descriptors, strict=True):
            disk.put_document(self.name + SUFFIX, said.to_json())
        self.descriptors = descriptors

    def close(self) -> None:
        """Close all parts."""
        for part in self.parts:
            part.close()


def _half_made(found: Sequence[FoundDescriptor]) -> bool:
    """Return whether a file was being made when a process died: nothing has been written to it."""
    said = [each.descriptor for each in found if each.descriptor is not None]
    return 0 < len(said) < len(found) and all(each.closed and not each.generation for each in said)


def removed(name: str, disks: Sequence[Disk]) -> None:
    """Remove a striped file, the descriptors first: what is left of a removal cut short is none."""
    for disk in disks:
        disk.remove(name + SUFFIX)
    for disk in disks:
        disk.remove(name)
