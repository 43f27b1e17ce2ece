"""Errors arrive as they were raised, from another process and from a result backend of Celery's."""

from __future__ import annotations

import pickle

from penstock import TrialFailed


def test_a_failure_is_made_again_of_its_arguments():
    failure = TrialFailed("memory", "it needs 3 GB", "Traceback: line 1")
    for other in (pickle.loads(pickle.dumps(failure)), type(failure)(*failure.args)):
        assert str(other) == "it needs 3 GB"
        assert (other.kind, other.traceback) == ("memory", "Traceback: line 1")
