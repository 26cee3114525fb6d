"""Frozen plans and the arithmetic that makes them. No I/O, no Dask, no Zarr."""
