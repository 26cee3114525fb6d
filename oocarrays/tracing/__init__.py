"""Traces of a program's reads and writes of stored arrays."""
