"""Files that are not Zarr, read as if they were: NetCDF-4 and HDF5, TIFF, numpy's files, raw ones."""
