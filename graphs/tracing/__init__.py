"""Sections of stored arrays that a graph or a run reads and writes."""
