"""Write settings.md from the comments beside the settings.

    python examples/guide/generate.py

A test keeps it in step with the source.
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from oocarrays.graphs import defaults

HERE = Path(__file__).parent
SETTING = re.compile(r'^    "([\w-]+)": (.+?),\s+# (.+)$', re.MULTILINE)


def page_of_settings() -> str:
    """Return the page of settings: names, defaults, and what they mean."""
    text = inspect.getsource(defaults)
    table = SETTING.findall(text[text.index("DEFAULTS") : text.index("dask.config.update_defaults")])
    lines = [
        "# Settings",
        "",
        "They live in Dask's configuration under `oocarrays.*`:",
        '`dask.config.set({"oocarrays.memory": "1GiB"})`, a YAML file in `~/.config/dask`, or the environment',
        "(`DASK_OOCARRAYS__MEMORY=1GiB`). Arguments of a call override settings. Written by `generate.py` from",
        "`graphs/defaults.py`.",
        "",
        "| setting | default | means |",
        "|---|---|---|",
        *(f"| `oocarrays.{name}` | `{default}` | {_in_a_cell(meaning)} |" for name, default, meaning in table),
        "",
        "`oocarrays.cost.*` are the constants of the cost model, which `oocarrays calibrate` measures and keeps.",
    ]
    return "\n".join(lines) + "\n"


def _in_a_cell(text: str) -> str:
    return text[0].upper() + text[1:].replace("|", "\\|")


PAGES = {"settings.md": page_of_settings}

if __name__ == "__main__":
    for name, written in PAGES.items():
        (HERE / name).write_text(written(), encoding="utf-8")
