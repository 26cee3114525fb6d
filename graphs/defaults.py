"""The defaults of settings under ``oocarrays.*`` in Dask's configuration, each once, with its unit."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import dask.config

from oocarrays.plan.machine import Costs

COMPUTED = ("cores", "cache_bytes")
"""Costs whose default is asked of the machine when a plan is made."""

DEFAULTS: dict[str, Any] = {
    "memory": None,  # bytes, or text such as "1GiB": the budget of a process; None: half of what the machine has free
    "ranks": None,  # logical processors; None: the plan chooses
    "scratch": None,  # folder for scratch arrays; None: beside the target, or the system's temporary folder
    "past-cache-above": "512MiB",  # bytes: what a job writes, if it is more, goes past the system's cache
    "durable": True,  # whether what a run writes is on its device before the run relies on that; False: in its own time
    "fingerprints": True,  # whether a finished target keeps those of its source's chunks, by which `update` goes
    "record-every": "10s",  # time after which what is done of a part is recorded: so much is lost of a slow run
    "assembly": "synchronous",  # of a rechunk; or "asynchronous": messages are unpacked in the order of arrival
    "schedule": "auto",  # order of messages, such as "pex", "coloring", "unordered"; "auto": of least predicted time
    "steps-below": 8,  # ranks from which a rechunk in steps on workers has one task per rank for all steps of a round
    "collective-buffer": "64MiB",  # bytes that a rank reads for all at one time, at most, or one chunk
    "same-machine": True,  # whether workers of one machine get messages out of each other's memory, where they can
    "give-up": "60s",  # time after which a run stops whose workers are paused, or all gone
    "requests": 64,  # that a process has under way at one time, at most, to stores that are not on this machine
    "sieve-buffer": None,  # bytes of one of the four buffers that sections are sieved in; None: 4 MiB, of stores 8 MiB
    "whole-array-limit": None,  # bytes that `a[...]` reads at once, at most; None: half of what the machine has free
    "read-ahead": "256MiB",  # bytes that `OutOfCoreArray.prefetch` has read, or is reading, and nobody has taken yet
    "retries": 6,  # of a request to such a store that fails in passing, by obstore or botocore: after 0.1 s to 5 s
    "request-timeout": "60s",  # time that one such attempt may take
    "store-library": None,  # "obstore" or "fsspec"; None: obstore, where it is there and knows all that is asked for
    "patience": "10s",  # time to wait for a worker that takes the place of a lost one, before others share its ranks
    "networks": None,  # constants by kind of network, {"mesh": "delta", …}: see oocarrays.options.networks; None: known
    "disks": None,  # what `oocarrays calibrate --disks` has measured of disks of striped arrays; None: nothing
    "missing": "fill",  # what is made of a chunk that a source lacks: its "fill" value, that and "warn", or an "error"
    "cost": {
        name: None if name in COMPUTED else value for name, value in asdict(Costs()).items()
    },  # see oocarrays.plan.machine
}

dask.config.update_defaults({"oocarrays": DEFAULTS})


def setting(name: str) -> Any:
    """The value of ``oocarrays.<name>``."""
    return dask.config.get(f"oocarrays.{name}")
