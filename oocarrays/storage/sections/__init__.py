"""Sections of array files, read and written by byte ranges; windows; messages packed and unpacked."""
