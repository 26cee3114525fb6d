"""Write settings.md from the comments beside the settings, and options.md from the docstrings of the classes.

    python examples/guide/generate.py

A test keeps them in step with the source.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import oocarrays as ooc
from oocarrays import graphs
from oocarrays.options.given import resources_taken

HERE = Path(__file__).parent
SETTING = re.compile(r'^    "([\w-]+)": (.+?),\s+# (.+)$', re.MULTILINE)


def page_of_settings() -> str:
    """Return the page of settings: names, defaults, and what they mean."""
    text = inspect.getsource(graphs)
    table = SETTING.findall(text[text.index("DEFAULTS") : text.index("dask.config.update_defaults")])
    lines = [
        "# Settings",
        "",
        "They live in Dask's configuration under `oocarrays.*`:",
        '`dask.config.set({"oocarrays.memory": "1GiB"})`, a YAML file in `~/.config/dask`, or the environment',
        "(`DASK_OOCARRAYS__MEMORY=1GiB`). Written by `generate.py` from `graphs/__init__.py`.",
        "",
        "An argument of a call counts before the settings, and so does a `with` statement of",
        "[resources](options.md), which holds for all calls in it:",
        "",
        "```python elsewhere",
        'with ooc.Resources(memory="1GiB", scratch="/nvme/tmp"):',
        '    ooc.rechunk("rows.zarr", "columns.zarr", chunks=(1024, 64)).run()',
        "```",
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


FIELD = re.compile(r"^(\w[\w, ]*?)(?: : (.+))?\n((?:    .*\n?|\n)+)", re.MULTILINE)
OPTIONS = """
# Targets, results and resources

Every verb takes what is common to many verbs in three objects: a `Target` states how a result is stored, `Results`
state its shape, and `Resources` the means of a run. Written by `generate.py` from their docstrings.

```python elsewhere
target = ooc.Target("columns.zarr", shards=(1024, 256), compressors="zstd")
with ooc.Resources(memory="1GiB", scheduler="threads"):            # for all calls in it
    ooc.rechunk("rows.zarr", target, chunks=(1024, 64), resources=ooc.Resources(ranks=4)).run()
```

An argument of a call counts before its `resources=`, these before those of a `with` statement, and these before the
[settings](settings.md). A verb refuses a field that it does not take.
""".strip()


def page_of_options() -> str:
    """Return the page of the fields of targets, results and resources: their meaning, and the verbs that take them."""
    spaces = (ooc, ooc.ranks, ooc.streams, ooc.disks, ooc.advise)
    verbs = {name: each for space in spaces for name, each in vars_of(space) if hasattr(each, "resources")}
    by_target = {name: each.target for name, each in verbs.items()}
    by_resources = {name: resources_taken(each) for name, each in verbs.items() if "resources" in parameters(each)}
    shapes = [each.name for each in fields(ooc.Results)]
    by_results = {name: shapes for name, each in verbs.items() if "results" in parameters(each)}
    parts = [
        OPTIONS,
        *_table("Target", ooc.Target, by_target),
        *_table("Results", ooc.Results, by_results),
        *_table("Resources", ooc.Resources, by_resources),
    ]
    return "\n".join(parts) + "\n"


def parameters(verb: Any) -> Any:
    return inspect.signature(verb).parameters


def vars_of(space: Any) -> list[tuple[str, Any]]:
    names = getattr(space, "__all__", None) or vars(space)
    return [(name, getattr(space, name)) for name in names if not name.startswith("_")]


def _table(name: str, kind: type, verbs: dict[str, Any]) -> list[str]:
    """Return the fields of a class as a table: values, meaning, and the verbs that take each."""
    text = (inspect.getdoc(kind) or "").partition("Parameters\n----------\n")[2].partition("\n\nExamples")[0]
    rows = []
    for said, values, meaning in FIELD.findall(text):
        names = said.split(", ")
        takers = [f"`{verb}`" for verb, taken in verbs.items() if names[0] in taken]
        others = [f"`{verb}`" for verb, taken in verbs.items() if names[0] not in taken]
        but = f"all verbs{' but ' if others else ''}{', '.join(others)}"
        told = "all targets" if not takers else but if len(others) < 4 < len(takers) else ", ".join(takers)
        words = " ".join(meaning.split()).replace("``", "`")
        rows.append(f"| `{'`, `'.join(names)}` | {values or '–'} | {_in_a_cell(words)} | {told} |")
    return ["", f"## {name}", "", "| field | values | means | taken by |", "|---|---|---|---|", *rows]


PAGES = {"settings.md": page_of_settings, "options.md": page_of_options}

if __name__ == "__main__":
    for name, written in PAGES.items():
        (HERE / name).write_text(written(), encoding="utf-8")
