"""One logical file, or one Zarr store, over many disks: folders, mounts, buckets."""
