"""Streams on the workers of a cluster: each rank keeps its cells on its worker."""
