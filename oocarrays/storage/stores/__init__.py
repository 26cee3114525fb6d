"""Bytes under keys in any Zarr store: store locations, and access to remote stores."""
