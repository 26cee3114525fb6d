"""External formats: JSON documents, Zarr settings and Dask headers. Anything else is a class."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from oocarrays.errors import InputError
from oocarrays.mapping.given import from_home

Document = dict[str, Any]
"""Content of a JSON file: a journal's plan, a descriptor, a record, or Zarr metadata."""
Settings = dict[str, Any]
"""Keyword arguments of `zarr.create_array`, or of a store."""
Header = dict[str, Any]
"""Header before the frames of a message between Dask workers."""


def checked_path(path: Any) -> str:
    """Return the path of a document as text, or raise if it is no path."""
    name = os.fspath(from_home(path)) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or "\0" in name:
        raise InputError(f"{path!r} is no path of a file")
    return name


def save_text(path: Any, text: str, what: str) -> None:
    """Write text to a file, or raise if that fails."""
    name = checked_path(path)
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {what} to {name}: {error.strerror}") from None
