"""Closed queueing networks of requests to several disks: what they predict, and which block and buffers they advise."""
