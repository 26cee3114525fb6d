"""What `import oocarrays` gives: type checkers read it here, and so does `oocarrays/__init__.py`."""

from oocarrays import (
    advise as advise,
    disks as disks,
    errors as errors,
    kernels as kernels,
    networks as networks,
    ranks as ranks,
    streams as streams,
    testing as testing,
)
from oocarrays.arrays.array import OutOfCoreArray as OutOfCoreArray
from oocarrays.arrays.creating import create_array as create_array, open_array as open_array
from oocarrays.arrays.groups import OutOfCoreGroup as OutOfCoreGroup, open_group as open_group
from oocarrays.comparing import Comparison as Comparison, compare as compare
from oocarrays.errors import OocError as OocError
from oocarrays.jobs.iterating import iterate as iterate
from oocarrays.jobs.job import Job as Job
from oocarrays.jobs.pyramid import pyramid as pyramid
from oocarrays.jobs.rechunking import clean as clean, rechunk as rechunk, update as update
from oocarrays.jobs.slabs import map_slabs as map_slabs
from oocarrays.jobs.storing import store as store
from oocarrays.mapping.layouts.distribution import (
    Block as Block,
    Collapsed as Collapsed,
    Cyclic as Cyclic,
    GenBlock as GenBlock,
)
from oocarrays.mapping.layouts.layout import Layout as Layout
from oocarrays.mapping.section import Section as Section
from oocarrays.options.given import Resources as Resources, Target as Target
from oocarrays.options.shapes import Results as Results
from oocarrays.recovery.resume import resume as resume
from oocarrays.reductions.reducing import reduce as reduce
from oocarrays.storage.foreign.places import open_files as open_files

__version__: str
__all__: list[str]
