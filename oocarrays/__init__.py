"""Out-of-core arrays on Dask and Zarr: rewrite arrays larger than memory within a memory budget."""

from __future__ import annotations

import ast
import logging
import os
from importlib import import_module
from pathlib import Path
from typing import Any

if os.name == "nt":
    raise ImportError("oocarrays runs on Linux, not on Windows: it needs POSIX file locks and memory maps (WSL works)")
try:
    import oocarrays.graphs as _graphs  # noqa: F401  a missing module would be reported as a circular import
except ModuleNotFoundError as error:
    if error.name != "oocarrays.graphs":
        raise
    raise ModuleNotFoundError(
        "oocarrays.graphs is not found: Python was started in the repository, whose folder oocarrays/ hides the "
        "installed package, and its link oocarrays/graphs is not there; start Python elsewhere, or make the link: "
        "ln -s ../graphs oocarrays/graphs",
        name=error.name,
    ) from None

__version__ = "0.6.0"

logging.getLogger(__name__).addHandler(logging.NullHandler())  # silent unless logging is configured


def _listed() -> dict[str, str]:
    """Return the module of each public name, as the stub beside this file lists them for type checkers."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    lines = [line for line in stub.body if isinstance(line, ast.ImportFrom) and line.module]
    return {name.asname or name.name: f"{line.module}.{name.name}" for line in lines for name in line.names}


_HOMES = _listed()
__all__ = sorted(_HOMES)


_MOVED = {
    name: f"oocarrays.{space}.{name}"
    for space, names in {
        "ranks": "DistributedArray LocalArrays RankBlocks Redistribution Schedule SectionArrays count_requests "
        "distribute exchange gather_files load_plan multicast plan_redistribution read_sections redistribute "
        "scatter_files shift write_sections",
        "streams": "RankStreams Ragged Streams open_streams streams_from_ragged",
        "disks": "StripedFile StripedStore open_striped plan_striping",
        "advise": "Advice Trace metered trace traced",
        "networks": "Dragonfly FatTree FlatCluster Hypercube Mesh Torus",
    }.items()
    for name in names.split()
} | {
    "Cluster": "oocarrays.networks.planned_cluster",
    "files": "oocarrays.open_files",
    "from_dask": "oocarrays.rechunk, which also takes Dask arrays,",
}  # fmt: skip
"""Where the names of version 0.5 are now; removed in 0.7."""
_OTHERS = {
    "map_blocks": "map_slabs", "map_overlap": "map_slabs(f, source, target, depth=…)", "from_zarr": "open_array",
    "open_zarr": "open_array, open_group or oocarrays.xarray.open_dataset", "open_dataset": "xarray.open_dataset",
    "to_zarr": "store, or oocarrays.rechunk", "Spec": "Resources",
}  # fmt: skip
"""What the names of Dask, cubed and xarray are here."""


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing all takes most of a second."""
    if name in _MOVED:
        raise ImportError(f"oocarrays.{name} is {_MOVED[name]} now", name=__name__)
    if name in _OTHERS:
        raise ImportError(f"oocarrays.{name} is oocarrays.{_OTHERS[name]} here", name=__name__)
    if name.endswith("Job") and name not in _HOMES:
        raise ImportError(f"oocarrays.{name} is not public now: all jobs are instances of oocarrays.Job", name=__name__)
    if name == "xarray":  # an extra, so that ``from oocarrays import *`` does without it
        return import_module("oocarrays.xarray")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home, _, last = _HOMES[name].rpartition(".")
    value = import_module(_HOMES[name]) if home == __name__ else getattr(import_module(home), last)
    return globals().setdefault(name, value)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
