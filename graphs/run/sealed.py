"""Values that travel closed to the process that uses them."""

from __future__ import annotations

import pickle
import threading
from typing import Any, Generic, TypeVar

import cloudpickle

Value = TypeVar("Value")


class Sealed(Generic[Value]):
    """A value that is opened where it is used: the scheduler, which it passes on its way, may not see its store."""

    def __init__(self, value: Value) -> None:
        self._value: Value = value
        self._closed: bytes | None = None
        self._opening = threading.Lock()

    def __reduce__(self) -> Any:
        return _come, (cloudpickle.dumps(self._value) if self._closed is None else self._closed,)

    @property
    def value(self) -> Value:
        with self._opening:
            if self._closed is not None:
                self._value, self._closed = pickle.loads(self._closed), None  # our own bytes
            return self._value


def _come(closed: bytes) -> Sealed[Any]:
    """Return a value as it came; a function by itself, for cloudpickle would carry the code of a class's along."""
    there: Sealed[Any] = Sealed(None)
    there._closed = closed
    return there
