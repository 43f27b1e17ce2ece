"""Writes of a process about its trials that were not sent yet."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from patience import PATIENCE, until
from penstock.base.errors import BackendError, UsageError
from penstock.tasks.objectives.pending import PendingWrites


def test_the_end_of_a_trial_does_not_overtake_what_is_being_sent_of_it():
    """The timer's thread sends while the objective returns."""
    began, go, sent = threading.Event(), threading.Event(), []

    def send(trial_id, **body):
        if not began.is_set():
            began.set()
            assert go.wait(PATIENCE)
        sent.append((trial_id, body))

    writes = PendingWrites(send)
    writes.add(7, {"steps": [(0, "0.5")]})
    assert began.wait(PATIENCE), "the timer sends it"
    writes.add(7, {"steps": [(1, "0.25")]})
    ends = threading.Thread(target=writes.flush, args=(7,), kwargs={"state": "complete"})
    ends.start()
    writes.flush(8, state="complete")  # another trial does not wait
    ends.join(0.2)
    assert ends.is_alive()
    go.set()
    ends.join(PATIENCE)
    first, *of_it = sent
    assert first == (8, {"writing": {}, "state": "complete"})
    # The timer may send the second report by itself, before the end.
    reports = [report for _, body in of_it for report in body["writing"].get("steps", ())]
    assert reports == [(0, "0.5"), (1, "0.25")]
    assert ["state" in body for _, body in of_it] == [False] * (len(of_it) - 1) + [True]
    before = len(sent)
    writes.flush_all()
    assert len(sent) == before, "nothing is sent twice"


class Line:
    """Sends, or raises ``error``."""

    def __init__(self, error=None):
        self.error = error
        self.tried = 0
        self.sent = []

    def __call__(self, trial_id, **body):
        self.tried += 1
        if self.error is not None:
            raise self.error
        self.sent.append((trial_id, body))


AWAY = BackendError("the broker does not answer")


def test_a_trial_that_is_told_again_has_what_was_written_before_the_broker_went_away():
    line = Line(AWAY)
    writes = PendingWrites(line)
    writes.add(1, {"suggestions": ["x"], "steps": [(0, "1")], "user_attrs": [("a", "1")]})
    with pytest.raises(BackendError):
        writes.flush(1, state="complete")
    writes.add(1, {"suggestions": ["y"], "steps": [(1, "2")], "user_attrs": [("a", "2")]})
    line.error = None
    writes.flush(1, state="complete")
    writing = {
        "suggestions": ["x", "y"],
        "steps": [(0, "1"), (1, "2")],
        "user_attrs": [("a", "2")],
    }
    # The timer may send it by itself, before the end.
    assert line.sent[0][1]["writing"] == writing
    assert line.sent[-1][1]["state"] == "complete"


def test_what_cannot_be_sent_is_tried_again_and_holds_up_no_other_trial():
    line = Line(AWAY)
    writes = PendingWrites(line)
    writes.add(1, {"suggestions": ["x"]})
    writes.add(2, {"suggestions": ["y"]})
    until(lambda: line.tried >= 4)
    line.error = None
    until(lambda: len(line.sent) == 2)
    assert sorted(line.sent) == [
        (1, {"writing": {"suggestions": ["x"]}}),
        (2, {"writing": {"suggestions": ["y"]}}),
    ]


def test_what_the_scheduler_refuses_is_not_tried_again():
    line = Line(UsageError("the trial has ended"))
    writes = PendingWrites(line)
    writes.add(1, {"suggestions": ["x"]})
    with pytest.raises(UsageError):
        writes.flush(1)
    line.error = None
    writes.flush_all()
    assert not line.sent
    line.error = UsageError("the trial has ended")
    writes.add(1, {"suggestions": ["x"]})
    with pytest.warns(UserWarning, match="of a trial is lost: the trial has ended"):
        writes.flush_all()
    line.error = None
    writes.flush_all()
    assert not line.sent


def test_a_process_that_ends_while_the_broker_is_away_says_what_is_lost():
    script = """
from penstock.base.errors import BackendError
from penstock.tasks.objectives.pending import PendingWrites

def send(trial_id, **body):
    raise BackendError("the broker does not answer")

PendingWrites(send).add(1, {"suggestions": ["x"]})
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, timeout=PATIENCE, capture_output=True, text=True, check=True)
    assert "what was written of a trial is lost: the broker does not answer" in ended.stderr
