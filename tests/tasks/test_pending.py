"""What a process has written of its trials and not sent yet."""

from __future__ import annotations

import threading

from patience import PATIENCE
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
