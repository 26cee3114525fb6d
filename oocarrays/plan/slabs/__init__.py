"""Slabs: how an array is cut, what a pass over it reads and writes, and fused sweeps."""
