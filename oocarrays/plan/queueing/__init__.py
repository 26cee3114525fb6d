"""Closed queueing networks of requests to several disks: their predictions, and the block and buffers they advise."""
