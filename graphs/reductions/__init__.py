"""Reductions as tasks: boxes are reduced to partial results, and these to the result."""
