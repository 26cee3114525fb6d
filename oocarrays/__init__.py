"""Out-of-core arrays on Dask and Zarr: rewrite arrays larger than memory in a memory budget."""

from __future__ import annotations

try:
    import oocarrays.graphs as graphs  # noqa: F401  "from oocarrays" would call what is missing a circular import
except ModuleNotFoundError as error:
    if error.name != "oocarrays.graphs":
        raise
    raise ModuleNotFoundError(
        "oocarrays.graphs is not found: Python was started in the repository, whose folder oocarrays/ hides the "
        "installed package, and its link oocarrays/graphs is not there; start Python elsewhere, or make the link: "
        "ln -s ../graphs oocarrays/graphs",
        name=error.name,
    ) from None

from oocarrays import errors, kernels
from oocarrays.api import RechunkJob, clean, rechunk, resume
from oocarrays.array import OutOfCoreArray
from oocarrays.collective import read_sections
from oocarrays.collective_writes import CollectiveWriteJob, write_sections
from oocarrays.converting import FilesJob, gather_files, scatter_files
from oocarrays.counting import count_requests
from oocarrays.distributed_array import DistributedArray
from oocarrays.distributing import distribute, redistribute
from oocarrays.errors import OocError
from oocarrays.files import create_array, open_array
from oocarrays.group_job import GroupJob
from oocarrays.groups import OutOfCoreGroup, open_group
from oocarrays.iterating import IterateJob, iterate
from oocarrays.lazy import FromDaskJob, from_dask
from oocarrays.lazy_dataset import DatasetJob
from oocarrays.local_array import LocalArrays
from oocarrays.mapping.distribution import Block, Collapsed, Cyclic, GenBlock
from oocarrays.mapping.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.multicasting import multicast
from oocarrays.rank_blocks import RankBlocks
from oocarrays.section_arrays import SectionArrays
from oocarrays.shift_job import ShiftJob
from oocarrays.shifting import shift
from oocarrays.slabs import SlabJob, map_slabs
from oocarrays.storage.metered import metered
from oocarrays.storing import store

__version__ = "0.5.0"
__all__ = [
    "Block",
    "Collapsed",
    "CollectiveWriteJob",
    "Cyclic",
    "DatasetJob",
    "DistributedArray",
    "FilesJob",
    "FromDaskJob",
    "GenBlock",
    "GroupJob",
    "IterateJob",
    "Layout",
    "LocalArrays",
    "OocError",
    "OutOfCoreArray",
    "OutOfCoreGroup",
    "RankBlocks",
    "RechunkJob",
    "Section",
    "SectionArrays",
    "ShiftJob",
    "SlabJob",
    "clean",
    "count_requests",
    "create_array",
    "distribute",
    "errors",
    "from_dask",
    "gather_files",
    "iterate",
    "kernels",
    "map_slabs",
    "metered",
    "multicast",
    "open_array",
    "open_group",
    "read_sections",
    "rechunk",
    "redistribute",
    "resume",
    "scatter_files",
    "shift",
    "store",
    "write_sections",
]
