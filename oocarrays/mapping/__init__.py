"""Integers only: sections, chunk grids, distributions. No I/O, no Dask, no Zarr."""
