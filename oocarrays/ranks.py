"""Arrays in parts of ranks: sections, layouts, exchanges, and files of ranks.

read_sections, write_sections     a section of a stored array for each rank, each chunk once
distribute, redistribute          an array over ranks, and its change of layout
exchange, shift, multicast        rows from each rank to each, borders of neighbours, one section to all
scatter_files, gather_files       one array file, and one a rank
plan_redistribution, load_plan    plans without data, on the model of a network"""

from oocarrays.arrays.local_array import LocalArrays as LocalArrays
from oocarrays.distributed.collective import (
    SectionArrays as SectionArrays,
    partitions as partitions,
    read_sections as read_sections,
)
from oocarrays.distributed.distributed_array import DistributedArray as DistributedArray
from oocarrays.distributed.exchanging import (
    distribute as distribute,
    exchange as exchange,
    plan_redistribution as plan_redistribution,
    redistribute as redistribute,
)
from oocarrays.distributed.rank_arrays import RankBlocks as RankBlocks
from oocarrays.jobs.collective_writes import write_sections as write_sections
from oocarrays.jobs.converting import gather_files as gather_files, scatter_files as scatter_files
from oocarrays.jobs.shifting import multicast as multicast, shift as shift
from oocarrays.plan.exchange.schedule import Schedule as Schedule
from oocarrays.plan.layouts.redistribution import Redistribution as Redistribution, load_plan as load_plan
from oocarrays.show.exchanges import count_requests as count_requests
