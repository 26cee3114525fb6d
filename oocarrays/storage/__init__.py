"""Storage: Zarr array files, chunks in stores, codecs, and the meter of actual requests and bytes."""
