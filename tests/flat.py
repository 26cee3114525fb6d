"""Calls of verbs from options in one mapping, as parametrized tests state them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

import oocarrays as ooc

RESULTS = [each.name for each in fields(ooc.Results)]


def flat(verb: Callable[..., Any] | str, *given: Any, **options: Any) -> Any:
    """Call a verb, which may be named, with options of `Target`, `Results` and `Resources` beside the others."""
    verb_of: Any = verb
    if isinstance(verb, str):
        verb_of = getattr(ooc.ranks, verb, None) or getattr(ooc, verb)
    known = inspect.signature(verb_of).parameters
    to = {name: options.pop(name) for name in getattr(verb_of, "target", ()) if name in options and name not in known}
    results = {
        name: options.pop(name) for name in RESULTS if name in options and ("results" in known or "how" in known)
    }
    named = {each.name for each in fields(ooc.Resources)} & options.keys() - known.keys()
    means = {name: options.pop(name) for name in named}
    if "kwargs" in options:
        given = (partial(given[0], **options.pop("kwargs")), *given[1:])
    if "ddof" in options:
        given = (given[0], (given[1], {"ddof": options.pop("ddof")}), *given[2:])
    if "residual" in options:
        options["until"] = (options.pop("until", None), options.pop("residual"))
    along = {name: options.pop(name) for name in ("axis", "height") if name in options and name not in known}
    if options.get("window") is None and any(each is not None for each in along.values()):
        axis, height = along.get("axis"), along.get("height")
        window = height if axis is None else {axis: "auto" if height is None else height}
        (options if "window" in known else means)["window"] = window
    if to:
        name = "store" if "store" in known else "target"
        at = list(known).index(name)
        if at < len(given):
            given = (*given[:at], _with(given[at], to), *given[at + 1 :])
        else:
            options[name] = _with(options[name], to)
    if results:
        options["results"] = replace(options.get("results") or ooc.Results(), **results)
    if means:
        options["resources"] = replace(options.get("resources") or ooc.Resources(), **means)
    return verb_of(*given, **options)


def _with(target: Any, stated: dict[str, Any]) -> Any:
    """Return a target, or each of a list, with what is stated; a list states one for each of a list."""
    if isinstance(target, list | tuple):
        each = [{k: v[n] if isinstance(v, list) else v for k, v in stated.items()} for n in range(len(target))]
        return [_with(*one) for one in zip(target, each, strict=True)]
    return replace(target if isinstance(target, ooc.Target) else ooc.Target(target), **stated)
