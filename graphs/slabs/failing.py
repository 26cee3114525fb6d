"""Where in a person's own code a kernel failed: neither in ours, nor in a library that it calls."""

from __future__ import annotations

import os
import sysconfig
import traceback

OURS = os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep
LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def own_line(error: BaseException) -> str:
    """Return file and line of the last call in a person's own code, to stand at the end of a message; "" for none.

    >>> import numpy as np
    >>> try:
    ...     np.zeros(3).reshape(2)
    ... except ValueError as error:
    ...     own_line(error).startswith(" (<doctest")
    True
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((OURS, *LIBRARIES))]
    return f" ({own[-1].filename}:{own[-1].lineno})" if own else ""
