"""Slow disks on any machine: for tests, for benchmarks, and for people who want to see what many disks would do."""

from __future__ import annotations

from oocarrays.testing.slow import SlowDisk, Station

__all__ = ["SlowDisk", "Station"]
