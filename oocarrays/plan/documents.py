"""What is said in words of others: documents of JSON, settings of Zarr, headers of Dask. Anything else is a class."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from oocarrays.errors import InputError
from oocarrays.mapping.given import from_home

Document = dict[str, Any]
"""What a file in JSON holds, or is to hold: a journal's plan, a descriptor, a record; metadata of Zarr."""
Settings = dict[str, Any]
"""Keyword arguments of `zarr.create_array`, or of a store: how it is made."""
Header = dict[str, Any]
"""What goes before the frames of a message between workers of Dask."""


def checked_path(path: Any) -> str:
    """Return where a document is, as text."""
    name = os.fspath(from_home(path)) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or "\0" in name:
        raise InputError(f"{path!r} is no path of a file")
    return name


def save_text(path: Any, text: str, what: str) -> None:
    """Write a file of text."""
    name = checked_path(path)
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {what} to {name}: {error.strerror}") from None
