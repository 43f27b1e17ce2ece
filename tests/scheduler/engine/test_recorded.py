"""The engine does exactly what it did when tests/recorded was made (see the README there)."""

from __future__ import annotations

from collections import Counter

import pytest
from penstock.app.ledger.codec import kinds
from penstock.scheduler.model.decisions import Decision
from recording.engine_record import Recorder, Sequence, read, themes
from recording.sequence_themes import THEMES

#: The kinds of decision that 0.2 had: ``Recall`` is younger.
DECISIONS = {kind.__name__ for kind in Decision.__subclasses__()} - {"Call", "Recall", "Tell"}


#: The extensions that have fields in every snapshot of 0.2. Without one of them such a snapshot
#: cannot be read, and all events are replayed.
OF_SNAPSHOTS = ("limits", "memory")


class Counting(Recorder):
    """Also counts the kinds of what it sees."""

    def __init__(self):
        super().__init__()
        self.accepted, self.refused, self.decided = Counter(), Counter(), Counter()

    def forms(self, kind, body):
        decided, changed = super().forms(kind, body)
        (self.refused if decided[0] else self.accepted)[kind] += 1
        self.decided.update(type(each).__name__ for each in self.decisions)
        return decided, changed


def marked():
    """The themes, each with the extensions that it needs."""
    return [
        pytest.param(theme, marks=pytest.mark.extension(*THEMES[theme].needs)) for theme in themes()
    ]


@pytest.fixture(scope="module")
def counts():
    """Return the counts that all replays of this module share, by theme."""
    return {}


@pytest.mark.parametrize("theme", marked())
def test_the_engine_does_what_it_did(theme, counts):
    """All events, with a restart from a snapshot at each checkpoint."""
    seen = counts[theme] = []
    for number, sequence in enumerate(read(theme)):
        recorder = Counting()
        wrong = sequence.difference(recorder, 0)
        assert not wrong, f"sequence {number} of {theme}: {wrong}"
        seen.append(recorder)


#: Kinds of event that are younger than the record.
SINCE = {
    *("StudyStopped", "StudyReopened", "StudyDeleted", "StudyWritten"),
    *(
        "CallbacksCalled",
        "TrialAdded",
        "TrialWritten",
        "Remarked",
        "Derived",
        "system_tuning.Recalled",
        "system_tuning.Rehearsed",
        "branches.Branched",
        "celery_apps.Called",
        "editing.Edited",
        "notices.Installed",
        "notices.Told",
        "steering.Steered",
    ),
}


@pytest.mark.extension(*OF_SNAPSHOTS)
@pytest.mark.parametrize("theme", marked())
def test_a_snapshot_that_the_old_code_wrote_is_taken_up(theme):
    for number, sequence in enumerate(read(theme)):
        if sequence.snapshot is not None:
            wrong = sequence.difference(*sequence.take_up())
            assert not wrong, f"sequence {number} of {theme} from its snapshot on: {wrong}"


@pytest.mark.extension(*(name for theme in themes() for name in THEMES[theme].needs))
def test_every_kind_of_event_and_of_decision_is_in_the_record(counts):
    assert counts.keys() == set(themes()), "run the whole file"
    seen = [each for of_theme in counts.values() for each in of_theme]
    assert len(seen) >= 200
    accepted = sum((each.accepted for each in seen), Counter())
    decided = sum((each.decided for each in seen), Counter())
    # A tick is never refused, nor is what only the installation says.
    assert accepted.keys() - SINCE == kinds() - SINCE
    assert decided.keys() == DECISIONS


@pytest.mark.extension(*THEMES["strategies"].needs)
def test_a_record_of_other_decisions_is_told_apart():
    """The comparison itself: another digest at any place is found where it is."""
    sequence = read("strategies")[0]
    at = len(sequence.events) // 2 * 12
    for shift, word in ((0, "decisions"), (6, "changes")):
        place = at + shift
        other = "0" if sequence.digests[place] != "0" else "1"
        digests = sequence.digests[:place] + other + sequence.digests[place + 1 :]
        forged = Sequence("", sequence.events, digests, sequence.checkpoints)
        assert f"{word} differ at event {len(sequence.events) // 2} " in forged.difference(
            Recorder(), 0
        )
