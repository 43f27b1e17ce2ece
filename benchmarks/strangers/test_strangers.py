"""The comparison of ``benchmarks.strangers``: what counts as unchanged, as told, as different."""

from __future__ import annotations

import re

import pytest

from benchmarks.strangers.cases import CASES, Case, equal
from benchmarks.strangers.comparison import Ended, Verdict, differences, figures_of, told

PLAIN = Ended(0, 1.0, "noise\nbest 0.25 {'x': 1.5}\ntrials 9 kept 9\n", "a warning\n", ["out.csv"])
CASE = Case(
    "one",
    ("one.py",),
    tail=2,
    trials=r"trials (\d+)",
    holds=equal(r"trials (\d+)", r"kept (\d+)"),
    about="kept",
)


def ours(out=PLAIN.out, *, code=0, err="", files=("out.csv",)):
    return Ended(code, 2.0, out, err, list(files))


def test_other_draws_change_nothing():
    same = ours("best 1e-5 {'x': -0.5}\ntrials 9 kept 9\n\none complete: best trial 4\n")
    assert list(differences(CASE, PLAIN, same)) == []


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (ours(code=1, err="penstock: no\n"), "exit code 1, plainly 0: penstock: no"),
        (ours(files=()), "files on one side only: out.csv"),
        (ours("trials 9 kept 9\n"), "not printed: best 0.25"),
        (ours("best 0.25 {'x': 1.5}\ntrials 9 kept 0\n"), "does not hold together"),
        (ours("best 0.25 {'x': 1.5}\ntrials 57 kept 57\n"), "57 trials, plainly 9"),
    ],
)
def test_what_differs_is_found(other, words):
    [found] = differences(CASE, PLAIN, other)
    assert words in found


def test_only_a_sentence_before_the_first_trial_that_names_it_counts_as_told():
    early = "a warning\nkept is changed in place\ntrial 0 completed, value 1\n"
    assert told(CASE, PLAIN, ours(err=early)) == "kept is changed in place"
    for late in (
        "trial 0 completed, value 1\nkept is changed in place\n",
        "one: running, 0/9 trials\nkept is changed in place\n",
        "something is changed in place\n",
    ):
        assert not told(CASE, PLAIN, ours(err=late))
    assert not told(Case("two", ("two.py",)), PLAIN, ours(err=early)), "nothing is to be told"


def test_the_figures_leave_out_what_was_skipped():
    found = {
        "a": Verdict("unchanged", late=2),
        "b": Verdict("told", late=0),
        "c": Verdict("different"),
        "d": Verdict("fails"),
        "e": Verdict("skipped"),
    }
    figures = figures_of(found)
    assert (figures["scripts"], figures["silently_different"], figures["failing"]) == (4, 1, 1)
    assert figures["unchanged_or_told_at_once"] == 0.5
    assert figures["unchanged_share"] == 0.25
    assert figures["stops_late.max"] == 2


def test_every_case_has_a_name_of_its_own_and_patterns_that_can_be_read():
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        assert re.compile(case.trials).groups == bool(case.trials)
        re.compile(case.about)
