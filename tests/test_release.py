"""What a release states of itself: the version, extras, the long description, the conda recipe."""

from __future__ import annotations

import configparser
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[1]
RELEASE = SimpleNamespace(**runpy.run_path(str(ROOT / ".ci" / "release")))
SETUP = configparser.ConfigParser()
SETUP.read(ROOT / "setup.cfg")
RECIPE = (ROOT / "examples" / "deploy" / "conda" / "meta.yaml").read_text(encoding="utf-8")
DEVELOPERS = {"test", "lint", "docs", "bench"}


def required(text: str) -> set[str]:
    """Return requirements as `name bound`."""
    return {re.sub(r"(\[.*\])? *>=", " >=", line.strip(" -")) for line in text.splitlines() if ">=" in line}


def test_every_place_that_names_the_version_names_this_one() -> None:
    version = SETUP["metadata"]["version"]
    assert f'version = "{version}"' in RECIPE
    assert f"version {version}," in (ROOT / "README.md").read_text(encoding="utf-8")
    assert f'__version__ = "{version}"' in (ROOT / "oocarrays" / "__init__.py").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(version)} \(", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_recipe_requires_what_setup_cfg_does() -> None:
    run = required(RECIPE[RECIPE.index("  run:") : RECIPE.index("test:")])
    ours = {each.replace("dask ", "dask-core ") for each in required(SETUP["options"]["install_requires"])}
    assert run == ours | {f"python {SETUP['options']['python_requires']}"}


def test_all_is_every_extra_for_users() -> None:
    extras = SETUP["options.extras_require"]
    listed = extras["all"].partition("[")[2].rstrip("]").split(",")
    assert set(listed) == set(extras) - DEVELOPERS - {"all"}


README = """# a

![A picture](docs/a.png)

See [a page](docs/a.md), [another](https://b.org/c), `[x](y)`.

```python
a[b](c)
```
"""


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("", "# a\n\nSee a page, [another](https://b.org/c), `[x](y)`.\n"),
        (
            "https://example.org/a/",
            "# a\n\n![A picture](https://example.org/a/raw/v1.2.3/docs/a.png)\n\n"
            "See [a page](https://example.org/a/blob/v1.2.3/docs/a.md), [another](https://b.org/c), `[x](y)`.\n",
        ),
    ],
)
def test_a_long_description_has_no_relative_link(url: str, shown: str) -> None:
    assert RELEASE.description(README, url, "1.2.3") == f"{shown}\n```python\na[b](c)\n```\n"


def test_the_readme_can_be_the_long_description() -> None:
    text = RELEASE.description((ROOT / "README.md").read_text(encoding="utf-8"), "", "1.2.3")
    assert "](examples" not in text
    assert "![" not in text
    assert "](CHANGELOG" not in text
