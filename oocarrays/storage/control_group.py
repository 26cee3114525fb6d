"""The memory that control groups leave a process: what batch systems and containers bound it by.

    /batch            memory.max 64 GiB ─┐
      /batch/job7     memory.max  8 GiB  ├─► the least that one of them leaves
        /…/step0      no limit           ┘

Pages of files that nobody has used of late count as left: the kernel takes them back before it kills anybody.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlFiles:
    """The files in which one version of control groups tells of memory."""

    limits: tuple[str, ...]
    """Files of the bytes that the group may hold; the kernel kills, or slows, what asks for more."""
    usage: str
    """The file of the bytes that it holds."""
    idle: str
    """The name, in ``memory.stat``, of the bytes of files that can be taken back."""


VERSIONS = {
    "cgroup2": ControlFiles(limits=("memory.max", "memory.high"), usage="memory.current", idle="inactive_file"),
    "cgroup": ControlFiles(
        limits=("memory.limit_in_bytes",), usage="memory.usage_in_bytes", idle="total_inactive_file"
    ),
}
"""By the type of the file system that shows them."""


def control_group_left(proc: str = "/proc/self") -> int | None:
    """Bytes that the control groups of this process leave it; None where nothing bounds it."""
    groups = _text(f"{proc}/cgroup")
    left = [_left(folder, files) for folder, files in _folders(proc, groups)] if groups else []
    return min((each for each in left if each is not None), default=None)


@lru_cache(1)
def _folders(proc: str, groups: str) -> tuple[tuple[str, ControlFiles], ...]:
    """The folder of each group that the process is in: looked for anew where it has been moved to others."""
    return tuple(_groups(_text(f"{proc}/mountinfo") or "", groups))


def _groups(mountinfo: str, groups: str) -> Iterator[tuple[str, ControlFiles]]:
    """The same, each hierarchy's innermost first, from what the kernel tells of mounts and of the process."""
    mounts = mountinfo.splitlines()
    entries = [line.split(":", 2) for line in groups.splitlines()]
    mine = {"cgroup" if names else "cgroup2": path for _, names, path in entries if _tells_memory(names)}
    for mount in mounts:
        root, point, kind, options = _parsed(mount)
        if kind in mine and (kind == "cgroup2" or _tells_memory(options)):
            for below in _upwards(mine[kind], root):
                yield f"{point}/{below}", VERSIONS[kind]


def _tells_memory(names: str) -> bool:
    """Whether a hierarchy of these controllers tells of memory; that of version 2 names none.

    >>> _tells_memory(""), _tells_memory("cpu,memory"), _tells_memory("cpuacct")
    (True, True, False)
    """
    return not names or "memory" in names.split(",")


def _parsed(mount: str) -> tuple[str, str, str, str]:
    """The root, place, type and options of a file system, from a line of ``mountinfo``.

    >>> _parsed("35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory")
    ('/', '/sys/fs/cgroup/memory', 'cgroup', 'rw,memory')
    """
    fields, _, rest = mount.partition(" - ")
    kind, _, options = rest.split(" ", 2)
    return fields.split(" ")[3], fields.split(" ")[4], kind, options


def _upwards(path: str, root: str) -> list[PurePosixPath]:
    """A group and those around it, below the mount of a hierarchy whose ``root`` is what is mounted.

    >>> [str(each) for each in _upwards("/a/b", "/")], [str(each) for each in _upwards("/../x", "/docker/1")]
    (['a/b', 'a', '.'], ['.'])
    """
    inside = PurePosixPath(path)
    below = inside.relative_to(root) if inside.is_relative_to(root) and ".." not in inside.parts else PurePosixPath()
    return [below, *below.parents]


def _left(folder: str, files: ControlFiles) -> int | None:
    """Bytes that one group leaves; None where it has no limit."""
    limits = [limit for limit in (_number(f"{folder}/{name}") for name in files.limits) if limit is not None]
    if not limits or min(limits) >= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        return None
    used = _number(f"{folder}/{files.usage}")
    if used is None:
        return None
    return max(min(limits) - used + min(_idle(folder, files.idle), used), 0)


def _number(file: str) -> int | None:
    """The number in a file; None for "max", and where there is no such file."""
    try:
        return int(_text(file) or "")
    except ValueError:
        return None


def _idle(folder: str, name: str) -> int:
    try:
        stat = dict(line.split(" ", 1) for line in (_text(f"{folder}/memory.stat") or "").splitlines())
        return int(stat.get(name, 0))
    except ValueError:
        return 0


def _text(path: str) -> str | None:
    """Read a short file of the kernel's, as cheaply as can be; None where it tells nothing."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return b"".join(iter(lambda: os.read(file, 2**16), b"")).decode(errors="surrogateescape")
    except OSError:
        return None
    finally:
        os.close(file)
