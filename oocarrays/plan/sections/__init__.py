"""Sections of a stored array: which byte ranges to ask for, and what writing does to its chunks."""
