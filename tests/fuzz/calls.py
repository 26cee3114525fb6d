"""Calls drawn from the signatures of all that is public: functions, and methods of what they return.

One try: a function of ``oocarrays.__all__`` with arguments right and odd, then methods of what it gave, to a depth of
three. Right answers are those that numpy gives, or that the sources hold.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import zarr

import oocarrays as ooc
from tests.fuzz import pools
from tests.selections import picked

DEPTH = 3
KINDS_A_TRY = 12
"""Values of wrong kinds that a parameter is given in one try."""
OPERATORS = ("__getitem__", "__setitem__", "__len__", "__array__", "__contains__", "__iter__", "__repr__")
NOT_OURS = {"visualize", "with_traceback", "loads", "legs"}
"""Dask's own, which asks for a program that draws, and arithmetic of networks on arrays that planners make."""


class Wrong(AssertionError):
    """An answer that is not right."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What is called, with what."""

    name: str
    """As it is written before the bracket."""
    function: Callable[..., Any]
    """What is called."""
    arguments: dict[str, Any]
    """Each by its parameter's name."""

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={pools.shown(value)}' for name, value in self.arguments.items())})"

    def __call__(self) -> Any:
        """What is positional only goes first."""
        first, named = [], dict(self.arguments)
        for name, parameter in _parameters(self.function).items():
            if parameter.kind is parameter.POSITIONAL_ONLY:
                first.append(named.pop(name))
        return self.function(*first, **named)


PLANNED = ("Redistribution", "Comparison")
"""Classes that only functions make."""


def public() -> dict[str, Callable[..., Any]]:
    """Every public function, and what makes values: classes that are data, and their class methods.

    Those that have an ``of`` look at what they are given there, and not where they are made as they are.
    """
    found: dict[str, Callable[..., Any]] = {}
    for name in ooc.__all__:
        thing = getattr(ooc, name)
        if name in PLANNED:
            continue
        if inspect.isclass(thing) and dataclasses.is_dataclass(thing):
            makers = {f"{name}.{m}": getattr(thing, m) for m in dir(thing) if _is_classmethod(thing, m)}
            found |= makers if "of" in dir(thing) else {name: thing, **makers}
        elif inspect.isfunction(thing):
            found[name] = thing
        elif inspect.ismodule(thing) and thing is not ooc.errors:
            named = {n: getattr(thing, n) for n in getattr(thing, "__all__", vars(thing))}
            found |= {f"{name}.{n}": f for n, f in named.items() if inspect.isfunction(f) and n not in PLANNED}
    return found


def _is_classmethod(kind: type, name: str) -> bool:
    return not name.startswith("_") and isinstance(inspect.getattr_static(kind, name), classmethod)


def methods(thing: Any) -> list[str]:
    """The public methods of what one of our functions gave."""
    named = [name for name in dir(type(thing)) if name in OPERATORS or not name.startswith("_")]
    ours = [name for name in named if name not in NOT_OURS and not _is_of_dask_arrays(type(thing), name)]
    return [name for name in ours if inspect.isroutine(inspect.getattr_static(thing, name))]


def _is_of_dask_arrays(kind: type, name: str) -> bool:
    """Whether a lazy array has a method from Dask as it is."""
    holder = next((each for each in kind.__mro__ if name in vars(each)), kind)
    return holder is da.Array and name not in ("compute", *OPERATORS)


def properties(thing: Any) -> list[str]:
    kinds = [(name, inspect.getattr_static(thing, name)) for name in dir(type(thing)) if not name.startswith("_")]
    return [name for name, kind in kinds if isinstance(kind, property)]


def draw(rng: random.Random, name: str, function: Callable[..., Any], odd: float) -> Call:
    """Arguments for a function."""
    arguments: dict[str, Any] = {}
    for parameter in _parameters(function).values():
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= _more(rng, odd)
        elif (
            parameter.kind is not parameter.VAR_POSITIONAL
            and not parameter.name.startswith("_")
            and _wanted(rng, parameter)
        ):
            more = odd if parameter.default is parameter.empty else min(2 * odd, 1)
            arguments[parameter.name] = pools.value(rng, parameter.name, parameter.annotation, more)
    return Call(name=name, function=function, arguments=arguments)


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(function).parameters)
    except ValueError:
        return {}


def _wanted(rng: random.Random, parameter: inspect.Parameter) -> bool:
    """What has no default; of the rest some, and a scheduler always, so that tries do not depend on the last one."""
    return parameter.default is parameter.empty or parameter.name in ("scheduler", "chunks") or rng.random() < 0.25


def _more(rng: random.Random, odd: float) -> dict[str, Any]:
    """Keywords for a function that hands them on to another."""
    known = sorted({name for f in public().values() for name, p in _parameters(f).items() if p.kind is p.KEYWORD_ONLY})
    named = {name: pools.value(rng, name, odd=odd) for name in rng.sample(known, rng.randrange(3))}
    return named | ({"scheduler": "threads"} if rng.random() < 0.8 else {})


def attempt(rng: random.Random, folder: Path, say: Callable[[str], None]) -> None:
    """One function, and methods of what it returns: raises what is not to be raised."""
    known = public()
    name = rng.choices(sorted(known), [2 + len(_parameters(known[name])) for name in sorted(known)])[0]
    function = known[name]
    odd = rng.choice([0.0, 0.05, 0.2])
    call = draw(rng, name, function, odd)
    thing = answered(call, say)
    for _ in range(DEPTH):
        if not _is_public(thing):
            return
        _look(thing, name, say)
        method = rng.choice([*methods(thing), *(m for m in ("run", "compute", "__getitem__") if hasattr(thing, m))])
        if method in ("run", "compute") and not _runs(call):
            return
        name = f"{name}(…).{method}"
        call = draw(rng, name, getattr(thing, method), 0.3)
        thing = checked(thing, method, call, say)


def parameters() -> list[tuple[str, str]]:
    """Every parameter of every public function, but where it would be looked for in folders that are not ours."""
    pairs = [(name, parameter) for name, function in sorted(public().items()) for parameter in _parameters(function)]
    return [pair for pair in pairs if pair != ("clean", "path")]


def attempt_parameter(rng: random.Random, folder: Path, say: Callable[[str], None]) -> None:
    """One parameter, by the number of the try, with values of wrong kinds; all else is right."""
    known, pairs = public(), parameters()
    name, parameter = pairs[int(folder.name.removeprefix("try")) % len(pairs)]
    for odd in rng.sample(pools.ODD, KINDS_A_TRY):
        call = draw(rng, name, known[name], 0.0)
        if _parameters(known[name])[parameter].kind in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            return
        call.arguments[parameter] = copy.deepcopy(odd)
        answered(call, say)


def answered(call: Call, say: Callable[[str], None]) -> Any:
    """What a call gives; None where it refuses as it may."""
    say(str(call))
    try:
        answer = call()
        return list(itertools.islice(answer, 5)) if isinstance(answer, Iterator) and _is_ours(answer) else answer
    except ooc.OocError as error:
        _check_message(error)
    except (TypeError, KeyError, StopIteration) as error:
        if not _is_documented(call, error):
            raise
    return None


def _check_message(error: Exception) -> None:
    """One line, that can be shown anywhere."""
    line = str(error)
    if "\n" in line or len(line) > 2000 or not line:
        raise Wrong(f"no line: {pools.shown(line)}")
    line.encode()


def _is_documented(call: Call, error: Exception) -> bool:
    """What Python itself says of a call that does not bind, and what a docstring promises."""
    text = str(error)
    if isinstance(error, TypeError) and ("argument" in text and "()" in text):
        return not call.name.partition("(")[0] or "keyword argument" in text
    documented = inspect.getdoc(call.function) or ""
    return type(error).__name__ in documented or call.name.endswith("__len__")


def _is_ours(thing: Any) -> bool:
    return type(thing).__module__.partition(".")[0] == "oocarrays"


def _is_public(thing: Any) -> bool:
    """Whether it has a public name, or comes from the top floor: what lies below looks at nothing, in loops."""
    return _is_ours(thing) and (type(thing).__name__ in ooc.__all__ or type(thing).__module__.count(".") == 1)


def _look(thing: Any, name: str, say: Callable[[str], None]) -> None:
    """All that a thing says of itself."""
    for each in properties(thing):
        say(f"{name}(…).{each}")
        with suppress(ooc.OocError):
            getattr(thing, each)
    say(f"repr({name}(…))")
    repr(thing)


def _runs(call: Call) -> bool:
    """Whether what is planned is small: the rest would be done, and take its time."""
    return not any("huge" in pools.shown(v) or "square" in pools.shown(v) for v in call.arguments.values())


# ---------------------------------------------------------------------- right answers


def checked(thing: Any, method: str, call: Call, say: Callable[[str], None]) -> Any:
    """What a method gives, beside what numpy gives."""
    before = _contents(thing) if method in ("__getitem__", "read", "prefetch", "__setitem__", "write") else None
    answer = answered(call, say)
    if before is None or (answer is None and method in ("__getitem__", "read", "prefetch")):
        return answer
    key = call.arguments.get("key", call.arguments.get("section"))
    if method in ("__setitem__", "write"):
        return None
    found = answer.result() if method == "prefetch" else answer
    _same(found, _picked(before, key, by_numpy=method == "__getitem__"), call)
    return answer


def _contents(thing: Any) -> np.ndarray | None:
    """All that an array holds, as Zarr reads it."""
    held = getattr(thing, "zarr", None)
    if not isinstance(held, zarr.Array) or not pools.is_small(held) or held.ndim > 20:
        return None
    try:
        return np.asarray(held[...])
    except Exception:  # noqa: BLE001  it is a wreck, of which no answer is right
        return None


def _picked(data: np.ndarray, key: Any, *, by_numpy: bool) -> Any:
    """What a key takes; in sections sequences take their product."""
    if isinstance(key, ooc.Section):
        key = key.slices
    if by_numpy:
        return data[key]
    entries = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in [each if each is Ellipsis else None for each in entries]:
        at = next(number for number, each in enumerate(entries) if each is Ellipsis)
        there = sum(each is not None and each is not Ellipsis for each in entries)
        entries[at : at + 1] = [slice(None)] * (data.ndim - there)
    if None in [None if each is None else 0 for each in entries]:
        return data[key]
    plain = [int(e) if np.ndim(e) == 0 and hasattr(e, "__index__") else e for e in entries]
    return picked(data, tuple(list(np.flatnonzero(e) if _is_mask(e) else e) if np.ndim(e) else e for e in plain))


def _is_mask(entry: Any) -> bool:
    return np.asarray(entry).dtype.kind == "b"


def _same(found: Any, wanted: Any, call: Call) -> None:
    if np.shape(found) != np.shape(wanted) or not np.array_equal(
        found, wanted, equal_nan=np.asarray(wanted).dtype.kind == "f"
    ):
        raise Wrong(f"{call} is {pools.shown(found)}; numpy has {pools.shown(wanted)}")
