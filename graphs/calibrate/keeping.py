"""Keeping what was measured: in a file of Dask's configuration folder, which Dask reads when it starts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import dask.config

from oocarrays.graphs.settings import kept_disks
from oocarrays.plan.queueing.kept import KeptDisks

FILE_NAME = "oocarrays.yaml"


def keep(measured: dict[str, Any]) -> Path:
    """Write what was measured to Dask's configuration folder, and use it in this process too; returns the file.

    What the file holds besides stays: constants that were measured earlier and not now, and other settings.
    """
    path = _written({"cost": measured})
    dask.config.set({f"oocarrays.cost.{name}": value for name, value in measured.items()})
    return path


def keep_disks(measured: Sequence[KeptDisks]) -> Path:
    """Write what was measured of disks to the same file, in place of what it has of the same ones; returns it."""
    new = {(each.disks, each.mode) for each in measured}
    old = [each for each in kept_disks() if (each.disks, each.mode) not in new]
    said = [each.to_json() for each in (*old, *measured)]
    dask.config.set({"oocarrays.disks": said})
    return _written({"disks": said})


def _written(settings: dict[str, Any]) -> Path:
    """Write settings to Dask's configuration folder, beside what is there; returns the file."""
    path = Path(os.environ.get("DASK_CONFIG", dask.config.PATH), FILE_NAME)
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = dask.config.merge(*dask.config.collect_yaml([str(path)]), {"oocarrays": settings})
    path.write_text("".join(_yaml_lines(kept)))
    return path


def _yaml_lines(values: dict[str, Any], indent: str = "") -> Iterator[str]:
    """Settings by name as YAML, which takes a number with an exponent for text unless it has a point."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield f"{indent}{name}:\n"
            yield from _yaml_lines(value, indent + "  ")
        elif isinstance(value, float):
            yield f"{indent}{name}: {value:.6e}\n".replace(" inf", " .inf").replace(" -inf", " -.inf")
        else:
            yield f"{indent}{name}: {json.dumps(value)}\n"
