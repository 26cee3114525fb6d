"""What a run really reads, writes and holds, counted where it happens.

/batch            memory.max 64 GiB ─┐
      /batch/job7     memory.max  8 GiB  ├─► the least that one of them leaves
        /…/step0      no limit           ┘

Pages of files that nobody has used of late count as left: the kernel takes them back before it kills anybody.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from types import TracebackType
from typing import Any, NamedTuple


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
    """Whether a hierarchy of these controllers tells of memory; that of version 2 names none."""
    return not names or "memory" in names.split(",")


def _parsed(mount: str) -> tuple[str, str, str, str]:
    """The root, place, type and options of a file system, from a line of ``mountinfo``."""
    fields, _, rest = mount.partition(" - ")
    kind, _, options = rest.split(" ", 2)
    return fields.split(" ")[3], fields.split(" ")[4], kind, options


def _upwards(path: str, root: str) -> list[PurePosixPath]:
    """A group and those around it, below the mount of a hierarchy whose ``root`` is what is mounted."""
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
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return b"".join(iter(lambda: os.read(file, 2**16), b"")).decode(errors="surrogateescape")
        finally:
            os.close(file)
    return None


COUNTERS = (
    "read_requests",
    "read_bytes",
    "index_requests",
    "decoded_bytes",
    "write_requests",
    "written_bytes",
    "encoded_bytes",
    "skipped_chunks",
    "missing_chunks",
    "warned_chunks",
    "copied_objects",
    "copied_bytes",
    "messages",
    "sent_bytes",
)

MOST_SPANS = 2**14
"""Tasks whose beginnings and ends are kept."""


class Span(NamedTuple):
    """When a task was done."""

    phase: str
    """What it did: its verb."""
    args: tuple[Any, ...]
    """Of what: its plain arguments, the last of them its rank."""
    start: float
    """Seconds since 1970 at its beginning."""
    stop: float
    """The same at its end."""


class Meter:
    """Counters that all ranks of a run share."""

    read_requests: int = 0
    """Calls to the store, or ``pread``\\ s, that read chunks."""
    read_bytes: int = 0
    """Bytes that those calls brought."""
    index_requests: int = 0
    """Calls that read where chunks lie in a shard."""
    decoded_bytes: int = 0
    """Bytes that came out of codecs."""
    write_requests: int = 0
    """Chunks written."""
    written_bytes: int = 0
    """Bytes of those chunks, as stored."""
    encoded_bytes: int = 0
    """Bytes that went into codecs."""
    skipped_chunks: int = 0
    """Chunks that hold the fill value only, and so are not stored."""
    missing_chunks: int = 0
    """Chunks of sources that were not there, each time that one was wanted, and were taken for the fill value."""
    warned_chunks: int = 0
    """Those of them that a person wants to be warned of."""
    copied_objects: int = 0
    """Stored objects of a group's other arrays that were copied as they are."""
    copied_bytes: int = 0
    """Bytes of those objects."""
    messages: int = 0
    """Pieces of work handed from one rank to another."""
    sent_bytes: int = 0
    """Bytes of the messages between workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[str, float] = {}
        """Seconds that all ranks together spent in each phase."""
        self.spans: deque[Span] = deque(maxlen=MOST_SPANS)
        """What was done when: the last `MOST_SPANS` tasks."""
        self._warned = False

    def add(self, **counts: int) -> None:
        with self._lock:
            for name, count in counts.items():
                setattr(self, name, getattr(self, name) + count)

    @contextmanager
    def phase(self, name: str, args: tuple[Any, ...] = ()) -> Iterator[None]:
        """Add the time spent inside to ``seconds[name]``, and its beginning and end to ``spans``."""
        start, begun = time.perf_counter(), time.time()
        try:
            yield
        finally:
            with self._lock:
                seconds = time.perf_counter() - start
                self.seconds[name] = self.seconds.get(name, 0.0) + seconds
                self.spans.append(Span(name, args, begun, begun + seconds))

    def take(self) -> dict[str, Any]:
        """Return what has been counted since the last time, by name; the counters begin anew."""
        with self._lock:
            told: dict[str, Any] = {name: getattr(self, name) for name in COUNTERS if getattr(self, name)}
            told["seconds"], self.seconds = self.seconds, {}
            told["spans"] = list(map(tuple, self.spans))
            self.spans.clear()
            for name in COUNTERS:
                setattr(self, name, 0)
        return told

    def to_warn(self) -> int:
        """Chunks to warn of, the first time that there are any; 0 from then on."""
        if not self.warned_chunks:
            return 0
        with self._lock:
            count = 0 if self._warned else self.warned_chunks
            self._warned = self._warned or count > 0
        return count

    def put(self, told: Mapping[str, Any]) -> None:
        """Add what another meter has counted: `take` gave it."""
        self.add(**{name: told[name] for name in COUNTERS if name in told})
        with self._lock:
            for phase, seconds in told["seconds"].items():
                self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
            self.spans.extend(Span(name, tuple(args), start, stop) for name, args, start, stop in told.get("spans", ()))

    def __reduce__(self) -> tuple[type[Meter], tuple[()]]:
        return Meter, ()  # another process counts for itself: what was counted here is told from here

    def __repr__(self) -> str:
        return f"Meter({', '.join(f'{name}={getattr(self, name)}' for name in COUNTERS)})"


def anonymous_bytes() -> int:
    """Resident memory of this process that no file backs, in bytes; 0 where the system does not tell."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        return sum(int(line.split()[1]) * 1024 for line in status if line.startswith(("RssAnon", "RssShmem")))
    return 0


class MemoryWatch:
    """The most anonymous memory that this process holds above its level at the start, sampled by a thread."""

    def __init__(self, interval: float = 0.005) -> None:
        self.interval = interval
        """Seconds between two samples."""
        self.peak_bytes = 0
        """Bytes above the level at the start."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _sample(self) -> None:
        self.peak_bytes = max(self.peak_bytes, anonymous_bytes() - self._idle)

    def _watch(self) -> None:
        while not self._stop.wait(self.interval):
            self._sample()

    def __enter__(self) -> MemoryWatch:
        self._idle = anonymous_bytes()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._sample()


def available_bytes() -> int:
    """Bytes of memory that this process may still take: free on the machine, and left by its control groups."""
    limits = [_meminfo_available(), control_group_left()]
    return min(limit for limit in limits if limit is not None)


def _meminfo_available() -> int:
    with suppress(OSError), open("/proc/meminfo", encoding="ascii") as info:
        for line in info:
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def done_share(made: int, expected: float) -> float:
    """The share of the expected requests that have been made: what each brings is not known where data is coded."""
    return min(made / expected, 1.0) if expected >= 1 else 1.0
