"""Bytes under keys in any Zarr store: places, and what lies in stores that are not on this machine."""
