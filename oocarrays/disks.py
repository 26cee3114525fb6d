"""Files and stores that are striped over several disks, and plans for them."""

from oocarrays.graphs.calibrate.striping import plan_striping as plan_striping
from oocarrays.storage.striped.file import StripedFile as StripedFile
from oocarrays.storage.striped.moving import open_striped as open_striped
from oocarrays.storage.striped.store import StripedStore as StripedStore
