"""Comparing what is stored: two arrays, or two groups."""
