"""Measured reads, writes and memory of a run.

    /batch            memory.max 64 GiB ─┐
      /batch/job7     memory.max  8 GiB  ├─► the least that one of them leaves
        /…/step0      no limit           ┘

The limit with the least remaining memory applies. Inactive page-cache bytes count as available: the kernel reclaims
them before it kills a process.

A user's meter counts the reads and writes inside a ``with`` block:

    with metered() as m:        m ◄── the meter of each a[key], a.read, a.write, slab, prefetch requested inside
        a[key]
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache, wraps
from pathlib import PurePosixPath
from pkgutil import resolve_name
from types import TracebackType
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar

ControlFiles = tuple[tuple[str, ...], str, str]
"""Files of a group's limits and of its memory, in bytes; key of its reclaimable bytes in ``memory.stat``."""


def control_group_left(proc: str = "/proc/self") -> int | None:
    """Return the bytes that the control groups of this process leave available; None without a limit."""
    groups = _text(f"{proc}/cgroup")
    left = [_left(folder, *files) for folder, files in _folders(proc, groups)] if groups else []
    return min((each for each in left if each is not None), default=None)


@lru_cache(1)
def _folders(proc: str, groups: str) -> tuple[tuple[str, ControlFiles], ...]:
    """Return the folder of each control group of the process; a change of ``groups`` invalidates the cache."""
    return tuple(_groups(_text(f"{proc}/mountinfo") or "", groups))


def _groups(mountinfo: str, groups: str) -> Iterator[tuple[str, ControlFiles]]:
    """Yield the control-group folders, innermost first within each hierarchy."""
    versions = {
        "cgroup2": (("memory.max", "memory.high"), "memory.current", "inactive_file"),
        "cgroup": (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
    }
    entries = [line.split(":", 2) for line in groups.splitlines()]
    mine = {"cgroup" if names else "cgroup2": path for _, names, path in entries if _tells_memory(names)}
    for mount in mountinfo.splitlines():
        root, point, kind, options = _parsed(mount)
        if kind in mine and (kind == "cgroup2" or _tells_memory(options)):
            for below in _upwards(mine[kind], root):
                yield f"{point}/{below}", versions[kind]


def _tells_memory(names: str) -> bool:
    """Return whether a hierarchy with these controllers accounts for memory; version 2 lists no controllers."""
    return not names or "memory" in names.split(",")


def _parsed(mount: str) -> tuple[str, str, str, str]:
    """Return the root, mount point, type and options from a line of ``mountinfo``."""
    fields, _, rest = mount.partition(" - ")
    kind, _, options = rest.split(" ", 2)
    return fields.split(" ")[3], fields.split(" ")[4], kind, options


def _upwards(path: str, root: str) -> list[PurePosixPath]:
    """Return a group and its parents, relative to the mount of ``root``."""
    inside = PurePosixPath(path)
    below = inside.relative_to(root) if inside.is_relative_to(root) and ".." not in inside.parts else PurePosixPath()
    return [below, *below.parents]


def _left(folder: str, names: tuple[str, ...], usage: str, idle: str) -> int | None:
    """Return the bytes that one group leaves available; None without a limit."""
    limits = [limit for limit in (_number(f"{folder}/{name}") for name in names) if limit is not None]
    if not limits or min(limits) >= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"):
        return None
    used = _number(f"{folder}/{usage}")
    if used is None:
        return None
    return max(min(limits) - used + min(_idle(folder, idle), used), 0)


def _number(file: str) -> int | None:
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
    """Read a short kernel file with unbuffered reads; None if it cannot be read."""
    with suppress(OSError):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return b"".join(iter(lambda: os.read(file, 2**16), b"")).decode(errors="surrogateescape")
        finally:
            os.close(file)
    return None


class Span(NamedTuple):
    """Start and end of one task."""

    phase: str
    """Phase name."""
    args: tuple[Any, ...]
    """Plain task arguments, the rank last."""
    start: float
    """Start, in seconds since 1970."""
    stop: float
    """End, in seconds since 1970."""


class Meter:
    """Counters shared by all ranks of a run."""

    read_requests: int = 0
    """Store calls, or ``pread``\\ s, that read chunks."""
    read_bytes: int = 0
    """Bytes returned by those calls."""
    index_requests: int = 0
    """Calls that read shard indexes."""
    decoded_bytes: int = 0
    """Bytes produced by decoding."""
    write_requests: int = 0
    """Chunks written."""
    written_bytes: int = 0
    """Stored bytes of those chunks."""
    encoded_bytes: int = 0
    """Bytes passed to encoding."""
    skipped_chunks: int = 0
    """Chunks omitted because they hold only the fill value."""
    missing_chunks: int = 0
    """Reads of absent source chunks, replaced by the fill value."""
    warned_chunks: int = 0
    """Absent source chunks that call for a warning."""
    copied_objects: int = 0
    """Stored objects of the group's other arrays that were copied unchanged."""
    copied_bytes: int = 0
    """Bytes of those objects."""
    messages: int = 0
    """Pieces of work sent from one rank to another."""
    sent_bytes: int = 0
    """Bytes of messages between workers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seconds: dict[str, float] = {}
        """Seconds spent in each phase, summed over ranks."""
        self.spans: deque[Span] = deque(maxlen=2**14)
        """Start and end of the last 16384 tasks."""
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
        """Return the counts since the last call, by name, and reset the counters."""
        with self._lock:
            told: dict[str, Any] = {name: getattr(self, name) for name in COUNTERS if getattr(self, name)}
            told["seconds"], self.seconds = self.seconds, {}
            told["spans"] = list(map(tuple, self.spans))
            self.spans.clear()
            for name in COUNTERS:
                setattr(self, name, 0)
        return told

    def to_warn(self) -> int:
        """Return the number of chunks to warn of at the first nonzero call; 0 afterwards."""
        if not self.warned_chunks:
            return 0
        with self._lock:
            count = 0 if self._warned else self.warned_chunks
            self._warned = self._warned or count > 0
        return count

    def put(self, told: Mapping[str, Any]) -> None:
        """Add the counts that `take` of another meter returned."""
        self.add(**{name: told[name] for name in COUNTERS if name in told})
        with self._lock:
            for phase, seconds in told["seconds"].items():
                self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
            self.spans.extend(Span(name, tuple(args), start, stop) for name, args, start, stop in told.get("spans", ()))

    def __reduce__(self) -> tuple[type[Meter], tuple[()]]:
        return Meter, ()  # another process has its own counts

    def __repr__(self) -> str:
        return f"Meter({', '.join(f'{name}={getattr(self, name)}' for name in COUNTERS)})"

    def _repr_html_(self) -> str:
        rows = [(name.replace("_", " "), str(getattr(self, name))) for name in COUNTERS]
        html: str = resolve_name("oocarrays.show.notebook:rows_html")(rows, title="oocarrays.Meter")  # a layer above
        return html


COUNTERS = tuple(Meter.__annotations__)
"""Names of the counters."""


def anonymous_bytes() -> int:
    """Return the resident memory of this process that no file backs, in bytes; 0 if unavailable."""
    with suppress(OSError), open("/proc/self/status", encoding="ascii") as status:
        return sum(int(line.split()[1]) * 1024 for line in status if line.startswith(("RssAnon", "RssShmem")))
    return 0


class MemoryWatch:
    """Peak anonymous memory of this process above its level at the start, sampled by a thread."""

    def __init__(self, interval: float = 0.005) -> None:
        self.interval = interval
        """Seconds between samples."""
        self.peak_bytes = 0
        """Peak, in bytes above the level at the start."""
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
    """Return the bytes this process may still allocate: the least of free memory and control-group limits."""
    limits = [_meminfo_available(), control_group_left()]
    return min(limit for limit in limits if limit is not None)


def _meminfo_available() -> int:
    with suppress(OSError), open("/proc/meminfo", encoding="ascii") as info:
        for line in info:
            if line.startswith("MemAvailable"):
                return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


class Expected(NamedTuple):
    """Requests and bytes that a run is expected to read and write."""

    read_requests: float = 0.0
    """Requests for reading."""
    read_bytes: float = 0.0
    """Bytes to read."""
    write_requests: float = 0.0
    """Chunks to write."""
    written_bytes: float = 0.0
    """Bytes to write."""

    @property
    def nbytes(self) -> float:
        """Bytes to read and to write."""
        return self.read_bytes + self.written_bytes

    def done(self, reads: int, writes: int) -> float:
        """Return the bytes of some requests and chunks; with codecs, the bytes of each are not known in advance."""
        read = min(reads / self.read_requests, 1.0) if self.read_requests >= 1 else 1.0
        written = min(writes / self.write_requests, 1.0) if self.write_requests >= 1 else 1.0
        return read * self.read_bytes + written * self.written_bytes


# ---------------------------------------------------------------------- meters of users and access hooks


Watcher = Callable[..., None]
"""Callback with an array file, its section along each axis, whether it is written, and seconds. A fifth argument, if
present, is the number of ranks served by one read."""
WATCHERS: list[Watcher] = []
"""Access hooks."""
_TOLD_ABOVE = ContextVar("told above", default=False)
Rest = ParamSpec("Rest")
Answer = TypeVar("Answer")
Call = Callable[Concatenate[Any, Any, Rest], Answer]


def watched(*, writes: bool) -> Callable[[Call[Rest, Answer]], Call[Rest, Answer]]:
    """Report each call of a function of a file and a section to the access hooks."""

    def with_watch(function: Call[Rest, Answer]) -> Call[Rest, Answer]:
        @wraps(function)
        def called(file: Any, axes: Any, /, *args: Rest.args, **how: Rest.kwargs) -> Answer:
            if not WATCHERS or _TOLD_ABOVE.get():
                return function(file, axes, *args, **how)
            begun = time.perf_counter()
            answer = function(file, axes, *args, **how)
            for watcher in tuple(WATCHERS) if answer is not None else ():  # None: the function did not handle the call
                watcher(file, axes, writes, time.perf_counter() - begun)
            return answer

        return called

    return with_watch


@contextmanager
def watched_for(file: Any, axes: Any, ranks: int) -> Iterator[None]:
    """Report this part to the access hooks; suppress reports for the reads made inside it."""
    begun, token = time.perf_counter(), _TOLD_ABOVE.set(True)
    try:
        yield
    finally:
        _TOLD_ABOVE.reset(token)
    for watcher in tuple(WATCHERS):
        watcher(file, axes, False, time.perf_counter() - begun, ranks)


_HEARERS: ContextVar[tuple[Meter, ...]] = ContextVar("oocarrays meters", default=())


class _Heard(Meter):
    """Meter that forwards its counts to others."""

    def __init__(self, hearers: tuple[Meter, ...]) -> None:
        super().__init__()
        self._hearers = hearers

    def add(self, **counts: int) -> None:
        super().add(**counts)
        for meter in self._hearers:
            meter.add(**counts)


@contextmanager
def metered() -> Iterator[Meter]:
    """Count the requests and bytes of accesses to opened arrays inside a ``with`` block.

    Accesses of this thread count: ``a[key]``, ``a.read``, ``a.write``, ``a.slabs``, ``a.prefetch``, for local array
    files too. Jobs, lazy arrays and distributed arrays have their own ``.meter`` and are not counted here.

    Yields
    ------
    Meter
        ``read_requests``, ``read_bytes`` (as stored), ``decoded_bytes``, ``write_requests``, ``written_bytes`` and
        others. Blocks may be nested; each counts every access inside it.

    Examples
    --------
    >>> import numpy as np, oocarrays as ooc, zarr
    >>> z = zarr.create_array({}, data=np.arange(24.0).reshape(4, 6), chunks=(2, 6), compressors=None)
    >>> with ooc.advise.metered() as meter:
    ...     row = ooc.open_array(z)[3]
    >>> meter.read_requests, meter.read_bytes
    (1, 48)
    """
    meter = Meter()
    token = _HEARERS.set((*_HEARERS.get(), meter))
    try:
        yield meter
    finally:
        _HEARERS.reset(token)


def new_meter() -> Meter:
    """Return a meter of one access that forwards to the enclosing ``with`` blocks."""
    hearers = _HEARERS.get()
    return _Heard(hearers) if hearers else Meter()
