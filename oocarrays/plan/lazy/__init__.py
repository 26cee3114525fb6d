"""Lazy arrays: which of their blocks are read or written together."""
