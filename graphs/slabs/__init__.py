"""Passes over slabs as tasks: global files, local files, and fused sweeps of stencils."""
