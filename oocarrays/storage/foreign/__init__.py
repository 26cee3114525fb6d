"""Files that are not Zarr, read as if they were: NetCDF, HDF5, TIFF, numpy's files, raw ones."""
