"""Imports of the benchmarks' modules, which lie beside one another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def beside(folder: Path) -> Iterator[None]:
    """Let modules of a folder be imported by their names."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
