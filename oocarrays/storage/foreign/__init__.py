"""Files that are not Zarr, read as if they were: NetCDF, HDF5, TIFF, FITS, numpy's files, raw ones."""
