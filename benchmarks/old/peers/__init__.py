"""The peers: one file each, chosen by name.

A peer module has `run(job)`, which makes `job.target` and returns a dict of whatever it knows (`tasks`,
`note`, …); imports stand at its top, so that a missing package shows at once. One that keeps processes or a
cluster has `workers(job)` too, a context entered before the clock starts, whose value is given to
`run(job, workers)`.

A name may carry a variant, a factor on its budget, and a fault that befalls the run: `tensorstore:staged`,
`dask-p2p@4`, `oocarrays:two-phase+kill-50`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FAULT = r"(kill|resume)-[0-9]{1,2}"
"""How a fault is written."""

MODULES = {
    "oocarrays": "peers.oocarrays",
    "limit": "peers.limit",
    "limit-inplace": "peers.limit_inplace",
    "limit-append": "peers.limit_append",
    "tensorstore": "peers.tensorstore",
    "zarr-loop": "peers.zarr_loop",
    "zarrs-loop": "peers.zarrs_loop",
    "dask-tasks": "peers.dask_tasks",
    "dask-p2p": "peers.dask_p2p",
    "cubed": "peers.cubed",
    "rechunker": "peers.rechunker",
    "planning": "peers.planning",
}
"""Module of every peer by the name that a person types."""

CLUSTER = {
    "oocarrays": "peers.oocarrays_cluster",
    "p2p": "peers.dask_p2p",
    "tasks": "peers.dask_tasks",
}
"""The same of the peers that meet on a cluster."""

WATCHED = "workers.json"
"""File beside the target in which a peer's cluster keeps what befalls its workers, see `peers.watch`."""

DEFAULT = tuple(name for name in MODULES if name != "planning")
"""Who takes part when nobody is named."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One peer as it takes part in one benchmark."""

    label: str
    """The name as typed, variant and factor included."""
    module: str
    """Module to import."""
    variant: str
    """Way of working that the module understands; empty is its best."""
    factor: float
    """The budget it gets is the case's times this."""
    fault: str = ""
    """What befalls the run, see `Job.fault`."""

    @property
    def zarr_format(self) -> int:
        """Format of the source it reads: rechunker knows only the second."""
        return 2 if self.module == "peers.rechunker" else 3


def entry(label: str, modules: dict[str, str] = MODULES) -> Entry:
    """Return the entry that `name[:variant][@factor][+fault]` stands for; ValueError where no peer has this name."""
    rest, _, fault = label.partition("+")
    rest, _, factor = rest.partition("@")
    name, _, variant = rest.partition(":")
    if name not in modules:
        raise ValueError(f"no peer {name!r}; there are {', '.join(modules)}")
    if fault and not (re.fullmatch(FAULT, fault) and modules[name] == CLUSTER["oocarrays"]):
        raise ValueError(f"no fault {fault!r} for {name}; write oocarrays+kill-50 or oocarrays+resume-50, on a cluster")
    return Entry(label, modules[name], variant, float(factor or 1), fault)
