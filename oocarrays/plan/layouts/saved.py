"""Redistributions saved as JSON text, from which the same plan is loaded on any machine.

plan.save("rows-to-columns.json")          layouts before, between and after; costs
x.redistribute(load_plan("rows-to-columns.json"))
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path

from oocarrays.errors import InputError, LayoutError, NotFoundError
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.plan import shown
from oocarrays.plan.documents import Document, checked_path, save_text
from oocarrays.plan.layouts.redistribution import Price, Redistribution, Transfer

KIND = "oocarrays redistribution"


def save_plan(plan: Redistribution, path: str | os.PathLike[str]) -> None:
    layouts = [plan.source, *(transfer.target for transfer in plan.transfers)]
    said = {
        "kind": KIND,
        "shape": list(plan.source.shape),
        "layouts": [str(layout) for layout in (layouts if plan.transfers else [plan.source, plan.target])],
        "moves": bool(plan.transfers),
        "itemsize": plan.itemsize,
        "price": asdict(plan.price),
        "offers": [asdict(offer) for offer in plan.offers],
    }
    save_text(path, json.dumps(said, indent=1) + "\n", "the plan")


def load_plan(path: str | os.PathLike[str]) -> Redistribution:
    """Read a saved plan.

    Raises
    ------
    NotFoundError
        If the file does not exist.
    InputError
        If the file cannot be read or holds no plan.

    Examples
    --------
    >>> import tempfile
    >>> from oocarrays.plan.layouts.redistribution import plan_redistribution
    >>> layouts = (Layout.of((100,), f"cyclic({m})", ranks=4) for m in (15, 10))
    >>> plan = plan_redistribution(*layouts, method="lcm")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_plan(plan, f"{folder}/plan.json")
    ...     load_plan(f"{folder}/plan.json") == plan
    True
    """
    name = checked_path(path)
    try:
        said = json.loads(Path(name).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"no such plan: {name}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{name} holds no plan of a redistribution: {error}") from None
    try:
        if said["kind"] != KIND:
            raise InputError(f"{name} holds no plan of a redistribution, but of kind {said['kind']!r}")
        return _plan(said)
    except (KeyError, TypeError, LayoutError) as error:
        raise InputError(f"{name} holds no plan of a redistribution: {error!r}") from None


def _plan(said: Document) -> Redistribution:
    layouts = [Layout.of(tuple(said["shape"]), text) for text in said["layouts"]]
    pairs = pairwise(layouts) if said["moves"] else ()
    return Redistribution(
        source=layouts[0],
        target=layouts[-1],
        transfers=tuple(Transfer(*pair) for pair in pairs),
        itemsize=said["itemsize"],
        price=_price(said["price"]),
        offers=tuple(map(_price, said["offers"])),
    )


def _price(said: Document) -> Price:
    return Price(**{**said, "schedules": tuple(said["schedules"])})


shown.lend("save redistributions", save_plan)
