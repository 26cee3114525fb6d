"""Comparison of two stored arrays, or of two groups."""
