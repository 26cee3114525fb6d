"""A plan becomes a Dask graph; running it."""
