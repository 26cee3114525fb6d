"""Tries that do not answer: what the watchdog is for."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path


def hang(rng: random.Random, folder: Path, say: Callable[[str], None]) -> None:
    """Never give an answer."""
    say("hangs(0)")
    while True:
        time.sleep(1)


def end(rng: random.Random, folder: Path, say: Callable[[str], None]) -> None:
    """End the interpreter."""
    say(f"ends({folder.name.removeprefix('try')})")
    os.abort()
