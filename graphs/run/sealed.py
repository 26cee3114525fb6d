"""Values that stay pickled until the process that uses them opens them."""

from __future__ import annotations

import pickle
import threading
from typing import Any, Generic, TypeVar

import cloudpickle

Value = TypeVar("Value")


class Sealed(Generic[Value]):
    """Value that is unpickled only where it is used: the scheduler, which forwards it, may not see its store."""

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
                self._value, self._closed = pickle.loads(self._closed), None  # bytes that this class has pickled
            return self._value


def _come(closed: bytes) -> Sealed[Any]:
    """Return a value still pickled; a module-level function, as cloudpickle would send a class's code along."""
    there: Sealed[Any] = Sealed(None)
    there._closed = closed
    return there
