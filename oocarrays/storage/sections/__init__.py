"""Sections of array files, read and written by byte ranges; windows; packing and unpacking of messages."""
