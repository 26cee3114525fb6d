"""Bytes: array files in Zarr, chunks in stores, codecs, and the meter that counts what really happens."""
