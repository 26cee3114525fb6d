"""Dask graphs of plans, and their execution.

Defaults of settings under ``oocarrays.*`` in Dask's configuration, with their units, are here: this package is loaded
with `oocarrays`, and its modules with the functions that need them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import dask.config

from oocarrays.plan.machine import Costs

DEFAULTS: dict[str, Any] = {
    "memory": None,  # of a process, as "1GiB"; None: half of the free memory; of a worker, up to its spill threshold
    "ranks": None,  # logical processors; None: the plan chooses
    "scratch": None,  # folder for scratch arrays; None: beside the target, or the system's temporary folder
    "past-cache-above": "512MiB",  # bytes: a job that writes more bypasses the page cache
    "durable": True,  # whether a run syncs its writes to the device before relying on them; False: the system decides
    "fingerprints": True,  # whether a finished target keeps the fingerprints of its source's chunks, for `update`
    "record-every": "10s",  # interval at which progress within a part is recorded: the most that a slow run loses
    "assembly": "synchronous",  # of a rechunk; or "asynchronous": messages are unpacked in the order of arrival
    "schedule": "auto",  # order of messages, such as "pex", "coloring", "unordered"; "auto": the least predicted time
    "collective-buffer": "64MiB",  # maximum bytes that a rank reads for all ranks at one time, or one chunk
    "same-machine": True,  # whether workers of one machine share the memory of messages, if possible
    "give-up": "60s",  # time after which a run stops if its workers are paused or all gone
    "requests": 64,  # maximum number of concurrent requests of a process to remote stores
    "sieve-buffer": None,  # bytes of one of the four buffers for sieved sections; None: 4 MiB, for stores 8 MiB
    "whole-array-limit": None,  # maximum bytes that `a[...]` reads at once; None: half of the machine's free memory
    "read-ahead": "256MiB",  # maximum bytes read by `OutOfCoreArray.prefetch`, or being read, and not yet used
    "retries": 6,  # of a remote request after a transient failure, by obstore or botocore: after 0.1 s to 5 s
    "request-timeout": "60s",  # time limit of one such attempt
    "store-library": None,  # "obstore" or "fsspec"; None: obstore, if installed and it supports every option
    "patience": "10s",  # time to wait for a replacement of a lost worker, before others share its ranks
    "networks": None,  # constants by kind of network, {"mesh": "delta", …}: see [ranks](ranks.md); None: known
    "disks": None,  # measurements of disks of striped arrays by `oocarrays calibrate --disks`; None: none
    "missing": "fill",  # policy for a chunk missing in a source: "fill" value, fill and "warn", or "error"
    "cost": {
        name: None if name in ("cores", "cache_bytes") else value  # computed from the machine when a plan is made
        for name, value in asdict(Costs()).items()
    },  # see oocarrays.plan.machine
}

dask.config.update_defaults({"oocarrays": DEFAULTS})
