"""The change that CONTRIBUTING.md shows is whole: a number of a trainer arrives at its readers."""

from __future__ import annotations

import json

import pytest

from testkit.checkouts import ROOT
from testkit.removable import without
from testkit.shown_changes import hunks


def changes():
    return list(hunks("Add a number to a report"))


def test_the_lines_belong_where_the_page_says():
    """Each is in the file once, so that the page shows the code of today; four files are few."""
    found = changes()
    assert len(found) <= 4
    for file, before, _ in found:
        assert (ROOT / file).read_text().count(f"{before}\n") == 1, f"{file} has other lines"


@pytest.mark.slow
def test_with_them_the_number_is_in_the_story_of_a_trial(tmp_path):
    with without() as copy:
        for file, before, after in changes():
            changed = copy.root / file
            changed.write_text(changed.read_text().replace(before, after))
        variables = {"PENSTOCK_HOME": str(tmp_path)}
        try:
            ran = copy.output("-m", "penstock", "run", "examples/digits.py", variables=variables)
            assert ran.returncode == 0, ran.stderr
            [study] = json.loads(
                copy.output("-m", "penstock", "ls", "--json", variables=variables).stdout
            )
            story = copy.output("-m", "penstock", "story", study["id"] + "/0", variables=variables)
        finally:
            copy.output("-m", "penstock", "down", variables=variables)
    assert "s of CPU time)" in story.stdout, story.stdout + story.stderr
