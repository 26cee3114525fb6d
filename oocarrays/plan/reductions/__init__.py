"""Reductions: the cut of an array, the ranks of its segments, and the exchange of partial results."""
