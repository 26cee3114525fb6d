"""Write api.md and settings.md, out of docstrings and of the comments beside the settings.

    python examples/guide/generate.py

A test keeps both in step with the source.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

import oocarrays as ooc
from oocarrays.graphs import defaults

HERE = Path(__file__).parent
SETTING = re.compile(r'^    "([\w-]+)": (.+?),\s+# (.+)$', re.MULTILINE)


def api() -> str:
    """Return the page of public names: signatures, and what their docstrings say."""
    lines = [
        "# Public names",
        "",
        "All that `import oocarrays as ooc` gives. Written by `generate.py` from the docstrings.",
        "",
    ]
    for name in sorted(ooc.__all__, key=str.casefold):
        lines += _entry(name, getattr(ooc, name))
    return "\n".join(lines).rstrip() + "\n"


def _entry(name: str, value: object) -> list[str]:
    lines = [f"## `ooc.{name}`", ""]
    if inspect.isfunction(value):
        lines += ["```py", f"{name}{_signature(value)}", "```", ""]
    head, _, rest = (inspect.getdoc(value) or "").partition("\n\n")
    lines += [*head.split("\n"), ""]
    lines += ["```rst", *rest.rstrip().split("\n"), "```", ""] if rest.strip() else []
    return lines + (_members(value) if inspect.isclass(value) else [])


def _signature(function: Callable) -> str:
    """Return names and defaults of parameters, without their types."""
    signature = inspect.signature(function)
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(inspect.Signature(bare))


def _members(kind: type) -> list[str]:
    """Return the rows of what an object of a class has: each name of ours, and the first sentence of its docstring."""
    ours = {name for base in kind.__mro__ if base.__module__.startswith("oocarrays") for name in vars(base)}
    members = {name: getattr(kind, name) for name in sorted(ours) if name[0] != "_"}
    said = {name: inspect.getdoc(member) or "" for name, member in members.items() if not _is_value(member)}
    rows = [
        f"| `.{name}` | {_in_a_cell(' '.join(text.split(chr(10) * 2)[0].split()))} |"
        for name, text in said.items()
        if text
    ]
    return ["| it has | |", "|---|---|", *rows, ""] if rows else []


def _is_value(member: object) -> bool:
    """Whether it is a plain value, whose docstring is that of its type."""
    return not (inspect.isroutine(member) or inspect.isdatadescriptor(member) or inspect.isclass(member))


def page_of_settings() -> str:
    """Return the page of settings: names, defaults, and what they mean."""
    text = inspect.getsource(defaults)
    table = SETTING.findall(text[text.index("DEFAULTS") : text.index("dask.config.update_defaults")])
    lines = [
        "# Settings",
        "",
        "They live in Dask's configuration under `oocarrays.*`:",
        '`dask.config.set({"oocarrays.memory": "1GiB"})`, a YAML file in `~/.config/dask`, or the environment',
        "(`DASK_OOCARRAYS__MEMORY=1GiB`). What a call says goes before a setting. Written by `generate.py` from",
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


PAGES = {"api.md": api, "settings.md": page_of_settings}

if __name__ == "__main__":
    for name, written in PAGES.items():
        (HERE / name).write_text(written(), encoding="utf-8")
