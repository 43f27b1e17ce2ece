"""Build the site of these pages: python docs/build_site.py build/site.

Theory of operation. The pages are written for a code host: their links are relative, also to files
outside of docs/. So the site has the folders of the repository, by symbolic links in a temporary
folder, and each link leads there to what it leads to here. One page is made: api.md, from the
docstrings of the public names. They are read from a package of links that has the five floors, and
nothing else. A broken link, an unknown anchor or a page outside of the navigation ends the program
with 1.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import Any

import penstock
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort
from penstock.app.extensions import BY_NAME
from penstock.extensions.nas import names as nas

ROOT = Path(__file__).resolve().parents[1]
#: Pages, and files and folders that they link to.
SHOWN = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE"),
    *("docs", "deploy", "examples"),
)
PACKAGE = ("__init__.py", "app", "base", "extensions", "profiling", "scheduler", "tasks", "wire")
HEAD = """# Python names

All that `import penstock` offers, from its docstrings. [Reference](docs/reference.md#public-names)
has the same names in one table, by what they are for.
"""


def api() -> str:
    """Return the page of public names: those of the package, of the adapters and of ``nas``."""
    own = [f"penstock.{name}" for name in penstock.__all__]
    adapters = [f"penstock.{name}" for name in BY_NAME]
    choices = [f"{nas.__name__}.{name}" for name in nas.__all__]
    return "\n".join((HEAD, *(_told(name) for name in (*own, *adapters, *choices))))


def _told(name: str) -> str:
    """Return one name's entry for mkdocstrings; the members of ``nas`` come by themselves."""
    options = [f"heading: {name.replace(nas.__name__, 'penstock.nas')}"]
    options += ["members: false"] if name == "penstock.nas" else []
    return "\n".join((f"::: {name}", "    options:", *(f"      {each}" for each in options), ""))


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Remove ``run`` after a block's language, which is for tests: mkdocs calls this hook."""
    return markdown.replace("\n```python run\n", "\n```python\n")


def build_site(site: Path) -> None:
    """Write the site into the folder ``site``. Raises Abort if a page or a link is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        pages, package = Path(folder, "pages"), Path(folder, "path", "penstock")
        for place, names in ((pages, SHOWN), (package, PACKAGE)):
            place.mkdir(parents=True)
            for name in names:
                (place / name).symlink_to(ROOT / name)
        (pages / "api.md").write_text(api())
        config = load_config(
            str(ROOT / "docs" / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(site), strict=True
        )
        python = config.plugins["mkdocstrings"].config["handlers"]["python"]
        python["paths"] = [str(package.parent)]
        build(config)


def main(folder: str) -> int:
    """Build into ``folder``; return 1 if something is wrong, which mkdocs has printed."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        build_site(Path(folder).resolve())
    except Abort as wrong:
        print(wrong, file=sys.stderr)  # noqa: T201 - a program
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
