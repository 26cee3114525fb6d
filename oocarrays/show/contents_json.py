"""What is in an array or a group, for machines: plain values that JSON has."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from oocarrays.plan.documents import Document
from oocarrays.show.contents import ArrayFacts, GroupFacts


def as_json(facts: ArrayFacts | GroupFacts) -> Document:
    """Return the same as dicts, lists and plain values; numbers that JSON does not have are written as text.

    >>> import zarr
    >>> from oocarrays.show.contents import array_facts
    >>> as_json(array_facts(zarr.create_array({}, shape=(4,), dtype="f4")))["chunks"]
    [4]
    """
    kind = "group" if isinstance(facts, GroupFacts) else "array"
    return {"kind": kind, **{field.name: _plain(getattr(facts, field.name)) for field in fields(facts)}}


def _plain(value: Any) -> Any:
    if isinstance(value, ArrayFacts | GroupFacts):
        return as_json(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
