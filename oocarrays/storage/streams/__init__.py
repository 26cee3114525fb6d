"""Stream files in Zarr groups: rows of NB and CB, superblocks and directories of IB."""
