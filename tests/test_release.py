"""A release says one version in all places, and what comes with it is whole."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

from ruamel.yaml import YAML

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
#: The one place where it is written for the programs, which ask what is installed.
VERSION = PYPROJECT["project"]["version"]


def text(name):
    return (ROOT / name).read_text()


def yaml(name):
    return YAML(typ="safe").load(text(name))


def test_what_is_installed_has_the_version_of_the_sources():
    assert version("penstock") == VERSION, "pip install -e . makes it so"


def test_chart_and_citation_have_the_version():
    chart = yaml("deploy/helm/penstock/Chart.yaml")
    found = {chart["version"], chart["appVersion"], yaml("CITATION.cff")["version"]}
    assert found == {VERSION}


def test_the_changelog_has_the_version_first_and_its_date_is_the_citations():
    unreleased, *cut = re.findall(r"^## \[([\w.]+)\](?: - ([\d-]+))?", text("CHANGELOG.md"), re.M)
    assert unreleased == ("Unreleased", "")
    assert cut[0] == (VERSION, str(yaml("CITATION.cff")["date-released"]))


def test_pages_name_no_other_version_of_ours_as_the_present_one():
    minor = VERSION.rpartition(".")[0]
    assert re.findall(r"\| Penstock ([\d.]+) \|", text("README.md")) == [minor]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    named = {
        found for page in pages for found in re.findall(r"penstock==([\w.]+)", page.read_text())
    }
    assert named == {VERSION}


def test_the_citation_has_what_its_format_asks_for():
    citation = yaml("CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    assert citation["license"] == PYPROJECT["project"]["license"]
    assert citation["authors"] == PYPROJECT["project"]["authors"]
    assert citation["keywords"] == PYPROJECT["project"]["keywords"]
    assert all(isinstance(citation[name], str) for name in ("message", "title", "abstract"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", str(citation["date-released"]))


def test_pre_commit_fetches_nothing_and_asks_for_what_make_check_asks_for():
    (repo,) = yaml(".pre-commit-config.yaml")["repos"]
    assert repo["repo"] == "local"
    assert {hook["language"] for hook in repo["hooks"]} == {"system"}
    check = text("Makefile").partition("\ncheck:")[2].partition("\n\n")[0]
    asked = {line.replace("$(BIN)", ".venv/bin") for line in re.findall(r"\t@(.*)", check)}
    before = [hook for hook in repo["hooks"] if hook.get("stages") != ["commit-msg"]]
    ours = [hook["entry"] for hook in before if "pytest" not in hook["entry"]]
    assert ours
    assert set(ours) <= asked
