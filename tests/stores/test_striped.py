"""Prefixes of object stores as disks, beside a folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import oocarrays as ooc
from oocarrays.errors import InputError
from tests.seams import store_at, verify_disks
from tests.stores.servers import S3

pytestmark = pytest.mark.long

DATA = np.arange(48 * 40, dtype="f4").reshape(48, 40)


@pytest.mark.parametrize("block", [None, 300])
def test_buckets_and_folders_hold_one_array(s3: S3, library: str, tmp_path: Path, block: int | None) -> None:
    places = [s3.url(f"{library}-{block}-disk"), s3.url(f"{library}-{block}-other"), str(tmp_path)]
    disks = [f"{place}/x.zarr" for place in places]
    store = ooc.disks.StripedStore(disks, block=block, storage_options=s3.direct)
    array = ooc.create_array(ooc.Target(store, compressors=()), shape=DATA.shape, chunks=(8, 40), dtype="f4")
    array[...] = DATA
    url = f"striped://{','.join(disks[::-1])}"
    again = ooc.open_array(url, storage_options=s3.direct)
    assert (again[...] == DATA).all()
    assert (again[3:30:4, 7:20:3] == DATA[3:30:4, 7:20:3]).all()
    target = f"striped://{','.join(places)}!y.zarr"
    job = ooc.rechunk(url, target, chunks=(48, 5), storage_options=s3.direct, memory="128MiB", scheduler="threads")
    assert (job.run()[...] == DATA).all()
    for inside in (f"striped://{','.join(disks)}!inside.zarr", f"{disks[1]}/c", f"{disks[2]}/c"):
        with pytest.raises(InputError, match="are one inside the other"):
            ooc.rechunk(url, inside, chunks=(48, 5), storage_options=s3.direct, scheduler="threads")
    assert verify_disks(store_at(url, s3.direct)).faults == ()
    assert s3.keys(f"{library}-{block}-other/x.zarr/c/")
    with pytest.raises(InputError, match="3 disks, and 2 are given"):
        ooc.open_array(f"striped://{','.join(disks[:2])}", storage_options=s3.direct)
