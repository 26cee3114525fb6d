"""Storage of measured constants in a file of Dask's configuration folder, read when Dask starts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dask.config

from oocarrays.graphs.settings import kept_disks
from oocarrays.plan.queueing.kept import KeptDisks


def keep(measured: dict[str, Any]) -> Path:
    """Write measured constants to Dask's configuration folder, apply them in this process too, and return the file.

    Other content of the file is kept: constants measured earlier and not now, and other settings.
    """
    path = _written({"cost": measured})
    dask.config.set({f"oocarrays.cost.{name}": value for name, value in measured.items()})
    return path


def keep_disks(measured: Sequence[KeptDisks]) -> Path:
    """Write measurements of disks to the same file, replacing those of the same disks and mode, and return the file."""
    new = {(each.disks, each.mode) for each in measured}
    old = [each for each in kept_disks() if (each.disks, each.mode) not in new]
    said = [each.to_json() for each in (*old, *measured)]
    dask.config.set({"oocarrays.disks": said})
    return _written({"disks": said})


def _written(settings: dict[str, Any]) -> Path:
    """Write settings to Dask's configuration folder, keeping the others, and return the file."""
    path = Path(os.environ.get("DASK_CONFIG", dask.config.PATH), "oocarrays.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = dask.config.merge(*dask.config.collect_yaml([str(path)]), {"oocarrays": settings})
    path.write_text("".join(_yaml_lines(kept)))
    return path


def _yaml_lines(values: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Yield settings by name as YAML, which reads a number with an exponent as text unless it has a point."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{name}:\n"
            yield from _yaml_lines(value, indent + "  ")
        elif isinstance(value, float):
            yield f"{indent}{name}: {value:.6e}\n".replace(" inf", " .inf").replace(" -inf", " -.inf")
        else:
            yield f"{indent}{name}: {json.dumps(value)}\n"
