"""Reductions: how an array is cut for one, who reduces what, and where partial results meet."""
