"""Models of slow disks on any machine, for tests, benchmarks, and experiments with many disks."""

from __future__ import annotations

from oocarrays.testing.slow import SlowDisk, Station

__all__ = ["SlowDisk", "Station"]
