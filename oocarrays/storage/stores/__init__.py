"""Bytes under keys, on local disks and in any Zarr store: places, blobs, pages, ranges, and durability."""
