"""The code for those who come from other tools: our side of each page runs, as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

PAGES = sorted((Path(__file__).parents[2] / "docs" / "coming-from").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_our_side_of_the_page_runs(site, page, tmp_path):
    (block,) = re.findall(r"^```python run\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    assert "n_trials=20" in block
    block = block.replace('study_name="digits"', f'study_name="from-{page.stem}"')
    script = tmp_path / "train.py"
    script.write_text(block.replace("n_trials=20", "n_trials=4"))
    said = site.finish(site.python(script, cwd=tmp_path))
    value, params = said.strip().splitlines()[-1].split(maxsplit=1)
    assert 0 <= float(value) <= 1
    assert set(re.findall(r"'(\w+)':", params)) <= {"alpha", "loss", "lr", "hidden"}


def test_every_page_has_both_sides_their_names_and_where_they_are_ahead():
    assert len(PAGES) == 5
    for page in PAGES:
        text = page.read_text()
        assert text.count("```python\n") >= 1, page
        for heading in ("## The same study", "## Names", "## What is different", "## Where "):
            assert f"\n{heading}" in text, (page, heading)
