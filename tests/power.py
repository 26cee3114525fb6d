"""A disk that may lose power at any moment: what runs do to it is kept in order, and what it may hold then is laid out.

    name ─┬─ old ── new ── newer        a name in a folder, or the bytes of a file: what it has been, in order
          │         ▲
          └─ synced ┘                   what is on the device: from there on any may be what is left, each for itself

What POSIX promises, and no more: a file's bytes are there when it was synced, a name when its folder was; until then
each name and each file may be as at any time since, and of bytes that were not synced any part may be missing or zero.
The folder is looked at before and after every call that changes names or syncs: there is no need to know who writes.
"""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.profiles import is_nightly
from tests.seams import JOURNAL_FOLDER, replace_step

CHANGES = ("replace", "rename", "link", "unlink", "mkdir", "rmdir")
Node = int
"""A file or a folder, whatever its names."""
Place = tuple[Node, str | None]
"""A name in a folder; or, without one, the bytes of a file."""
Value = Node | bytes | None
"""What a name leads to, None where it leads nowhere; or bytes."""
Way = Callable[[str, bool, list[Value]], Value]
"""Chooses what is left at a path, of its name (True) or of a file's bytes, among what may be, the oldest first."""
State = dict[str, bytes | None]
"""Files with their bytes, and folders, by their paths."""


@dataclass(frozen=True)
class Moment:
    """When power may be lost: just before a sync has ended."""

    now: int
    """The newest version of anything then."""
    synced: dict[Place, int]
    """The version that is on the device at least."""


@dataclass
class Disk:
    """What a folder holds and has held."""

    root: Path
    versions: dict[Place, list[tuple[int, Value]]] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
    _kept: dict[tuple[int, int], Node] = field(default_factory=dict)
    _open: list[int] = field(default_factory=list)
    _stamps: dict[Node, tuple[int, int]] = field(default_factory=dict)
    _synced: dict[Place, int] = field(default_factory=dict)
    _clock: int = 0
    _mutex: Any = field(default_factory=threading.RLock)

    # ------------------------------------------------------------------ looking

    def look(self) -> int:
        """Keep what has changed; returns when that was."""
        with self._mutex:
            self._clock += 1
            self._look_into(str(self.root))
            return self._clock

    def _look_into(self, folder: str) -> Node:
        node, there = self._node(folder), {}
        for entry in list(os.scandir(folder)):
            with suppress(FileNotFoundError):  # another thread was faster
                there[entry.name] = self._look_into(entry.path) if entry.is_dir() else self._look_at(entry.path)
        known = {name for at, name in self.versions if at == node and name is not None}
        for name in known | set(there):
            self._set((node, name), there.get(name))
        return node

    def _look_at(self, path: str) -> Node:
        node, status = self._node(path), os.stat(path)
        if self._stamps.get(node) != (stamp := (status.st_mtime_ns, status.st_size)) or status.st_size < 4096:
            self._stamps[node] = stamp
            self._set((node, None), Path(path).read_bytes())
        return node

    def _node(self, path: str) -> Node:
        """Its number, which is never given again, for it stays open."""
        status = os.stat(path)
        inode = status.st_dev, status.st_ino
        if inode not in self._kept:
            self._open.append(os.open(path, os.O_RDONLY))
            self._kept[inode] = len(self._kept)
        return self._kept[inode]

    def _set(self, place: Place, value: Value) -> None:
        past = self.versions.setdefault(place, [])
        if (past[-1][1] if past else None) != value:
            past.append((self._clock, value))

    # ------------------------------------------------------------------ what happens to it

    def sync(self, file: int | None) -> None:
        """Put an open file or folder on the device; without one, all that there is."""
        began = self.look()
        with self._mutex:
            self.lose_power()
            status = file is not None and os.fstat(file)
            node = self._kept.get((status.st_dev, status.st_ino)) if status else None
            for place in self.versions:
                if file is None or place[0] == node:
                    self._synced[place] = began

    def lose_power(self) -> None:
        """Keep that power may be lost now."""
        self.moments.append(Moment(self.look(), dict(self._synced)))

    def close(self) -> None:
        """Close what was kept open."""
        for file in self._open:
            os.close(file)

    # ------------------------------------------------------------------ what may be left

    def states(self, seed: int, draws: int) -> Iterator[State]:
        """Yield the states that may be left at each moment, without repetition: in the worst ways known, and at random.

        By day, each moment has one of the two worst ways and every second one another way, in turn; one in three has
        draws. The last moments have both of the worst.
        """
        seen: set[Any] = set()
        for number, moment in enumerate(self.moments):
            rng = random.Random(f"{seed}-{number}")
            ways = [*WORST, *[partial(_drawn, rng, 0.0), partial(_drawn, rng, 0.9)] * draws]
            if not is_nightly():
                drawn = ways[len(WORST) :] if number % 3 == 0 else []
                worst = WORST[:2] if len(self.moments) - number <= 3 else [WORST[number % 2]]
                others = [WORST[2 + number // 2 % len(WORST[2:])]] if number % 2 else []
                ways = [*worst, *others, *drawn]
            for way in ways:
                state = dict(self._state(0, "", moment, way))
                key = frozenset(state.items())
                if key not in seen:
                    seen.add(key)
                    yield state

    def _state(self, folder: Node, path: str, moment: Moment, way: Way) -> Iterator[tuple[str, bytes | None]]:
        for place in list(self.versions):
            if place[0] != folder or place[1] is None:
                continue
            name = f"{path}{place[1]}"
            child = way(name, True, self._may(place, moment))
            if not isinstance(child, int):
                continue
            if (child, None) in self.versions:
                yield name, way(name, False, self._may((child, None), moment))  # type: ignore[misc]
            else:
                yield name, None
                yield from self._state(child, f"{name}/", moment, way)

    def _may(self, place: Place, moment: Moment) -> list[Value]:
        """What a place may hold, the oldest first."""
        past, synced = self.versions[place], moment.synced.get(place, 0)
        before = [value for when, value in past if when <= synced]
        after = [value for when, value in past if synced < when <= moment.now]
        old: Value = before[-1] if before else (None if place[1] is not None else b"")
        torn = [bad for new in after if isinstance(new, bytes) for bad in (b"", bytes(len(new)), new[: len(new) // 2])]
        return [old, *torn, *after]

    def restore(self, state: State) -> None:
        """Have the folder hold what was left."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        for path, data in state.items():
            if data is None:
                (self.root / path).mkdir()
            else:
                (self.root / path).write_bytes(data)


def _drawn(rng: random.Random, newest: float, path: str, named: bool, may: list[Value]) -> Value:
    """What a place holds, by lot: the newest as often as that, or any."""
    return may[-1] if rng.random() < newest else rng.choice(may)


def _chunks_lost(path: str, named: bool, may: list[Value]) -> Value:
    """All that says what there is, and chunks as long as they were, of zeros where they may be."""
    if named or _is_document(path):
        return may[-1]
    return next((bad for bad in may if bad and bad == bytes(len(may[-1]))), may[-1])  # type: ignore[arg-type]


def _old_words(path: str, named: bool, may: list[Value]) -> Value:
    """All that says what there is as it was, and chunks as they are, or gone."""
    return may[-1] if _is_chunk(path) else may[0]


def _is_chunk(path: str) -> bool:
    """Whether a path is a chunk's, or a folder's of them, in either format; no array may be named c."""
    *_, name = folders = path.split("/")
    return "c" in folders or name.replace(".", "").isdigit()


def _is_document(path: str) -> bool:
    """Whether a file says what others are: metadata, or something of a journal."""
    *folders, name = path.split("/")
    return name.startswith((".z", "zarr.json")) or JOURNAL_FOLDER in folders


WORST: tuple[Way, ...] = (
    _chunks_lost,
    _old_words,
    lambda path, named, may: may[0],
    lambda path, named, may: may[-1],
    lambda path, named, may: may[-1] if named else may[0],
    lambda path, named, may: may[0] if named else may[-1],
)
"""Chunks lost that are said to be there, chunks gone of what was, none of it, all, names only, bytes only."""


@contextmanager
def watched(root: Path, *, whole: bool) -> Iterator[Disk]:
    """A folder whose changes are kept; ``whole``: all of its file system can be synced at once."""
    disk = Disk(root)
    disk.sync(None)
    disk.moments.clear()
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, _looking(disk, getattr(os, name)))
        for name in ("fsync", "fdatasync"):
            patch.setattr(os, name, disk.sync)
        replace_step(patch, "can sync device", lambda folder: whole)
        replace_step(patch, "sync device", lambda folder: disk.sync(None))
        yield disk
        disk.lose_power()
    disk.close()


def _looking(disk: Disk, call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*args: Any, **options: Any) -> Any:
        with disk._mutex:
            disk.look()
            result = call(*args, **options)
            disk.look()
            return result

    return called
