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

from oocarrays import errors, kernels, testing
from oocarrays.advice.advising import Advice
from oocarrays.arrays.array import OutOfCoreArray
from oocarrays.arrays.comparing import Comparison, compare
from oocarrays.arrays.creating import create_array, open_array
from oocarrays.arrays.groups import OutOfCoreGroup, open_group
from oocarrays.arrays.local_array import LocalArrays
from oocarrays.distributed.collective import read_sections
from oocarrays.distributed.distributed_array import DistributedArray
from oocarrays.distributed.distributing import distribute, redistribute
from oocarrays.distributed.rank_blocks import RankBlocks
from oocarrays.distributed.section_arrays import SectionArrays
from oocarrays.errors import OocError
from oocarrays.graphs.calibrate.striping import plan_striping
from oocarrays.jobs.collective_writes import CollectiveWriteJob, write_sections
from oocarrays.jobs.converting import FilesJob, gather_files, scatter_files
from oocarrays.jobs.group import GroupJob
from oocarrays.jobs.iterating import IterateJob, iterate
from oocarrays.jobs.lazy import FromDaskJob, from_dask
from oocarrays.jobs.lazy_dataset import DatasetJob
from oocarrays.jobs.multicasting import multicast
from oocarrays.jobs.rechunking import RechunkJob, clean, rechunk
from oocarrays.jobs.shift_job import ShiftJob
from oocarrays.jobs.shifting import shift
from oocarrays.jobs.slabs import SlabJob, map_slabs
from oocarrays.jobs.storing import store
from oocarrays.leftovers.resume import resume
from oocarrays.mapping.layouts.distribution import Block, Collapsed, Cyclic, GenBlock
from oocarrays.mapping.layouts.layout import Layout
from oocarrays.mapping.section import Section
from oocarrays.options.clusters import planned_cluster as Cluster
from oocarrays.plan.advice.trace import Trace
from oocarrays.plan.layouts.saved import load_plan
from oocarrays.show.counting import count_requests
from oocarrays.storage.metered import metered
from oocarrays.storage.striped.file import StripedFile
from oocarrays.storage.striped.opening import open_striped
from oocarrays.storage.striped.store import StripedStore
from oocarrays.streaming.on_workers import RankStreams
from oocarrays.streaming.opening import open_streams, streams_from_ragged
from oocarrays.streaming.ragged import Ragged
from oocarrays.streaming.streams import Streams
from oocarrays.tracing.tracing import trace, traced

__version__ = "0.5.0"
__all__ = [
    "Advice",
    "Block",
    "Cluster",
    "Collapsed",
    "CollectiveWriteJob",
    "Comparison",
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
    "Ragged",
    "RankBlocks",
    "RankStreams",
    "RechunkJob",
    "Section",
    "SectionArrays",
    "ShiftJob",
    "SlabJob",
    "Streams",
    "StripedFile",
    "StripedStore",
    "Trace",
    "clean",
    "compare",
    "count_requests",
    "create_array",
    "distribute",
    "errors",
    "from_dask",
    "gather_files",
    "iterate",
    "kernels",
    "load_plan",
    "map_slabs",
    "metered",
    "multicast",
    "open_array",
    "open_group",
    "open_streams",
    "open_striped",
    "plan_striping",
    "read_sections",
    "rechunk",
    "redistribute",
    "resume",
    "scatter_files",
    "shift",
    "store",
    "streams_from_ragged",
    "testing",
    "trace",
    "traced",
    "write_sections",
]
