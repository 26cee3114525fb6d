"""Read-only access to other formats as Zarr: NetCDF, HDF5, TIFF, FITS, numpy's files, raw ones."""
