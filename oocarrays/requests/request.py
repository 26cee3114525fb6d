"""Requests as plain values: equal where two calls would write the same target.

    rechunk(a, t, chunks=(8, 1), memory="1GiB")  ─►  {"function": "rechunk", "source": ["/data/a"], "chunks": [8, 1], …}
    rechunk(a, t, chunks=(8, 1), ranks=4)        ─►  the same: means are no part of it

A journal keeps the request of its run, and a finished target the request that made it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import zarr

from oocarrays.plan.documents import Document, Settings
from oocarrays.storage.files.places import Place
from oocarrays.storage.journal.calls import code_of, name_of, named
from oocarrays.storage.journal.texts import REQUEST

COUNT = "count"
"""Where a request has the number of chunks, or shards, of its targets: no part of what is asked for."""
METADATA, CODE = "metadata of the source", "code"
SHOWN = 60
"""Characters of a value that a message shows."""


def requested(
    function: str,
    sources: Sequence[str | None],
    metadata: Sequence[Any],
    targets: Sequence[tuple[Settings, int]],
    *,
    functions: Sequence[Callable[..., Any]] = (),
    count: int = 0,
    **said: Any,
) -> Document:
    """Write down a request, as `REQUEST` of a journal."""
    forms = [form(settings) for settings, _ in targets]
    each = {name: [form[name] for form in forms] for name in (forms[0] if forms else ())}
    kernels = {"kernel": list(map(name_of, functions)), CODE: list(map(code_of, functions))} if functions else {}
    found = {
        "function": function,
        **{name: values[0] if len(values) == 1 else values for name, values in each.items()},
        **said,
        **kernels,
        "source": list(sources),
        METADATA: list(metadata),
        COUNT: sum((each for _, each in targets), count),
    }
    plain: Document = json.loads(json.dumps(found, default=repr))
    return {REQUEST: plain}


def unnamed(source: Any) -> Any:
    """Return a source that a journal cannot name, as `oocarrays.resume` takes it; None for one that it can."""
    place = source if isinstance(source, Place) else getattr(source, "zarr", source).store_path
    return source if named(place) is None else None


def form(settings: Settings) -> Document:
    """How an array is stored, by the names that a person knows."""
    array = zarr.create_array({}, **settings)
    told = array.metadata.to_dict()
    codecs = told["codecs"] if array.metadata.zarr_format == 3 else [told[name] for name in ("filters", "compressor")]
    return {
        "shape": array.shape,
        "chunks": array.chunks,
        "shards": array.shards,
        "dtype": str(array.dtype),
        "zarr_format": array.metadata.zarr_format,
        "fill_value": repr(array.fill_value),
        "codecs": codecs,
    }


def difference(was: Mapping[str, Any], now: Mapping[str, Any], *, but: Collection[str] = ()) -> str:
    """Name the first difference between two requests; empty where they ask for the same.

    >>> difference({"chunks": [8, 1], "count": 1}, {"chunks": [4, 1], "count": 2}), difference({"a": 1}, {"a": 1})
    ('chunks=[8, 1], not [4, 1]', '')
    """
    for name in {**now, **was}:
        before, after = was.get(name), now.get(name)
        if name not in (COUNT, *but) and before != after:
            return _told(name, before, after, was)
    return ""


def _told(name: str, before: Any, after: Any, was: Mapping[str, Any]) -> str:
    if name == METADATA:
        return f"another source than {', '.join(map(str, was['source']))} is now: its metadata has changed"
    if name == CODE:
        return f"other code of {', '.join(was['kernel'])}"
    return f"{name}={_short(before)}, not {_short(after)}"


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
