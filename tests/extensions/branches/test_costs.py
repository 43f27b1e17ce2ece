"""The cost of a branch, and the form that says it before one is made."""

import re

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.host.settings import load
from penstock.base.errors import UsageError
from penstock.extensions.branches import page
from penstock.extensions.branches.costs import cost_of, cost_words, start_words


def said(at, to, copies=1, begin=0, kept=(), seconds=(2.0, 1.0, 9.0)):
    return cost_words(cost_of(at, to, copies, begin=begin, kept=kept, seconds=seconds))


def test_a_cost_counts_what_is_trained_and_what_is_computed_again():
    assert said(10, 27, kept=(3, 10)) == (
        "It trains 17 epochs (11 to 27): about 34.0 s of a slot. The state after epoch 10 is kept."
    )
    assert said(10, 11, copies=3, kept=(3, 12)) == (
        "Each of 3 trains epoch 11, after computing 7 epochs (4 to 10) again: about 48.0 s of a"
        " slot in all. The state after epoch 10 is not kept, but a trainer may have it still."
    )
    assert "computing 5 epochs (6 to 10) again" in said(10, 11, begin=5, kept=(3,))
    assert "about" not in said(10, 11, seconds=())


def test_a_start_is_at_once_or_when_a_slot_is_free():
    assert "begins at once" in start_words({"free": ["gpu.a/0"], "next_free": None}, 1)
    assert "in about 40.0 s" in start_words({"free": [], "next_free": 40.0}, 1)
    assert "not known yet" in start_words({"free": [], "next_free": None}, 1)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("home"), study_spec(n_trials=9), fails=(3,))


def fields(reader, number, **given):
    trial = reader.trials("digits-1a2b")[number]
    shown = page.trial_form(reader, reader.study("digits"), trial)
    found = dict(re.findall(r'<input [^>]*name="([^"]+)" [^>]*?value="([^"]*)"', shown))
    return {**found, "study": "digits-1a2b", "n": str(number), **given}


def longest(reader):
    return max(reader.trials("digits-1a2b"), key=lambda trial: trial.epoch)


def test_a_form_has_the_trials_values_and_its_cost_is_said(reader, tmp_path):
    trial, settings = longest(reader), load(home=tmp_path)
    found = fields(reader, trial.number)
    assert float(found["param.x"]) == trial.params["x"]
    shown = page.trial_form(reader, reader.study("digits"), trial)
    assert "&lt;i&gt;tanh" in shown
    assert "<i>tanh" not in shown
    asked = {**found, "at": "2", "to": "5", "copies": "1", "param.x": "0.5"}
    words = page.ACTIONS["branch-cost"](settings, reader, asked)
    assert words.startswith("It trains 3 epochs (3 to 5)")
    assert words.endswith("No scheduler is running: this starts one.")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"at": "99"}, "epoch 99 is none of its accepted ones"),
        ({"at": "x"}, "at = 'x'"),
        ({"at": "2", "to": "2"}, "needs an epoch to reach"),
        ({"at": "2", "copies": "65"}, "1 to 64 can be made"),
        ({"at": "2", "param.x": "7"}, r"params\['x'\] = 7"),
        ({"at": "2", "param.activation": "9"}, r"params\['activation'\] = '9'"),
        ({"at": "2"}, "give a value that differs"),
    ],
)
def test_what_would_be_refused_is_said_as_the_scheduler_says_it(reader, tmp_path, given, words):
    asked = fields(reader, longest(reader).number, **{"to": "9", **given})
    with pytest.raises(UsageError, match=words):
        page.ACTIONS["branch-cost"](load(home=tmp_path), reader, asked)


def test_a_trial_without_an_epoch_has_no_form(reader):
    trial = next(each for each in reader.trials("digits-1a2b") if not each.epoch)
    assert page.trial_form(reader, reader.study("digits"), trial) == ""


def test_further_copies_wait_where_fewer_slots_are_free():
    plan = {"free": ["gpu.a/0"], "next_free": None}
    assert "the first begins at once" in start_words(plan, 8)
