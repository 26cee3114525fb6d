"""Ranks on the workers of a cluster: placement, memory and messages."""
