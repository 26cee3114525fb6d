"""Kernels on a block in memory, for `map_slabs` and `iterate`: medians, Jacobi sweeps, Fourier transforms."""

from __future__ import annotations

from oocarrays.kernels.fourier import transform
from oocarrays.kernels.jacobi import sweep, sweeps
from oocarrays.kernels.medians import median

__all__ = ["median", "sweep", "sweeps", "transform"]
