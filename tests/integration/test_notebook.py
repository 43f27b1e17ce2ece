"""The guide's notebook: it runs as it stands, and what is stored in it is what it shows."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path

import nbclient
import nbformat
import pytest
from patience import PATIENCE

NOTEBOOK = Path(__file__).parents[2] / "docs" / "notebook.ipynb"


@pytest.fixture(scope="module")
def stored():
    return nbformat.read(NOTEBOOK, as_version=4)


def shown(notebook, source):
    """The outputs of the cell that has this in its source."""
    [cell] = [c for c in notebook.cells if c.cell_type == "code" and source in c.source]
    return cell.outputs


def test_the_stored_outputs_are_whole_small_and_of_no_machine(stored):
    text = json.dumps(stored)
    assert len(text) < 50_000
    assert "Traceback" not in text
    # Only the end of an address (https://...) may begin with a slash and have a second one.
    assert re.findall(r"(?<![\w.:/])/[\w.-]+/[\w.-]*", text) == []
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert all(cell.outputs for cell in code)
    assert "notebook  complete" in shown(stored, "study.optimize")[0]["data"]["text/plain"]


@pytest.mark.integration
# What the kernel's own libraries warn of is not ours.
@pytest.mark.filterwarnings("ignore")
def test_it_runs_and_shows_one_live_table(stored, site, tmp_path):
    notebook = copy.deepcopy(stored)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
    notebook.cells.append(
        nbformat.v4.new_code_cell(
            "def here(trial):\n    return 0.5\n\n"
            "made = penstock.create_study()\n"
            "made.optimize(here, n_trials=1, show_progress=False)\nprint(made.best_value)"
        )
    )
    environment = site.environment | {"PYTHONWARNINGS": "ignore"}
    nbclient.NotebookClient(notebook, timeout=int(PATIENCE)).execute(
        cwd=str(tmp_path), env=environment
    )
    tables = [each for each in shown(notebook, "study.optimize") if "data" in each]
    assert len(tables) == 1, "frames are replaced, not repeated"
    assert "24/24 trials" in tables[0]["data"]["text/plain"]
    [importances] = shown(notebook, "study.importances")
    assert "alpha" in importances["data"]["text/plain"]
    [typed] = shown(notebook, "def here")
    assert typed["text"] == "0.5\n", "a function of the notebook itself"
    assert site.reader.study("notebook").status == "complete"
    # Run again, it shows the same study.
    nbclient.NotebookClient(notebook, timeout=int(PATIENCE)).execute(
        cwd=str(tmp_path), env=environment
    )
    assert [study.name for study in site.reader.studies()].count("notebook") == 1
    assert "24/24 trials" in shown(notebook, "study.optimize")[0]["data"]["text/plain"]
