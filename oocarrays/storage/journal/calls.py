"""Calls recorded in a journal: the request of a job, so that it can be repeated.

    map_slabs(smooth, "a.zarr", "b.zarr", depth=1)
        ─► {"function": "map_slabs", "source": ["/data/a.zarr"], "functions": [{"name": "filters:smooth", "code": …}],
            "memory": …, "processes": …, "options": {"depth": [1, 1], …}}

A journal is data: anyone with write access beside a target can write a valid one. So functions are not stored, and
only those that can only compute, NumPy's own or ours, are looked up by a name in a journal. Any other function is
passed again, and its code is compared with the digest in the journal. The functions that it calls are not compared.
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

CALL = "call"
"""Field of the call in a journal."""
CODE, NAME = "code", "name"


def call_content(
    function: str,
    sources: Sequence[str | None],
    *,
    memory: int,
    processes: int | None,
    functions: Sequence[Callable[..., Any] | None] = (),
    **options: Any,
) -> Document:
    """Return a call as the `CALL` field of a journal."""
    kept = [None if each is None else {NAME: name_of(each), CODE: code_of(each), **_bound(each)} for each in functions]
    call = {"function": function, "source": list(sources), "functions": kept, "memory": memory, "processes": processes}
    plain: Document = json.loads(json.dumps(call | {"options": options}, default=_plain))
    return {CALL: plain}


def _bound(function: Any) -> Document:
    """Return the arguments that a partial binds by name, if they are plain values; other ones are passed again."""
    if isinstance(function, partial) and function.keywords and not function.args:
        with suppress(TypeError, ValueError):
            bound: Document = json.loads(json.dumps({"kwargs": function.keywords}, allow_nan=False))
            return bound
    return {}


def _rebound(function: Callable[..., Any], kept: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a function with the arguments that were bound when the call was recorded."""
    bound = kept.get("kwargs")
    return partial(function, **{name: _tuples(value) for name, value in bound.items()}) if bound else function


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def _plain(given: Any) -> Any:
    if isinstance(given, np.generic | np.ndarray):
        return given.tolist()
    raise TypeError(f"{given!r} is not a plain value")


def name_of(function: Any) -> str:
    """Return the import name of a function; for a partial, that of its function."""
    named = getattr(function, "func", function)
    if isinstance(named, np.ufunc):
        return f"numpy:{named.__name__}"
    named = named if hasattr(named, "__qualname__") else type(named)
    return f"{named.__module__}:{named.__qualname__}"


def code_of(function: Any) -> str | None:
    """Return a digest of a function's code and bound arguments; None if its source code is unavailable."""
    bound = (function.args, sorted(function.keywords.items())) if isinstance(function, partial) else ()
    named = function.func if isinstance(function, partial) else function
    named = named if hasattr(named, "__qualname__") else type(named)
    with suppress(OSError, TypeError):
        text = textwrap.dedent(inspect.getsource(named))
        text += re.sub(r" at 0x[0-9a-f]+", "", repr(bound)) if bound else ""  # addresses differ between processes
        return hashlib.sha256(text.encode()).hexdigest()
    return None


def imported(name: Any) -> Callable[..., Any]:
    """Import a function named ``"module:name"``; return a callable unchanged."""
    if callable(name):
        return name
    module, _, qualname = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not (module and qualname):
        such = f"oocarrays.kernels:{name}" if isinstance(name, str) and name in kernels.__all__ else "filters:smooth"
        raise InputError(f"kernel={name!r} must be a function or the name of one, such as {such!r}")
    try:
        found = reduce(getattr, qualname.split("."), importlib.import_module(module))
    except Exception as error:  # noqa: BLE001  a user's module may raise anything
        raise InputError(f"kernel={name!r} cannot be imported: {type(error).__name__}: {error}") from None
    if not callable(found):
        raise InputError(f"kernel={name!r} is a {type(found).__name__}, not a function")
    return found


def given_again(
    call: Mapping[str, Any], given: Sequence[Callable[..., Any]], target: str, *, as_is: bool = False
) -> list[Callable[..., Any] | None]:
    """Return the functions of a call: those passed again, or known ones."""
    kept, left = call["functions"], list(given)
    found: list[Callable[..., Any] | None] = []
    for each in kept:
        function = None if each is None else left.pop(0) if left else _known(each)
        if function is not None and not isinstance(function, partial):
            function = _rebound(function, each)
        if each is not None:
            _check_function(each, function, call["function"], target, as_is=as_is)
        found.append(function)
    if left:
        raise JournalError(f"{target} was being written by {call['function']} without {name_of(left[0])}")
    return found


def _known(kept: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Return a function of NumPy's or ours that can only compute, by its name in a journal; None for others.

    None, too, if the journal's digest does not match its code and bound arguments.
    """
    module, _, qualname = kept[NAME].partition(":")
    ours = {name_of(each): each for each in vars(kernels).values() if inspect.isfunction(each)}
    function = getattr(np, qualname, None) if module == "numpy" else ours.get(kept[NAME])
    only_computes = isinstance(function, np.ufunc) or module != "numpy"
    if not function or not only_computes:
        return None
    return found if kept.get(CODE) == code_of(found := _rebound(function, kept)) else None


def _check_function(
    kept: Mapping[str, Any], function: Callable[..., Any] | None, by: str, target: str, *, as_is: bool
) -> None:
    name = kept[NAME]
    if function is None:
        last = name.rpartition(":")[2].rpartition(".")[2]
        raise JournalError(
            f"{target} was being written by {by} with {name}, which is not kept: pass it again as "
            f"resume(target, kernel={last}), or --kernel {name}"
        )
    if as_is:
        return
    if name != name_of(function):
        raise JournalError(f"{target} was being written by {by} with {name}, not {name_of(function)}")
    if kept.get(CODE) not in (None, code_of(function)):
        raise JournalError(
            f"{name} has changed since the run in {target} began: start over (resume with again=True, --again), or "
            "continue anyway (as_is=True, --as-is)"
        )
