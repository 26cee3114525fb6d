"""What is said in words of others: documents of JSON, settings of Zarr, headers of Dask. Anything else is a class."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]
"""What a file in JSON holds, or is to hold: a journal's plan, a descriptor, a record; metadata of Zarr."""
Settings = dict[str, Any]
"""Keyword arguments of `zarr.create_array`, or of a store: how it is made."""
Header = dict[str, Any]
"""What goes before the frames of a message between workers of Dask."""
