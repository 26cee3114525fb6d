"""Calls as a journal keeps them: what a job was asked for, so that the same can be asked again.

    map_slabs(smooth, "a.zarr", "b.zarr", depth=1)
        ─► {"function": "map_slabs", "source": ["/data/a.zarr"], "functions": [{"name": "filters:smooth", "code": …}],
            "memory": …, "processes": …, "options": {"depth": [1, 1], …}}

A journal is data: whoever may write beside a target may write one that fits. So a function is never kept, nor taken by
a name that stands in a journal, unless it is one that can only compute: numpy's own, or ours. Any other is given again,
and its code is held against what the journal keeps of it. The functions that it calls are not looked at.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial, reduce
from typing import Any

import numpy as np

from oocarrays import kernels
from oocarrays.errors import InputError, JournalError
from oocarrays.plan.documents import Document
from oocarrays.storage.files.places import StoreLike, place_name, store_path

CALL = "call"
"""Where a journal keeps the call."""
CODE, NAME = "code", "name"
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"""In the text of an object that is at another place in every process."""


def call_content(
    function: str,
    sources: Sequence[str | None],
    *,
    memory: int,
    processes: int | None,
    functions: Sequence[Callable[..., Any] | None] = (),
    **options: Any,
) -> Document:
    """Write down a call, as `CALL` of a journal."""
    kept = [None if each is None else {NAME: name_of(each), CODE: code_of(each)} for each in functions]
    call = {"function": function, "source": list(sources), "functions": kept, "memory": memory, "processes": processes}
    plain: Document = json.loads(json.dumps(call | {"options": options}, default=_plain))
    return {CALL: plain}


def _plain(given: Any) -> Any:
    if isinstance(given, np.generic | np.ndarray):
        return given.tolist()
    raise TypeError(f"{given!r} is no plain value")


def named(store: StoreLike) -> str | None:
    """Name a place as a journal keeps it: None for one in the memory of this process."""
    path = store_path(store)
    return place_name(path.store, path.path)


def name_of(function: Any) -> str:
    """Name a function so that it could be imported; of one whose arguments are bound, its function."""
    named = getattr(function, "func", function)
    if isinstance(named, np.ufunc):
        return f"numpy:{named.__name__}"
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}:{named.__qualname__}"


def code_of(function: Any) -> str | None:
    """Digest the code of a function, with the arguments that are bound to it; None where nobody sees its code."""
    bound = (function.args, sorted(function.keywords.items())) if isinstance(function, partial) else ()
    named = function.func if isinstance(function, partial) else function
    named = named if hasattr(named, "__qualname__") else type(named)
    with suppress(OSError, TypeError):
        text = textwrap.dedent(inspect.getsource(named)) + (ADDRESS.sub("", repr(bound)) if bound else "")
        return hashlib.sha256(text.encode()).hexdigest()
    return None


def known_function(name: str) -> Callable[..., Any] | None:
    """Find the function of a name in a journal, where it is numpy's or ours and can only compute; None of others."""
    module, _, qualname = name.partition(":")
    if module == "numpy":
        found = getattr(np, qualname, None)
        return found if isinstance(found, np.ufunc) else None
    ours = {name_of(each): each for each in vars(kernels).values() if inspect.isfunction(each)}
    return ours.get(name)


def imported(name: Any) -> Callable[..., Any]:
    """Import a function that a person names as ``"module:name"``; give one that is callable as it is."""
    if callable(name):
        return name  # type: ignore[no-any-return]
    module, _, qualname = name.partition(":") if isinstance(name, str) else ("", "", "")
    try:
        found = reduce(getattr, qualname.split("."), importlib.import_module(module))
    except (ImportError, AttributeError, ValueError, TypeError):
        found = None
    if not callable(found):
        raise InputError(f"kernel={name!r} is neither a function nor the name of one, such as 'filters:smooth'")
    return found


def given_again(
    call: Mapping[str, Any], given: Sequence[Callable[..., Any]], target: str, *, as_is: bool = False
) -> list[Callable[..., Any] | None]:
    """The functions of a call: those that are given again, or known."""
    kept, left = call["functions"], list(given)
    found: list[Callable[..., Any] | None] = []
    for each in kept:
        function = None if each is None else left.pop(0) if left else _known(each)
        if each is not None:
            _check_function(each, function, call["function"], target, as_is=as_is)
        found.append(function)
    if left:
        raise JournalError(f"{target} was being written by {call['function']} without {name_of(left[0])}")
    return found


def _known(kept: Mapping[str, Any]) -> Callable[..., Any] | None:
    """The function of a journal that need not be given, where its arguments were not bound and it is what it was."""
    function = known_function(kept[NAME])
    return function if function and kept.get(CODE) == code_of(function) else None


def _check_function(
    kept: Mapping[str, Any], function: Callable[..., Any] | None, by: str, target: str, *, as_is: bool
) -> None:
    name = kept[NAME]
    if function is None:
        last = name.rpartition(":")[2].rpartition(".")[2]
        raise JournalError(
            f"{target} was being written by {by} with {name}, which no journal keeps: give it again, as "
            f"resume(target, kernel={last}), or --kernel {name}"
        )
    if as_is:
        return
    if name != name_of(function):
        raise JournalError(f"{target} was being written by {by} with {name}, not {name_of(function)}")
    if kept.get(CODE) not in (None, code_of(function)):
        raise JournalError(
            f"{name} has changed since the run in {target} began: start over (again=True, --again), or go on all the "
            "same (as_is=True, --as-is)"
        )
