"""The feature that CONTRIBUTING.md adds, as it stands there, is one: a trainer trains with it."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from penstock.app.extensions import names
from trainers import trainer_here
from trainers.trainer_here import Trainer
from user_code.trainees import Small

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGE = "penstock.extensions.gradient_norm"


@pytest.fixture
def feature(monkeypatch):
    """The extension of the page, in the list of those with an end in the trainer."""
    file, code = re.search(r"`(\S+)`, new:\n\n```python\n(.*?)^```", PAGE, re.S | re.M).groups()
    assert file == "extensions/gradient_norm/trainer.py"
    package, module = ModuleType(PACKAGE), ModuleType(f"{PACKAGE}.trainer")
    package.__path__, module.__package__ = [], PACKAGE
    for each in (package, module):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    exec(compile(code, file, "exec"), module.__dict__)
    monkeypatch.setattr(trainer_here, "names", lambda end: (*names(end), "gradient_norm"))


@pytest.mark.usefixtures("feature")
def test_with_the_feature_of_the_page_each_epoch_has_the_norm_of_its_gradients():
    first, second = Trainer().train(Small, n=2)
    assert first["metrics"]["gradient_norm"] > 0
    assert second["metrics"]["gradient_norm"] != first["metrics"]["gradient_norm"]


def test_without_it_they_have_not():
    [epoch] = Trainer().train(Small)
    assert "gradient_norm" not in epoch["metrics"]


def test_the_lines_of_the_page_belong_where_it_says():
    diff = re.search(r"^```diff\n(.*?)^```", PAGE, re.S | re.M)[1]
    places = re.findall(r"^--- (\S+)\n (.*)\n\+(.*)\n (.*)\n", diff, re.M)
    assert [file for file, *_ in places] == ["app/extensions.py", "pyproject.toml"]
    for file, begin, line, end in places:
        listed = re.search(
            rf"^{re.escape(begin)}\n(.*?)^{re.escape(end)}$", (ROOT / file).read_text(), re.S | re.M
        )
        alike = re.escape(line).replace("gradient_norm", r"\w+")
        assert re.search(rf"^{alike}$", listed[1], re.M), f"{file} has other lines there"
        assert ast.literal_eval(line.strip().rstrip(",")) not in listed[1]
