"""Writes of lazy arrays into stored ones, which they may be computed from."""
