"""Questions to the history: answered by a process of its own, whatever becomes of that."""

import sys
from dataclasses import replace

import pytest
from patience import until
from penstock.extensions.system_tuning.asked import advisor
from penstock.extensions.system_tuning.asked.advisor import Advisor
from penstock.extensions.system_tuning.asked.decisions import Consult
from penstock.profiling.similarity.history import HistoryEntry

MACHINE = "cpu x 2 cores"
FASTER = (("threads", 1),)


def profile(kind, window):
    """Three kinds of training, far apart; windows of one differ by a little."""
    names = ("steps", "samples", "conv_share", "matmul_share", "switches", "faults")
    values = (3.0 * kind + 1.0, 90.0 / (kind + 1), 0.3 * kind, 0.9 - 0.3 * kind, 5.0 + kind, 7.0)
    return tuple((n, v * (1 + 0.01 * window)) for n, v in zip(names, values, strict=True))


def entry(kind, window, machine=MACHINE):
    return HistoryEntry(
        workload=f"w{kind}",
        machine=machine,
        source="s",
        profile=profile(kind, window),
        config=FASTER,
        speedup=2.0,
        joules=None,
        windows=6,
        at=float(window),
    )


HISTORY = [entry(kind, window) for kind in range(3) for window in range(3)]


def ask(entries):
    question = Consult(id="c1", cause=1, workload="w", machine=MACHINE, profile=profile(1, 1.5))
    asked = Advisor()
    asked.consult(question, entries)
    [answer] = until(asked.answers)  # it has only what others leave of the cores
    assert asked.answers() == []
    assert (answer.consult, answer.workload) == ("c1", "w")
    return answer


def test_what_paid_off_for_a_like_workload_is_the_answer():
    answer = ask(HISTORY)
    assert answer.config == FASTER
    assert "times as fast as the default" in answer.why


def test_where_nothing_was_faster_no_process_is_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    slower = [replace(each, speedup=0.9) for each in HISTORY]
    infeasible = [replace(each, infeasible=True) for each in HISTORY]
    for history in (slower, infeasible):
        assert ask(history).why == f"the history of {MACHINE} has nothing to reuse"


def test_an_empty_history_is_answered_with_the_default_and_why():
    assert ask([])[2:] == ((), f"the history of {MACHINE} has nothing to reuse")


@pytest.mark.parametrize("broken", ["a process that fails", "one that takes too long"])
def test_a_service_that_gives_no_answer_leaves_the_default_and_says_so(broken, monkeypatch, caplog):
    if broken == "a process that fails":
        monkeypatch.setattr(sys, "executable", "/bin/false")
    else:
        monkeypatch.setattr(advisor, "ADVICE_TIMEOUT", 0.01)
    answer = ask(HISTORY)
    assert answer.config == ()
    assert "no answer" in answer.why
    assert "the history gave no answer" in caplog.text


def test_a_service_that_raises_leaves_the_default_with_its_words():
    answer = ask([*HISTORY, entry(1, 9, "another machine")])
    assert answer.config == ()
    assert "one class of machine" in answer.why
