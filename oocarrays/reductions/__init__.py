"""Reductions: a result at once, or a job that writes one."""
