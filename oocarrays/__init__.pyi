"""What `import oocarrays` gives: type checkers read it here, and so does `oocarrays/__init__.py`."""

from oocarrays import advise as advise
from oocarrays import disks as disks
from oocarrays import errors as errors
from oocarrays import kernels as kernels
from oocarrays import networks as networks
from oocarrays import ranks as ranks
from oocarrays import streams as streams
from oocarrays import testing as testing
from oocarrays.arrays.array import OutOfCoreArray as OutOfCoreArray
from oocarrays.arrays.creating import create_array as create_array
from oocarrays.arrays.creating import open_array as open_array
from oocarrays.arrays.groups import OutOfCoreGroup as OutOfCoreGroup
from oocarrays.arrays.groups import open_group as open_group
from oocarrays.comparing import Comparison as Comparison
from oocarrays.comparing import compare as compare
from oocarrays.errors import OocError as OocError
from oocarrays.jobs.iterating import iterate as iterate
from oocarrays.jobs.job import Job as Job
from oocarrays.jobs.pyramid import pyramid as pyramid
from oocarrays.jobs.rechunking import clean as clean
from oocarrays.jobs.rechunking import rechunk as rechunk
from oocarrays.jobs.rechunking import update as update
from oocarrays.jobs.slabs import map_slabs as map_slabs
from oocarrays.jobs.storing import store as store
from oocarrays.mapping.layouts.distribution import Block as Block
from oocarrays.mapping.layouts.distribution import Collapsed as Collapsed
from oocarrays.mapping.layouts.distribution import Cyclic as Cyclic
from oocarrays.mapping.layouts.distribution import GenBlock as GenBlock
from oocarrays.mapping.layouts.layout import Layout as Layout
from oocarrays.mapping.section import Section as Section
from oocarrays.options.given import Resources as Resources
from oocarrays.options.given import Target as Target
from oocarrays.options.shapes import Results as Results
from oocarrays.recovery.resume import resume as resume
from oocarrays.reductions.reducing import reduce as reduce
from oocarrays.storage.foreign.places import open_files as open_files

__version__: str
__all__: list[str]
