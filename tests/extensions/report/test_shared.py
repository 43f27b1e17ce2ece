"""Trials that shared a device, on hand-worked timelines."""

from __future__ import annotations

from types import SimpleNamespace

from penstock.app.ledger.rows import EpochRow
from penstock.extensions.report.device_sharing import (
    SharedSpan,
    group_words,
    section,
    shared_spans,
)

STUDY = SimpleNamespace(id="s", created_at=10.0)


def epoch(trial, number, begin, end, slot=0, device="d0"):
    return EpochRow(
        0, trial, number, 0.0, {}, "h", "s", end - begin, device, slot, fence=1, at=end, members=()
    )


def test_trials_share_a_device_while_both_are_there_also_between_their_epochs():
    rows = [
        *(epoch("s-0000", n, 10 + 2 * n, 11.9 + 2 * n) for n in range(4)),
        *(epoch("s-0001", n, 13 + n, 13.8 + n, slot=1) for n in range(2)),
    ]
    assert shared_spans("s", rows) == [SharedSpan("d0", ("s-0000", "s-0001"), 13, 14.8)]


def test_who_comes_after_another_in_its_slot_shares_nothing():
    rows = [epoch("s-0000", 1, 10, 12), epoch("s-0001", 1, 11.98, 14)]
    assert shared_spans("s", rows) == []


def test_other_devices_and_other_studies_alone_do_not_count():
    rows = [
        epoch("s-0000", 1, 10, 12, device="d1"),
        epoch("x-0000", 1, 10, 12),
        epoch("x-0001", 1, 10, 12, slot=1),
    ]
    assert shared_spans("s", rows) == []


def test_the_report_names_both_when_and_for_how_long():
    rows = [epoch("s-0003", 1, 10, 30), epoch("x-0007", 1, 15, 20, slot=1)]
    text = section(STUDY, shared_spans("s", rows), {"x": "<other>"}, "")
    cells = "<td>d0</td><td>3 and &lt;other&gt;/7</td><td>5.0 s</td><td>5.0 s</td>"
    assert cells in text
    assert shared_spans("s", rows[:1]) == []


def test_the_report_says_how_many_epochs_were_trained_together_or_read_once():
    def reports(*company):
        return [
            SimpleNamespace(together=together, readers=readers) for together, readers in company
        ]

    words = group_words(reports((1, 0), (4, 0), (2, 0), (0, 3), (1, 2), (0, 1), (0, 0)))
    assert words == (
        " 2 of 7 epochs were trained together, up to 4 at once."
        " 2 of 7 epochs had their batches read once for several trials, up to 3 at once."
    )
    assert group_words(reports((1, 0), (0, 1))) == ""
    rows = [epoch("s-0003", 1, 5.0, 10.0), epoch("x-0007", 1, 4.0, 12.0, slot=1)]
    text = section(STUDY, shared_spans("s", rows), {"x": "other"}, words)
    assert f"in 1 span.{words}</p>" in text
