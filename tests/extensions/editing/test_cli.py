"""Changes of parameters as they are typed."""

from __future__ import annotations

import pytest
from penstock.app.spec.entered import pairs, typed
from penstock.base.errors import UsageError
from penstock.extensions.editing.cli import _parameter


@pytest.mark.parametrize(
    ("text", "choices", "found"),
    [
        ("1e-4..1e-2", (), (1e-4, 1e-2)),
        (".1..0.5", (), (0.1, 0.5)),
        ("8..64", (), (8, 64)),
        ("3e-4", (), 3e-4),
        ("../data", ("../data",), "../data"),
        ("none", ("none", "cosine"), "none"),
        ("none", (), None),
        ("[none, cosine]", ("none", "cosine"), ["none", "cosine"]),
        ('["a", 1]', (), ["a", 1]),
        ("1", ("1", "2"), "1"),
        ("True", (True, False), True),
        ("adam", (), "adam"),
    ],
)
def test_a_change_is_read(text, choices, found):
    known = {str(each): each for each in choices}
    assert _parameter(text, known) == found


def test_a_value_that_is_no_json_is_text():
    assert [typed(text, {}) for text in ("1", "0.5", "x", "true")] == [1, 0.5, "x", True]


def test_two_values_of_one_name_are_refused():
    assert list(pairs(["lr=1", "x=a=b"])) == [("lr", "1"), ("x", "a=b")]
    with pytest.raises(UsageError, match="one value of lr"):
        list(pairs(["lr=1", "lr=2"]))
