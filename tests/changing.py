"""Sources that change while they are read, at a named point: when a chunk of them is asked for that was not before."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import zarr
from zarr.core.buffer import BufferPrototype
from zarr.core.sync import _get_loop

import oocarrays as ooc
from tests.flat import flat
from tests.seams import replace_step, step
from tests.small import DATA

CHUNK = re.compile(r"(?:^|/)(?:c[/.])?(\d+(?:[/.]\d+)*)$")
"""The name of a chunk, or of a shard."""


_changes: ContextVar[bool] = ContextVar("changes", default=False)
"""Whether what runs here belongs to a change: it passes all gates. Zarr's loop and its threads take it over."""


class Gate:
    """The point at which so many chunks have been asked for: a thread then changes the source, and reading waits."""

    def __init__(self, place: str, after: int, change: Callable[[set[str]], None]) -> None:
        self.place, self.after, self.change = place, after, change
        self.asked: set[str] = set()
        self.changing: threading.Thread | None = None
        self._lock = threading.Lock()

    def pass_through(self, name: str) -> None:
        """Ask for a chunk by its path or key; wait while the source changes."""
        if self.place not in name or not CHUNK.search(name) or _changes.get():
            return
        with self._lock:
            self.asked.add(name)
            if len(self.asked) > self.after and self.changing is None:
                self.changing = threading.Thread(target=self._change, args=(set(self.asked),))
                self.changing.start()
                self.changing.join()

    def _change(self, asked: set[str]) -> None:
        _changes.set(True)
        self.change(asked)

    @property
    def reached(self) -> bool:
        """Whether the source has changed."""
        return self.changing is not None


_gates: list[Gate] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and _gates and isinstance(args[0], str | Path):
        for gate in tuple(_gates):
            gate.pass_through(str(args[0]))


sys.addaudithook(_audit)
# Zarr asks for files in threads of its loop, six on two cores: all of them at a gate would leave none for the change
_get_loop().call_soon_threadsafe(_get_loop().set_default_executor, ThreadPoolExecutor(64))
_get = step("get object")


async def _gated_get(self: Any, key: str, prototype: BufferPrototype, byte_range: Any = None) -> Any:
    for gate in tuple(_gates):
        gate.pass_through(f"{self.name}/{key}")
    return await _get(self, key, prototype, byte_range)


@contextmanager
def changes(gate: Gate) -> Iterator[Gate]:
    """Let files and objects that are asked for in this process pass a gate."""
    with pytest.MonkeyPatch.context() as patch:
        replace_step(patch, "get object", _gated_get)
        _gates.append(gate)
        try:
            yield gate
        finally:
            _gates.remove(gate)
            if gate.changing is not None:
                gate.changing.join()  # another thread may have ended the run


# ---------------------------------------------------------------------- verbs


def _sections(method: str) -> Callable[..., Any]:
    def read(source: Any, place: Callable[[Any], Any], how: Any) -> np.ndarray:
        parts = flat(ooc.ranks.read_sections, place(source), [np.s_[:48], np.s_[48:]], method=method, **how)
        return np.concatenate(parts.compute())

    return read


def _partitions(source: Any, place: Callable[[Any], Any], how: Any) -> np.ndarray:
    parts = ooc.ranks.partitions(place(source), "(block, *)", ranks=2, memory="64MiB", **how)
    return np.concatenate([part.local(rank).compute() for part in parts for rank in range(2)])


def _compare(source: Any, place: Callable[[Any], Any], how: Any) -> np.ndarray:
    array = place(source)
    same = zarr.create_array({}, shape=array.shape, chunks=(8, 80), dtype=array.dtype)
    assert not ooc.compare(array, same)
    return np.asarray(array[...])


def _reduce(source: Any, place: Callable[[Any], Any], how: Any) -> np.ndarray:
    array = place(source)
    flat(ooc.reduce, array, "sum", axis=0, **how)
    return np.asarray(array[...])


VERBS: dict[str, Callable[..., np.ndarray]] = {
    "read_sections, independent": _sections("independent"),
    "read_sections, two-phase": _sections("two-phase"),
    "partitions": _partitions,
    "distribute": lambda s, place, how: flat(ooc.ranks.distribute, place(s), "(block, *)", ranks=2, **how).compute(),
    "reduce": _reduce,
    "compare": _compare,
    "lazy rechunk": lambda s, place, how: ooc.rechunk(place(s).to_dask((8, 80)), chunks=(96, 10)).compute(),
    "lazy rechunk of from_zarr": lambda s, place, how: ooc.rechunk(
        da.from_zarr(place(s).zarr), chunks=(96, 10)
    ).compute(),
    "lazy rechunk, groups": lambda s, place, how: ooc.rechunk(place(s).to_dask((96, 10)), chunks=(8, 80)).compute(),
}
"""Planned reads without a target: each returns all elements."""


# ---------------------------------------------------------------------- on workers


def rewrite_at_gate(place: str, after: int) -> None:
    """Have this process write other elements to a local array, when it has asked for so many chunks."""

    def change(asked: set[str]) -> None:
        zarr.open_array(place, mode="r+")[...] = DATA + 1

    _gates.append(Gate(f"{place}/", after, change))


def forget_gates() -> None:
    """Let files that are asked for in this process pass."""
    _gates.clear()
