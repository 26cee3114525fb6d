"""Build the documentation site: ``python examples/site/build.py [FOLDER]``; every warning is an error.

Without a folder, pages and docstrings are read and checked, and nothing is written.

examples/guide/*.md ─────────┐
benchmarks/, CHANGELOG.md ───┤ collected in a temporary folder, ──► Sphinx (conf.py) ──► FOLDER/index.html
examples/*.py ───────────────┤ links rewritten
index.md ──► navigation      │
the parser ──► cli.md        │
docstrings ──► api/*.rst ────┘ by autosummary
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import redirect_stdout, suppress
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GUIDE = ROOT / "examples" / "guide"
LINK = re.compile(r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\(([^()\s#]+)(#[^()\s]*)?\)")
"""Link or picture, with its target and the part of a page."""
FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)
"""Block of code."""
FOR_TESTS = re.compile(r"^(```\w+) (?:elsewhere|typical|ends \d+)\n")
"""First line of a block, with a word that says how it is tested."""
NAMES = re.compile(r"```\{autosummary\}\n(.*?)```", re.DOTALL)
"""Block of public names."""
ITEM = re.compile(r"^- \[.*\]\(([^)]+)\)", re.MULTILINE)


def pages() -> dict[Path, str]:
    """Return the name in the site of each page of the repository."""
    found = {page: page.name for page in sorted(GUIDE.glob("*.md"))}
    found |= {page: f"results/{page.name}" for page in sorted((ROOT / "benchmarks" / "results").glob("*.md"))}
    found |= {page: f"programs/{page.stem}.md" for page in sorted((ROOT / "examples").glob("*.py"))}
    others = {
        "benchmarks/README.md": "benchmarks.md",
        "examples/README.md": "examples.md",
        "CHANGELOG.md": "changes.md",
    }
    return found | {ROOT / page: name for page, name in others.items()}


def collect(folder: Path) -> None:
    """Write the pages of the site, and the files that they link to, into a folder."""
    known = pages()
    more = {"index.md": navigation(known), "cli.md": commands()}
    more["examples.md"] = hidden(name for name in known.values() if name.startswith("programs/"))
    more["benchmarks.md"] = hidden(name for name in known.values() if name.startswith("results/"))
    for page, name in known.items():
        text = page.read_text(encoding="utf-8")
        if page.suffix == ".py":
            text = f"# {page.name}\n\n```python\n{text.rstrip()}\n```\n"
        text = linked(text, page, name, known, folder) + more.get(name, "")
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def linked(text: str, page: Path, name: str, known: dict[Path, str], folder: Path) -> str:
    """Return a page whose links lead to pages of the site, or to copies of other files of the repository."""

    def there(found: re.Match[str]) -> str:
        shown, target, part = found[1], found[2], found[3] or ""
        if "://" in target:
            return found[0]
        file = Path(os.path.normpath(page.parent / target))
        if file.is_dir():
            return shown[1:-1]
        place = known.get(file) or f"files/{file.relative_to(ROOT)}"
        if file not in known:
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, folder / place)
        return f"{shown}({os.path.relpath(place, Path(name).parent)}{part})"

    parts = FENCE.split(text)
    parts[::2] = [LINK.sub(there, part) for part in parts[::2]]
    parts[1::2] = [NAMES.sub(_listed, FOR_TESTS.sub(r"\1\n", part)) for part in parts[1::2]]
    return "".join(parts)


def _listed(found: re.Match[str]) -> str:
    """Return public names as a table, with a page for each; Sphinx recognises such tables in reStructuredText only."""
    names = "".join(f"   ~{name}\n" for name in found[1].split())
    return f"```{{eval-rst}}\n.. autosummary::\n   :toctree: api\n   :nosignatures:\n\n{names}```"


def navigation(known: dict[Path, str]) -> str:
    """Return the navigation of the site: the sections of index.md with the pages in their lists."""
    sections = re.split(r"^## ", (GUIDE / "index.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    parts = []
    for caption, _, text in (section.partition("\n") for section in sections):
        files = [Path(os.path.normpath(GUIDE / target)) for target in ITEM.findall(text)]
        parts.append(hidden((known[file] for file in files), caption))
    return "".join(parts)


def hidden(names: Iterable[str], caption: str = "") -> str:
    """Return a part of the navigation, which its page does not show."""
    options = [":hidden:", *([f":caption: {caption}"] if caption else [])]
    return "\n".join(["", "```{toctree}", *options, "", *names, "```", ""])


def commands() -> str:
    """Return the help of each command."""
    from oocarrays.cli.main import main, parser_of_all

    os.environ["COLUMNS"] = "100"
    parser = parser_of_all("")
    (action,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    parts = []
    for words in ([], *([name] for name in action.choices)):
        with redirect_stdout(io.StringIO()) as out, suppress(SystemExit):
            main([*words, "--help"])
        parts.append(f"\n## `{' '.join(['oocarrays', *words])}`\n\n```text\n{out.getvalue().rstrip()}\n```\n")
    return "".join(parts)


class Page(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what a tag leads to, and its own name."""
        found = dict(attrs)
        self.links += [value for name in ("href", "src") if (value := found.get(name))]
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}


def dead(folder: Path) -> list[str]:
    """Return the links of a site that lead nowhere in it."""
    known = {
        path: Page(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html") if "_static" not in path.parts
    }
    faults = []
    for path, page in known.items():
        for link in page.links:
            url = urlsplit(link)
            if url.scheme or url.netloc or link in ("#", ""):
                continue
            file = Path(os.path.normpath(path.parent / unquote(url.path))) if url.path else path
            missing = not file.is_file() or (
                url.fragment and file in known and unquote(url.fragment) not in known[file].anchors
            )
            if missing:
                faults.append(f"{path.relative_to(folder)}: {link}")
    return sorted(set(faults))


def build(folder: Path | None) -> None:
    """Build the site, or only read all pages; end with what is wrong."""
    if not find_spec("sphinx"):
        raise SystemExit("the site needs Sphinx: pip install -e '.[docs]'")
    with tempfile.TemporaryDirectory() as inside:
        collect(Path(inside))
        options = ["--fail-on-warning", "--keep-going", "--quiet", "--jobs", "auto", "--conf-dir", HERE]
        made = ["--builder", "html" if folder else "dummy", inside, folder or f"{inside}/files"]
        done = subprocess.run([sys.executable, "-m", "sphinx", *options, *made], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)
    if folder and (faults := dead(folder)):
        raise SystemExit("\n".join(["links that lead nowhere:", *faults]))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        raise SystemExit("usage: python examples/site/build.py [FOLDER]")
    build(Path(sys.argv[1]).resolve() if sys.argv[1:] else None)
