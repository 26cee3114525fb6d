"""Lazy arrays: grouping of blocks that are read or written together."""
