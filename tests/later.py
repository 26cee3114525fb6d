"""Modules that take long to import, imported where they are first used: most workers run none of their tests."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Later:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)
