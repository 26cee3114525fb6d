"""Page of runs in the dashboard of a Dask scheduler."""
