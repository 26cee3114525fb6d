"""Configuration of Sphinx; `build.py` collects the pages."""

from pathlib import Path
from typing import Any

import oocarrays

project = "oocarrays"
author = copyright = "the oocarrays developers"
version = release = oocarrays.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["files"]
default_role = "py:obj"
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "groupwise"
autodoc_preserve_defaults = True
templates_path = [str(Path(__file__).parent / "templates")]  # autosummary would look beside the pages
maximum_signature_line_length = 80
add_module_names = False
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
napoleon_google_docstring = False
napoleon_use_param = napoleon_use_rtype = False  # types are words: "store" would link to a method

html_theme = "sphinx_book_theme"
html_context = {"default_mode": "auto"}
html_favicon = "favicon.svg"
html_title = f"oocarrays {release}"
html_theme_options = {"home_page_in_toc": True, "navbar_persistent": [], "use_download_button": False}
html_copy_source = html_show_sourcelink = False


def inherited_from_others(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Skip members that a class has from other libraries, such as Dask's collections."""
    module = getattr(member, "__module__", None) or getattr(getattr(member, "fget", None), "__module__", None)
    return True if module and not module.startswith("oocarrays") else None


def without_type(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Write a dash for the first colon of a property, before which Napoleon expects a type."""
    if what == "property" and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)


def setup(app: Any) -> None:
    """Connect the filters of members and of their texts."""
    app.connect("autodoc-skip-member", inherited_from_others)
    app.connect("autodoc-process-docstring", without_type, priority=100)  # Napoleon has 500
