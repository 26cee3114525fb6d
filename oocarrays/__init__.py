"""Out-of-core arrays on Dask and Zarr: rewrite arrays larger than memory in a memory budget."""

from __future__ import annotations

try:
    from oocarrays import graphs as graphs
except ModuleNotFoundError as error:
    if error.name != "oocarrays.graphs":
        raise
    raise ModuleNotFoundError(
        "oocarrays.graphs is not found: Python was started in the repository, whose folder oocarrays/ hides the "
        "installed package; install with 'pip install -e .', or start Python elsewhere",
        name=error.name,
    ) from None

from oocarrays import errors
from oocarrays.api import RechunkJob, clean, rechunk, resume
from oocarrays.array import OutOfCoreArray, open_array
from oocarrays.errors import OocError
from oocarrays.groups import GroupJob, OutOfCoreGroup, open_group
from oocarrays.lazy import FromDaskJob, from_dask
from oocarrays.lazy_dataset import DatasetJob

__version__ = "0.2.0"
__all__ = [
    "DatasetJob",
    "FromDaskJob",
    "GroupJob",
    "OocError",
    "OutOfCoreArray",
    "OutOfCoreGroup",
    "RechunkJob",
    "clean",
    "errors",
    "from_dask",
    "open_array",
    "open_group",
    "rechunk",
    "resume",
]
