"""The peers: one file each, chosen by name.

A peer module has `run(job)`, which makes `job.target` and returns a dict of whatever it knows (`tasks`,
`note`, …); imports stand at its top, so that a missing package shows at once. One that keeps processes or a
cluster has `workers(job)` too, a context entered before the clock starts, whose value is given to
`run(job, workers)`.

A name may carry a variant and a factor on its budget: `tensorstore:staged`, `dask-p2p@4`.
"""

from __future__ import annotations

from dataclasses import dataclass

MODULES = {
    "oocarrays": "peers.oocarrays",
    "limit": "peers.limit",
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

    @property
    def zarr_format(self) -> int:
        """Format of the source it reads: rechunker knows only the second."""
        return 2 if self.module == "peers.rechunker" else 3


def entry(label: str) -> Entry:
    """The entry that `name[:variant][@factor]` stands for; ValueError where no peer has this name."""
    rest, _, factor = label.partition("@")
    name, _, variant = rest.partition(":")
    if name not in MODULES:
        raise ValueError(f"no peer {name!r}; there are {', '.join(MODULES)}")
    return Entry(label, MODULES[name], variant, float(factor or 1))
