"""External formats: JSON documents, Zarr settings and Dask headers. Anything else is a class.

The fields of a frozen dataclass define its JSON, so that a plan may gain some:

    RechunkPlan(passes=(Pass(…), …), …)   ◄──►   {"passes": [{…}, …], …}

Field metadata may mark a field as gained (optional in older journals), rename it in JSON, or map older values to
current ones. Otherwise reading is strict: a missing or unknown field, or a value of the wrong type, is an error with
its location. JSON has no infinities; they are written as text. A class with `to_number` and `from_number` is a number.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import Field, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from oocarrays.errors import InputError, JournalError

Document = dict[str, Any]
"""Content of a JSON file: a journal's plan, a descriptor, a record, or Zarr metadata."""
Settings = dict[str, Any]
"""Keyword arguments of `zarr.create_array`, or of a store."""
Header = dict[str, Any]
"""Header before the frames of a message between Dask workers."""


def checked_path(path: Any) -> str:
    """Return the path of a document as text, or raise if it is no path."""
    name = os.path.expanduser(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str) or "\0" in name:
        raise InputError(f"{path!r} is not the path of a file")
    return name


def save_text(path: Any, text: str, what: str) -> None:
    name = checked_path(path)
    try:
        Path(name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot write {what} to {name}: {error.strerror}") from None


LOST = {"Traffic": {"kept_bytes", "mapped_bytes"}, "Pass": {"whole"}}
"""Fields of older journals that are ignored because no run uses them any more."""


def written(value: Any) -> Any:
    """Return a value, or any frozen dataclass, as dicts, lists and plain values, which `read_as` accepts."""
    if hasattr(value, "to_number"):
        return value.to_number()
    if is_dataclass(value):
        return {key: written(getattr(value, field.name)) for key, field in _stored(value)}
    if isinstance(value, tuple):
        return [written(item) for item in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(float(value))
    if value is None or type(value) in (bool, int, str):
        return value
    raise TypeError(f"{value!r} of type {type(value).__name__} has no JSON")


def read_as(hint: Any, data: Any, where: str) -> Any:
    """Return the value of type ``hint`` that ``data`` represents; ``where`` is its location in errors."""
    origin = get_origin(hint)
    if hasattr(hint, "from_number"):
        return hint.from_number(read_as(int, data, where))
    if is_dataclass(hint):
        return _read_fields(hint, data, where)
    if origin is tuple:
        return _read_tuple(get_args(hint), data, where)
    if isinstance(hint, type) and issubclass(hint, tuple):  # with names for its items
        return hint(*_read_tuple(tuple(get_type_hints(hint).values()), data, where))
    if origin in (Union, UnionType):
        return _read_union(get_args(hint), data, where)
    if origin is Literal:
        fits = any(data == value and type(data) is type(value) for value in get_args(hint))
        _expect(fits, " or ".join(map(repr, get_args(hint))), data, where)
        return data
    if hint is float:
        fits = type(data) in (int, float) or (type(data) is str and data in ("inf", "-inf", "nan"))
        _expect(fits, "float", data, where)
        return float(data)
    if hint in (bool, int, str, NoneType):
        _expect(type(data) is hint, hint.__name__, data, where)
        return data
    raise TypeError(f"{where} is of type {hint}, which is not read from JSON")


def _expect(fits: bool, what: str, data: Any, where: str) -> None:
    if not fits:
        text = repr(data)
        raise JournalError(f"{where} is {text if len(text) <= 60 else f'{text[:57]}...'}, not {what}")


def _read_fields(kind: Any, data: Any, where: str) -> Any:
    _expect(type(data) is dict, f"the fields of a {kind.__name__}", data, where)
    hints = get_type_hints(kind)
    known = dict(_stored(kind))
    gained = {key for key, field in known.items() if field.metadata.get("gained")}
    if missing := sorted(known.keys() - gained - data.keys()):
        raise JournalError(f"{where} lacks {', '.join(missing)}")
    data = {key: value for key, value in data.items() if key not in LOST.get(kind.__name__, ())}
    if unknown := sorted(map(str, data.keys() - known.keys())):
        raise JournalError(f"{where} has {', '.join(unknown)}, unknown in a {kind.__name__}")
    names = {key: known[key].name for key in data}
    now = {key: known[key].metadata.get("before", {}) for key in names}
    data = {key: now[key].get(value, value) if isinstance(value, str) else value for key, value in data.items()}
    return kind(**{name: read_as(hints[name], data[key], f"{where}.{key}") for key, name in names.items()})


def _stored(kind: Any) -> Iterator[tuple[str, Field[Any]]]:
    """Yield the written fields by their names in JSON, without those with the JSON name None."""
    for field in fields(kind):
        if (key := field.metadata.get("json", field.name)) is not None:
            yield key, field


def _read_tuple(hints: tuple[Any, ...], data: Any, where: str) -> tuple[Any, ...]:
    _expect(type(data) is list, "a list", data, where)
    if hints[1:] == (...,):
        hints = hints[:1] * len(data)
    if len(data) != len(hints):
        raise JournalError(f"{where} has {len(data)} items, not {len(hints)}")
    return tuple(read_as(hint, item, f"{where}[{i}]") for i, (hint, item) in enumerate(zip(hints, data, strict=True)))


def _read_union(hints: tuple[Any, ...], data: Any, where: str) -> Any:
    """Return the value as the first type that fits, or raise the error of the last one."""
    *others, last = [hint for hint in hints if hint is not NoneType]
    if data is None and NoneType in hints:
        return None
    for hint in others:
        try:
            return read_as(hint, data, where)
        except JournalError:
            continue
    return read_as(last, data, where)
