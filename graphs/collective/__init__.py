"""Collective reads and writes, and multicasts, as tasks."""
