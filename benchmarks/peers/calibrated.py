"""A machine whose constants are measured before the runs of a case, and used by all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from case import Case


@contextmanager
def calibrated(case: Case, options: Any) -> Iterator[None]:
    """Have `oocarrays calibrate` keep its constants in the working folder, once, where all runs find them."""
    folder, before = os.path.join(options.workdir, "calibrated"), os.environ.get("DASK_CONFIG")
    os.environ["DASK_CONFIG"] = folder
    try:
        if not (options.inside or os.path.exists(folder)):
            os.makedirs(folder)
            subprocess.run([sys.executable, "-m", "oocarrays", "calibrate", "--store", options.workdir], check=True)
        yield None
    finally:
        os.environ.pop("DASK_CONFIG") if before is None else os.environ.update(DASK_CONFIG=before)
