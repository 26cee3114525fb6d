"""Reductions as tasks: boxes become partial results, and these the result."""
