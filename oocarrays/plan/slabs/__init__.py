"""Slabs: the cut of an array, the traffic of a pass, and fused sweeps."""
