"""docs/profiling.md lists every value that a reading may have, with its unit."""

from __future__ import annotations

import re
from pathlib import Path

from penstock.profiling.counters.rates import UNITS

PAGE = Path(__file__).parents[3] / "docs" / "profiling.md"


def test_the_page_lists_every_value_and_its_unit():
    _, _, values = PAGE.read_text().partition("\n## Values\n")
    listed = {}
    for names, units in re.findall(r"^\| (`.*?) \| (.*?) \|", values.partition("\n## ")[0], re.M):
        each = re.findall(r"`(\w+)`", names)
        one_each = units.split(", ") if ", " in units else [units] * len(each)
        listed |= zip(each, one_each, strict=True)
    assert listed == UNITS
