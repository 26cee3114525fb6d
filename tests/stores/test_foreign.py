"""Files that are not Zarr, over S3's own interface: only their metadata and the bytes that are wanted are fetched."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import tifffile
import zarr
from astropy.io import fits
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

import oocarrays as ooc
from oocarrays.errors import NotFoundError, RunError
from tests.flat import flat
from tests.seams import store_at
from tests.stores.servers import S3

pytestmark = [pytest.mark.long, pytest.mark.sampled(2)]

AIR = np.random.default_rng(2).normal(280, 10, (24, 60, 50)).astype("f4")


def put(s3: S3, name: str, data: bytes) -> str:
    folder, _, key = name.rpartition("/")
    sync(store_at(s3.url(folder), s3.direct).set(key, default_buffer_prototype().buffer.from_bytes(data)))
    return s3.url(name)


def hdf5(data: np.ndarray) -> bytes:
    made = io.BytesIO()
    with h5py.File(made, "w") as file:
        x = file.create_dataset(
            "deep/air", data=data, chunks=(6, 60, 50), maxshape=(None, 60, 50), compression="gzip", shuffle=True
        )
        time = file.create_dataset("time", data=np.arange(len(data)), maxshape=(None,), chunks=(24,))
        time.make_scale("time")
        x.dims[0].attach_scale(time)
    return made.getvalue()


def test_arrays_of_a_file_in_a_bucket_are_sources(s3: S3, library: str, tmp_path: Path) -> None:
    url = put(s3, f"hdf5-{library}/a.nc", hdf5(AIR))
    how: Any = {"storage_options": s3.options}
    for place in (f"{url}/deep/air", f"{url}:/deep/air"):
        a = ooc.open_array(place, **how)
        np.testing.assert_array_equal(a[...], AIR)
        np.testing.assert_array_equal(a[3, 5:9, ::7], AIR[3, 5:9, ::7])
    job = flat(ooc.rechunk, f"{url}/deep/air", tmp_path / "b.zarr", chunks=(24, 10, 10), memory="64MiB", **how)
    np.testing.assert_array_equal(job.run()[...], AIR)
    assert job.meter.read_requests == 4
    assert "deep/air" in ooc.open_group(url, **how)


def test_files_in_a_bucket_are_joined(s3: S3, library: str, tmp_path: Path) -> None:
    for day in range(3):
        put(s3, f"days-{library}/{day}.nc", hdf5(AIR + day))
    job = ooc.rechunk(
        f"{s3.url(f'days-{library}')}/*.nc/deep/air", s3.url(f"series-{library}"), chunks=(72, 10, 10), memory="128MiB",
        storage_options=s3.options, overwrite=True,
    )  # fmt: skip
    np.testing.assert_array_equal(job.run()[...], np.concatenate([AIR, AIR + 1, AIR + 2]))


def test_a_file_that_was_written_again_is_not_read_as_it_was(s3: S3, library: str) -> None:
    url = put(s3, f"again-{library}/a.h5", hdf5(AIR))
    a = ooc.open_array(f"{url}/deep/air", storage_options=s3.options)
    put(s3, f"again-{library}/a.h5", hdf5(AIR[:6]))
    with pytest.raises(RunError, match=r"changed since it was opened|cannot read"):
        a[...]


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_images_and_arrays_of_numpy_in_a_bucket_are_sources(s3: S3, library: str, compression: Any) -> None:
    image, made = AIR[0], io.BytesIO()
    tifffile.imwrite(made, image, tile=(16, 32), compression=compression)
    url = put(s3, f"images-{library}/{compression}.tif", made.getvalue())
    np.testing.assert_array_equal(ooc.open_array(url, storage_options=s3.options)[...], image)
    made = io.BytesIO()
    np.save(made, AIR)
    url = put(s3, f"images-{library}/{compression}.npy", made.getvalue())
    np.testing.assert_array_equal(ooc.open_array(url, storage_options=s3.options)[::3, 7], AIR[::3, 7])


def test_what_is_not_there_is_not_found(s3: S3, library: str) -> None:
    put(s3, f"none-{library}/a.h5", hdf5(AIR))
    for name in ("b.h5", "*.tif", "a.h5/cloud"):
        with pytest.raises(NotFoundError):
            ooc.open_array(f"{s3.url(f'none-{library}')}/{name}", storage_options=s3.options)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_zip_file_in_a_bucket_is_a_source(s3: S3, library: str, tmp_path: Path, compression: int) -> None:
    with zarr.storage.ZipStore(tmp_path / "a.zip", mode="w", compression=compression) as store:
        zarr.create_array(store, name="deep/air", data=AIR, chunks=(6, 60, 50), compressors=None)
    url, how = (
        put(s3, f"zip-{library}/{compression}.zip", (tmp_path / "a.zip").read_bytes()),
        {"storage_options": s3.options},
    )
    a = ooc.open_array(f"{url}/deep/air", **how)
    np.testing.assert_array_equal(a[...], AIR)
    np.testing.assert_array_equal(a[7, 5:9, ::7], AIR[7, 5:9, ::7])
    assert "deep/air" in ooc.open_group(url, **how)
    job = flat(ooc.rechunk, f"{url}/deep/air", tmp_path / "b.zarr", chunks=(24, 10, 10), memory="64MiB", **how)
    np.testing.assert_array_equal(job.run()[...], AIR)
    with pytest.raises(NotFoundError, match="cannot be opened as a zip file"):
        ooc.open_array(put(s3, f"zip-{library}/bad.zip", b"PK\3\4" + bytes(100)), **how)
    with pytest.raises(NotFoundError, match="no Zarr array"):
        ooc.open_array(f"{url}/deep/cloud", **how)


@pytest.mark.parametrize("dtype", ["f4", "u2"])
def test_images_of_fits_files_in_a_bucket_are_sources(s3: S3, library: str, tmp_path: Path, dtype: str) -> None:
    """Plain elements by byte ranges; unsigned ones are made of what is read."""
    data, made = AIR.astype(dtype), io.BytesIO()
    fits.HDUList([fits.PrimaryHDU(), fits.ImageHDU(data, name="SCI")]).writeto(made)
    url = put(s3, f"fits-{library}/{dtype}.fits", made.getvalue())
    how: Any = {"storage_options": s3.options}
    for place in (f"{url}/SCI", f"{url}:/SCI"):
        a = ooc.open_array(place, **how)
        np.testing.assert_array_equal(a[3, 5:9, ::7], data[3, 5:9, ::7])
    job = flat(ooc.rechunk, f"{url}/SCI", tmp_path / "b.zarr", chunks=(24, 10, 10), memory="64MiB", **how)
    np.testing.assert_array_equal(job.run()[...], data)
    assert list(ooc.open_group(url, **how)) == ["SCI"]
    cut = put(s3, f"fits-{library}/{dtype}-cut.fits", made.getvalue()[:-2880])
    with pytest.raises(NotFoundError, match="is a damaged FITS file"):
        ooc.open_group(cut, **how)
