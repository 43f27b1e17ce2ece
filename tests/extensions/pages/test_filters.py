"""The words that a person types to choose trials."""

import pytest
from penstock.app.show.drawings.columns import Column
from penstock.base.errors import UsageError
from penstock.extensions.pages.filters import chosen_by

ROWS = [
    {"Trial": 0, "State": "running", "lr": 0.001, "net work": "wide", "deep": True},
    {"Trial": 1, "State": "failed", "lr": 0.1, "net work": "narrow", "deep": False},
    {"Trial": 2, "State": "completed", "lr": None, "net work": "Wide", "deep": None},
]


def column(title):
    return Column(title, lambda row: row[title], key=lambda row: row[title])


COLUMNS = [column(title) for title in ROWS[0]]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", [0, 1, 2]),
        ("lr<0.01", [0]),
        ("lr<=1e-3 STATE:RUN", [0]),
        ("lr>=0.001", [0, 1]),
        ("lr>0.001", [1]),
        ("lr=.1", [1]),
        ("lr!=0.1", [0, 2]),
        ("trial!=1 state!=failed", [0, 2]),
        ("trial=01", [1]),
        ("'net work'=wide", [0, 2]),
        ('"net work:arr"', [1]),
        ("deep=true", [0]),
        ("deep=", [2]),
        ("wide", [0, 2]),
        ("wide fail", []),
        ("lr<nan-bread", None),
        ("nobody=3", None),
        ("'wide", None),
    ],
)
def test_all_words_of_a_filter_hold(text, numbers):
    if numbers is None:
        with pytest.raises(UsageError, match=r"needs a number|no column is called|has no end"):
            chosen_by(text, COLUMNS)
        return
    holds = chosen_by(text, COLUMNS)
    assert [row["Trial"] for row in ROWS if holds(row)] == numbers


def test_what_is_refused_says_which_columns_there_are():
    with pytest.raises(UsageError, match="there are: Trial, State, lr, net work, deep"):
        chosen_by("<i>=1", COLUMNS)
