"""Stored arrays: access by sections, by slabs, ahead of time, and as lazy arrays."""
