"""Packed arrays, with stored values that stand for others: CF's scale, offset and fill."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Signature, signature
from typing import Any

import numpy as np
import zarr

from oocarrays.kernels.results import on_host
from oocarrays.storage.files.places import location

PACKING = ("scale_factor", "add_offset", "_Unsigned")
"""Attributes by which xarray and others decode stored values."""
FILLS = ("_FillValue", "missing_value")
PACKED = (*PACKING, *FILLS)
"""The same, with those of missing values."""
TIMED = ("units", "calendar")
"""Attributes that decode numbers as times."""


def warn_of_packed(array: zarr.Array, kernel: Any = None, level: int = 5) -> None:
    """Warn if the array is packed and the kernel works on stored values."""
    if isinstance(kernel, Unpacked):
        return
    said = {name: array.attrs[name] for name in PACKING if name in array.attrs}
    if said:
        words = ", ".join(f"{name}={value!r}" for name, value in said.items())
        lacks = ", ".join(f"{name}={array.attrs[name]!r}" for name in FILLS if name in array.attrs)
        counted = f"; missing values ({lacks}) count as data" if lacks else ""
        warnings.warn(
            f"{location(array)} is packed ({words}): its {array.dtype} elements are used as stored, without unpacking"
            f"{counted}",
            UserWarning,
            stacklevel=level,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """Kernel of decoded values on stored blocks: xarray decodes its input, and encodes its result."""

    kernel: Callable[[np.ndarray], np.ndarray]
    """Function of decoded values."""
    dims: tuple[str, ...]
    packing: Mapping[str, Any]
    """Packing attributes of the values, as `PACKED` names them, and `TIMED` if times are decoded."""
    dtype: np.dtype
    """Type of the stored elements."""

    def decoded(self, block: np.ndarray) -> np.ndarray:
        import xarray as xr

        stored = xr.Variable(self.dims, block, dict(self.packing))
        decoded = xr.conventions.decode_cf_variable("block", stored, decode_timedelta="units" in self.packing)
        return np.asarray(decoded.values)

    @property
    def __signature__(self) -> Signature:
        return signature(self.kernel)

    def __call__(self, block: np.ndarray, **more: Any) -> np.ndarray:
        import xarray as xr

        made = on_host(self.kernel(self.decoded(block), **more))
        self._check(made)
        how = {"_FillValue": self.dtype.type(0), **self.packing, "dtype": self.dtype}  # default if none is given
        dims = [f"axis {axis}" for axis in range(made.ndim)]  # a result may have others
        return xr.conventions.encode_cf_variable(xr.Variable(dims, made, {}, how)).values

    def _check(self, made: np.ndarray) -> None:
        if self.dtype.kind not in "iu":
            return
        numbers = np.dtype(f"u{self.dtype.itemsize}") if self.packing.get("_Unsigned") == "true" else self.dtype
        packed = (made - self.packing.get("add_offset", 0)) / self.packing.get("scale_factor", 1)
        limits = np.iinfo(numbers)
        beyond = (packed < limits.min - 0.5) | (packed > limits.max + 0.5)
        if not set(FILLS) & set(self.packing):
            beyond |= np.isnan(packed)
        if beyond.any():
            raise ValueError(f"{made[beyond].flat[0]} cannot be packed as {numbers}: unpack the array first")
