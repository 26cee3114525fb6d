"""Bounded caches of the most recently used values."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Thread-safe cache, bounded by the number of values or by the sum of their sizes; the newest value always fits."""

    def __init__(self, most: int, size: Callable[[V], int] | None = None) -> None:
        self._most, self._size = most, size
        self._kept: OrderedDict[K, V] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return Cache, (self._most, self._size)

    def get(self, key: K) -> V | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def keep(self, key: K, value: V) -> None:
        """Add or replace a value, evicting the least recently used ones."""
        with self._lock:
            self._drop(key)
            self._add(key, value)

    def first(self, key: K, value: V) -> V:
        """Return the cached value, or else add this one and return it."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                self._add(key, value)
            return value if found is None else found

    def drop(self, key: K) -> None:
        with self._lock:
            self._drop(key)

    def _add(self, key: K, value: V) -> None:
        self._kept[key] = value
        self._total += self._size(value) if self._size else 1
        while self._total > self._most and len(self._kept) > 1:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: K) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self._total -= self._size(old) if self._size else 1
