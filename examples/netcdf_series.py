"""Files of NetCDF-4, one for each decade and packed each in its own way, as one array: rewritten as time series.

xarray writes the files. They are read where they lie, byte range by byte range; no copy in Zarr is made of them first.
Joined as they are stored, values would be wrong by degrees: each file is decoded by its own attributes.
"""

import tempfile
from pathlib import Path

import numpy as np
import xarray as xr

import oocarrays as ooc

DATA = Path(__file__).parent / "data" / "air_temperature.npz"
YEARS = 10

if __name__ == "__main__":
    data = np.load(DATA)
    axes = ("time", "latitude", "longitude")
    air = xr.DataArray(data["air_temperature"], {axis: data[axis] for axis in axes}, axes, attrs={"units": "K"})
    dataset = xr.Dataset({"air": air}, attrs={"title": "yearly surface air temperature"})
    with tempfile.TemporaryDirectory() as folder:
        for start in range(0, dataset.sizes["time"], YEARS):
            decade = dataset.isel(time=slice(start, start + YEARS))
            offset = float(decade.air.mean())
            packing = {
                "dtype": "int32",
                "scale_factor": 1e-5,
                "add_offset": offset,
                "_FillValue": -(2**31),
                "zlib": True,
            }
            decade.to_netcdf(f"{folder}/{start:03d}.nc", engine="h5netcdf", encoding={"air": packing})

        decades = ooc.open_files(f"{folder}/*.nc", concat_dim="time")
        print(ooc.open_group(decades))
        job = ooc.rechunk(decades, f"{folder}/series.zarr", chunks={"air": (-1, 1, 1)}, memory="64MiB")
        print(job)
        job.run(progress=True)

        with xr.open_zarr(f"{folder}/series.zarr", consolidated=False) as opened:
            np.testing.assert_allclose(opened.air, dataset.air, atol=1e-5)
            xr.testing.assert_equal(opened.time, dataset.time)
            here = opened["air"].sel(latitude=43.7, longitude=280.6, method="nearest")
            print(f"Toronto: {float(here[-30:].mean() - here[:30].mean()):+.2f} K in {len(here)} years")
