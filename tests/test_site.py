"""The site of the docs: it builds without a warning, and has each page and each public name."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import penstock
import pytest
from machines.system import missing
from patience import PATIENCE
from penstock.app.extensions import BY_NAME
from penstock.app.show.drawings.page import picture_of_mark
from penstock.extensions.nas import names as nas

#: Its pages are those of all public names.
pytestmark = pytest.mark.extension("nas")

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for module, package in (("material", "mkdocs-material"), ("mkdocstrings", "mkdocstrings")):
        if find_spec(module) is None:
            missing(f"there is no {package} here: pip install --group dev")
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, ROOT / "docs" / "build_site.py", folder],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.fixture(scope="module")
def found(site):
    """Return the entries of the search index, by their place."""
    index = json.loads((site / "search" / "search_index.json").read_text())
    return {entry["location"]: entry for entry in index["docs"]}


def test_every_page_can_be_searched(found):
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "deploy" / "README.md"]
    places = {page.relative_to(ROOT).with_suffix(".html").as_posix() for page in pages}
    named = {place.replace("README.html", "index.html") for place in places}
    assert named - {place.partition("#")[0] or "index.html" for place in found} == set()


def test_every_public_name_is_told_by_its_docstring(found):
    names = [*penstock.__all__, *BY_NAME, *(f"nas.{name}" for name in nas.__all__)]
    told = {entry["title"]: entry["text"] for entry in found.values()}
    assert [name for name in names if not told.get(f"penstock.{name}")] == []


def test_pictures_and_examples_are_there_by_the_paths_that_pages_name(site):
    assert (site / "docs" / "img" / "live.svg").is_file()
    assert (site / "examples" / "digits.py").is_file()
    page = (site / "docs" / "guide" / "search.html").read_text()
    assert '<img src="../img/mark.svg" alt="logo">' in page
    assert (site / "docs" / "img" / "mark.svg").read_text() == f"{picture_of_mark()}\n"
    assert 'href="../../examples/pareto.py"' in page
