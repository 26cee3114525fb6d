"""All that workers of tests import: who is forked from a process that has it starts in a tenth of the time."""

from __future__ import annotations

import gc
import importlib
import pkgutil
from contextlib import suppress

import dask.array  # noqa: F401
import distributed  # noqa: F401
import hypothesis  # noqa: F401
import pytest  # noqa: F401
import xarray  # noqa: F401

import oocarrays

for module in pkgutil.walk_packages(oocarrays.__path__, "oocarrays."):
    if not module.name.endswith("__main__"):
        with suppress(ImportError):  # of what is not installed
            importlib.import_module(module.name)

gc.collect()
gc.freeze()  # garbage of those that are forked is looked for among what they make
