"""Users' functions may use signals: the first one that is open has the main thread."""

from __future__ import annotations

import pytest
from patience import until
from trainers.trainer_process import TrainerProcess, segment
from user_code import hostile_objectives


@pytest.fixture
def trainer(tmp_path):
    with TrainerProcess(tmp_path / "log") as trainer:
        yield trainer


def rung(trainer, times=1):
    """Wait until the alarm has rung so often."""
    until(lambda: trainer.log.read_text().count("rings") >= times, "a ring")


def test_an_alarm_interrupts_an_objective_as_it_does_in_a_script(trainer):
    heard = trainer.carry_out(segment(hostile_objectives.sets_an_alarm, 1, 9))
    assert [m["op"] for m in heard] == ["epoch", "epoch", "returned"]
    assert heard[-1]["value"] == 1.0


def test_an_alarm_that_rings_while_the_trial_is_paused_comes_when_it_goes_on(trainer):
    trainer.carry_out(segment(hostile_objectives.sets_an_alarm, 1, 2))
    rung(trainer)
    # Others run meanwhile.
    (other,) = trainer.carry_out(segment(hostile_objectives.is_in_main_thread, trial="s-0001"))
    assert other["metrics"]["accuracy"] == 0.0
    heard = trainer.carry_out(segment(hostile_objectives.sets_an_alarm, 3, 9))
    assert [(m["op"], m["value"]) for m in heard] == [("returned", 1.0)]


def test_an_alarm_that_rings_when_its_trial_is_over_harms_no_other(trainer):
    for n, trial in enumerate(("s-0000", "s-0001"), 1):
        heard = trainer.carry_out(segment(hostile_objectives.leaves_an_alarm, trial=trial))
        assert [(m["op"], m["value"]) for m in heard] == [("returned", 1.0)]
        rung(trainer, n)
    assert "hostile_objectives.Alarm" in trainer.log.read_text()


def test_an_alarm_that_rings_while_a_parameter_is_asked_for_confuses_no_answers(trainer):
    trainer.run(segment(hostile_objectives.asks_with_an_alarm, define_by_run=True))
    assert trainer.hear()["name"] == "x"
    rung(trainer)
    trainer.say(op="answer", value=0.25)
    assert trainer.hear()["name"] == "y"
    trainer.say(op="answer", value=0.75)
    assert trainer.hear()["value"] == 0.75


def test_who_has_not_got_the_main_thread_hears_why_and_it_is_free_again_after_its_trial(trainer):
    def in_main(trial, first):
        (said,) = trainer.carry_out(
            segment(hostile_objectives.is_in_main_thread, first, trial=trial)
        )
        return said["metrics"]["accuracy"]

    assert [in_main("s-0000", 1), in_main("s-0001", 1), in_main("s-0000", 2)] == [1.0, 0.0, 1.0]
    alarms = segment(hostile_objectives.sets_an_alarm, 1, 9, trial="s-0002")
    (failed,) = trainer.carry_out(alarms)
    assert "signal only works in main thread" in failed["message"]
    assert "set signal handlers at the top level of the script" in failed["message"]
    trainer.say(op="release", trial="s-0000")
    assert trainer.carry_out(alarms)[-1]["op"] == "returned"
