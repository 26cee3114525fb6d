"""What a run asks of stored arrays, recorded while it runs: by Zarr's own methods, and by ours.

z[key], z.oindex[key], …    ─┐
a[key], lazy arrays, jobs   ─┼─► the recordings that are under way in this process
the same on each worker     ─┘   which workers send back when the recording ends
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from types import FrameType
from typing import TYPE_CHECKING, Any

import zarr

from oocarrays.graphs.tracing.parts import TakenPart, as_ranges, asked
from oocarrays.graphs.tracing.seen import Seen
from oocarrays.storage.chunks.through_zarr import CountingStore
from oocarrays.storage.metered import WATCHERS

if TYPE_CHECKING:
    from distributed import Client

WAYS = ("basic", "orthogonal", "coordinate", "mask", "block")
"""The ways of reading and writing for which Zarr has methods of their own."""
GETTERS = ("getter", "getter_inline", "getter_nofancy")
"""The functions of ``dask.array.core`` by which Dask's arrays read; importing that takes a second."""
_RECORDED: list[Seen] = []
_LOCK = threading.Lock()
_ORIGINAL: dict[str, Callable[..., Any]] = {}


class Recording:
    """A recording of what this process asks for, and the workers of a cluster, from ``start`` to ``stop``.

    >>> z = zarr.create_array({}, shape=(8, 6), dtype="f4", chunks=(2, 6))
    >>> recording = Recording()
    >>> recording.start()
    >>> _ = z[2:5]
    >>> recording.stop()
    >>> [list(access.sections()) for access in recording.seen.accesses("a run")]
    [[Section(lower=(2, 0), upper=(5, 6))]]
    """

    def __init__(self, client: Client | None = None) -> None:
        self.seen = Seen()
        """What has been asked for."""
        self._client = client
        self._name = f"recording-{id(self)}-{os.getpid()}"

    def start(self) -> None:
        """Begin to record."""
        _begin(self.seen)
        if self._client is not None:
            self._client.run(_begin_there, self._name, os.getpid())

    def stop(self) -> None:
        """End it, and gather what the workers have recorded; a worker that is gone has taken its own with it."""
        _end(self.seen)
        if self._client is not None:
            for worker, told in self._client.run(_end_there, self._name, on_error="ignore").items():
                self.seen.put(told or (), worker)


_HERE: dict[str, Seen] = {}


def _begin_there(name: str, caller: int) -> None:
    """Begin to record on a worker, unless it is a thread of the process that asks."""
    if os.getpid() != caller and name not in _HERE:
        _HERE[name] = Seen()
        _begin(_HERE[name])


def _end_there(name: str) -> Any:
    seen = _HERE.pop(name, None)
    if seen is None:
        return None
    _end(seen)
    return seen.take()


def _begin(seen: Seen) -> None:
    with _LOCK:
        if not _RECORDED:
            _patch()
        _RECORDED.append(seen)


def _end(seen: Seen) -> None:
    with _LOCK:
        _RECORDED[:] = [each for each in _RECORDED if each is not seen]
        if not _RECORDED:
            _restore()


def _patch() -> None:
    """Let Zarr's methods tell what they are asked for; they do so only while somebody records."""
    for way in WAYS:
        for verb in ("get", "set"):
            name = f"{verb}_{way}_selection"
            _ORIGINAL[name] = getattr(zarr.Array, name)
            setattr(zarr.Array, name, _telling(_ORIGINAL[name], way, verb == "set"))
    WATCHERS.append(_hear)


def _restore() -> None:
    for name, method in _ORIGINAL.items():
        setattr(zarr.Array, name, method)
    _ORIGINAL.clear()
    WATCHERS.remove(_hear)


def _telling(method: Callable[..., Any], way: str, writes: bool) -> Callable[..., Any]:
    """Return a method of Zarr that tells what it is asked for."""

    @wraps(method)
    def tell(self: zarr.Array, selection: Any = ..., *args: Any, **how: Any) -> Any:
        if isinstance(self.store_path.store, CountingStore):  # ours, which tells for itself
            return method(self, selection, *args, **how)
        begun = time.perf_counter()
        answer = method(self, selection, *args, **how)
        seconds = time.perf_counter() - begun
        told: dict[str, Any] = {"seconds": seconds, "thread": threading.get_ident(), "cut": _is_for_dask()}
        for seen in tuple(_RECORDED):
            seen.add(self, asked(self, way, selection), writes=writes, **told)
        return answer

    return tell


def _is_for_dask() -> bool:
    """Return whether one of Dask's getters waits for this read: its tasks are cut as the array's chunks are."""
    frame: FrameType | None = sys._getframe(2)
    while frame and not (frame.f_code.co_name in GETTERS and frame.f_globals["__name__"] == "dask.array.core"):
        frame = frame.f_back
    return frame is not None


def _hear(file: Any, axes: Any, writes: bool, seconds: float, ranks: int | None = None) -> None:
    """Take what one of our own functions was asked for."""
    taken = [tuple(map(as_ranges, axes))] if all(len(each) for each in axes) else []
    part = TakenPart.whole(file.zarr, "oocarrays")
    told: dict[str, Any] = {"by": part.by, "seconds": seconds, "thread": threading.get_ident(), "ranks": ranks}
    for seen in tuple(_RECORDED):
        seen.add(part.array, taken, writes=writes, **told)
