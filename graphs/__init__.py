"""Dask graphs of plans, and their execution."""
