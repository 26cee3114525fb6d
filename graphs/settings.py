"""Settings under ``oocarrays.*`` in Dask's configuration: parsed and checked for plans and runs, and kept in files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import dask.config
import numpy as np
from dask.utils import parse_bytes, parse_timedelta

from oocarrays.errors import InputError, ScheduleError, UnsupportedError
from oocarrays.mapping.given import Policy
from oocarrays.plan.exchange.prediction import Carrier
from oocarrays.plan.exchange.schedule import COLORING, NAMES, UNORDERED, Schedule, is_auto
from oocarrays.plan.machine import COST_NAMES, Costs
from oocarrays.plan.queueing.kept import ChunkTimes, KeptDisks, kept_times
from oocarrays.storage.meter import available_bytes
from oocarrays.storage.stores.remote import Patience
from oocarrays.storage.stores.urls import Ways


def setting(name: str) -> Any:
    """Return the value of ``oocarrays.<name>``."""
    return dask.config.get(f"oocarrays.{name}")


def schedule(asked: Any) -> Any:
    """Return the requested order of messages, a `Schedule` or a name; for None or "auto", the configured one."""
    order = setting("schedule") if is_auto(asked) else asked
    if is_auto(order):
        return "auto"
    names = [*(name.lower() for name in (*NAMES, COLORING)), UNORDERED]
    if not isinstance(order, Schedule) and str(order).lower() not in names:
        raise ScheduleError(f"schedule={order!r} is unknown; pass 'auto' or one of {', '.join(names)}")
    return order


def carrier(ranks: int, assembly: str = "asynchronous") -> Carrier:
    """Return the costs of messages between workers, as measured by `oocarrays calibrate`."""
    return Carrier.between_workers(ranks, costs(), direct=assembly == "asynchronous")


def record_seconds() -> float:
    """Return the interval in seconds at which progress within a part is recorded."""
    return float(parse_timedelta(setting("record-every")))


def past_cache_above() -> int:
    """Return the number of bytes above which a job's writes bypass the page cache."""
    return size_in_bytes(setting("past-cache-above"), "past-cache-above")


def costs(workers: int | None = None, available: int | None = None) -> Costs:
    """Return the cost model from ``oocarrays.cost.*``, for this machine or for a cluster with this number of cores."""
    computed = {"cores": workers or local_cores(), "cache_bytes": _or_looked_at(available) / 2}
    return Costs(**(computed | _known_costs()))


def set_costs() -> Costs:
    """Return the cost model from ``oocarrays.cost.*``, with fixed defaults in place of this machine's values."""
    global _costs
    said = setting("cost")
    if said != _costs[0]:
        _costs = deepcopy(said), Costs(**deepcopy(_known_costs()))
    return _costs[1]


_costs: tuple[dict[str, Any], Costs] = ({}, Costs())
"""Last value of ``oocarrays.cost``, and the cost model made from it."""


def _known_costs() -> dict[str, Any]:
    return {name: value for name, value in setting("cost").items() if value is not None and name in COST_NAMES}


def kept_disks() -> tuple[KeptDisks, ...]:
    """Return the stored measurements of disks, oldest first."""
    said = setting("disks")
    if not isinstance(said, list | tuple | None):
        raise InputError(f"oocarrays.disks={said!r} is not a list of measurements by oocarrays calibrate --disks")
    return tuple(map(KeptDisks.from_json, said or ()))


def chunk_times(disks: Sequence[str], chunk_bytes: float) -> ChunkTimes | None:
    """Return the measured times of a chunk of this size on each of some disks; None if they were not measured."""
    kept = kept_disks()
    found = {mode: kept_times(kept, mode, disks, round(chunk_bytes)) for mode in ("read", "write")}
    known = {mode: times for mode, times in found.items() if times is not None}
    return ChunkTimes(known) if known else None


def local_cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ways() -> Ways:
    """Return the library, request limit and retry policy for remote stores."""
    library, requests, retries = (setting(name) for name in ("store-library", "requests", "retries"))
    if library not in (None, "obstore", "fsspec"):
        raise InputError(f"oocarrays.store-library={library!r} is not 'obstore', 'fsspec' or None")
    if not (isinstance(requests, int) and requests >= 1 and isinstance(retries, int) and retries >= 0):
        raise InputError(
            f"oocarrays.requests={requests!r} must be at least 1, oocarrays.retries={retries!r} at least 0"
        )
    patience = Patience(retries=retries, timeout=parse_timedelta(setting("request-timeout")))
    return Ways(library=library, requests=requests, patience=patience)


def missing(asked: str | None) -> Policy:
    """Return the policy for missing chunks of a source: the argument, or the setting."""
    word: Any = setting("missing") if asked is None else asked
    if not isinstance(word, str) or word not in get_args(Policy):
        raise InputError(f"missing={word!r} is not 'fill', 'warn' or 'error'")
    policy: Any = word
    return policy


def size_in_bytes(value: int | float | str, name: str) -> int:
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        size = parse_bytes(value) if isinstance(value, str) else int(value)
    except (ValueError, TypeError, OverflowError):
        raise InputError(f"{name}={value!r} is not a size; write a number of bytes, or text such as '1GiB'") from None
    if size <= 0:
        raise InputError(f"{name}={value!r} must be above zero")
    return size


def budget(memory: int | float | str | None, available: int | None = None) -> int:
    """Return the budget in bytes: ``memory``, or the setting, or half of the machine's free memory."""
    chosen = setting("memory") if memory is None else memory
    return _or_looked_at(available) // 2 if chosen is None else size_in_bytes(chosen, "memory")


def _or_looked_at(available: int | None) -> int:
    return available_bytes() if available is None else available


def refuse_array_expressions() -> None:
    if dask.config.get("array.query-planning", False):
        raise UnsupportedError("Dask's array.query-planning is on, which does not accept graphs; set it to False")


def keep(measured: dict[str, Any]) -> Path:
    """Write measured constants to Dask's configuration folder, apply them in this process too, and return the file.

    Other content of the file is kept: constants measured earlier and not now, and other settings.
    """
    path = _written({"cost": measured})
    dask.config.set({f"oocarrays.cost.{name}": value for name, value in measured.items()})
    return path


def keep_disks(measured: Sequence[KeptDisks]) -> Path:
    """Write measurements of disks to the same file, replacing those of the same disks and mode, and return the file."""
    new = {(each.disks, each.mode) for each in measured}
    old = [each for each in kept_disks() if (each.disks, each.mode) not in new]
    said = [each.to_json() for each in (*old, *measured)]
    dask.config.set({"oocarrays.disks": said})
    return _written({"disks": said})


def _written(settings: dict[str, Any]) -> Path:
    """Write settings to Dask's configuration folder, keeping the others, and return the file."""
    path = Path(os.environ.get("DASK_CONFIG", dask.config.PATH), "oocarrays.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = dask.config.merge(*dask.config.collect_yaml([str(path)]), {"oocarrays": settings})
    path.write_text(dask.config.yaml.safe_dump(kept, sort_keys=False))  # type: ignore[attr-defined]
    return path
