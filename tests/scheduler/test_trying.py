"""A width that was never measured is tried where devices are idle and it may pay."""

from __future__ import annotations

from dataclasses import replace

import pytest
from penstock.scheduler.model.snapshot import Candidate, Snapshot, WidthPlan
from penstock.scheduler.policies.waterfill import waterfill

#: As measured on 1 and 2 devices; beyond, with caution no faster, with hope much.
SHAPE = ((1, 1.0), (2, 0.5), (3, 0.6), (4, 0.7), (5, 0.9), (6, 1.2), (7, 1.5), (8, 2.0))
HOPE = ((1, 1.0), (2, 0.5), (3, 0.3), (4, 0.2), (5, 0.2), (6, 0.2), (7, 0.2), (8, 0.2))


def trial(name="a", epoch=1, target=9, *, width=2, boundary=5.0, shape=SHAPE, hope=HOPE, **more):
    there = {"level": 20.0, "boundary": boundary, "width": width} | more
    return Candidate(name, "s", epoch, target, 0.0, widest=8, shape=shape, hope=hope, **there)


def planned(*running, devices=8, resize=0.1, waiting=()):
    return waterfill(Snapshot(0.0, waiting, 0, running, 0, devices=devices, resize=resize))


def test_a_trial_is_given_twice_as_many_idle_devices_for_an_epoch():
    plan = planned(trial())
    assert plan.courses["a"] == WidthPlan(2, 4, 1)
    assert plan.widths["a"] == 4


def test_it_gets_no_more_than_are_idle():
    assert planned(trial(), devices=3).courses["a"] == WidthPlan(2, 3, 1)


@pytest.mark.parametrize(
    ("what", "running", "resize"),
    [
        ("it has too few epochs ahead", trial(epoch=6), 0.1),
        ("a resize costs more than there is to gain", trial(), 60.0),
        ("its epochs are short", trial(level=0.01), 0.0),
        ("it is in its first epoch", trial(epoch=0), 0.1),
        ("there is nothing to hope for", trial(hope=SHAPE), 0.1),
        ("its own width is not known yet", trial(hope=((1, 1.0), (2, 0.4), *HOPE[2:])), 0.1),
    ],
)
def test_it_goes_on_as_it_is_where(what, running, resize):
    assert planned(running, resize=resize).widths["a"] == 2, what


def test_one_tries_at_a_time_and_that_with_the_longest_to_go():
    plan = planned(trial("short", target=6), trial("long"), devices=16)
    assert plan.widths == {"short": 2, "long": 4}
    trying = trial("other", width=4)
    assert planned(trying, trial("long"), devices=16).widths["long"] == 2


def test_nobody_tries_while_others_wait():
    waiting = tuple(trial(f"w{k}", epoch=0, width=0, boundary=0.0) for k in range(9))
    assert planned(trial(), waiting=waiting).courses["a"].wide <= 2


def test_what_was_tried_and_is_slower_is_left():
    """The epoch at 4 is measured: the standing course, which was for one epoch, is over."""
    measured = tuple((w, 0.7 if w == 4 else s) for w, s in HOPE)
    at_four = trial(width=4, hope=measured, course=WidthPlan(2, 4, 1))
    assert planned(replace(at_four, epoch=2)).widths["a"] == 2
