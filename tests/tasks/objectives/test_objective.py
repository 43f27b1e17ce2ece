"""Optuna objectives in the real trainer process: paused, taking turns, unwound, started over."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from patience import until
from penstock.tasks.contracts.suspended import PAUSED_KEPT
from trainers.trainer_process import TrainerProcess, segment
from user_code import trainees


@pytest.fixture
def trainer(tmp_path):
    with TrainerProcess(tmp_path / "log") as trainer:
        yield trainer


def epochs(heard):
    return [(m["epoch"], m["closes"]) for m in heard if m["op"] == "epoch"]


def answer(trainer, name, value):
    """Hear one question and answer it; gives the question."""
    question = trainer.hear()
    assert (question["op"], question["name"]) == ("suggest", name)
    trainer.say(op="answer", value=value)
    return question


def test_an_objective_pauses_in_report_and_goes_on_in_place(trainer):
    trainer.run(segment(trainees.objective, 1, 2, define_by_run=True))
    question = answer(trainer, "x", 0.5)
    assert '"FloatDistribution"' in question["distribution"]
    assert epochs([trainer.hear(), trainer.hear()]) == [(1, False), (2, True)]
    trainer.run(segment(trainees.objective, 3, 3, define_by_run=True, params={"x": 0.5}, fence=2))
    third = trainer.hear()
    assert third["metrics"] == {"accuracy": 1.5, "step": 2.0}
    assert third["fence"] == 2
    answer(trainer, "kind", "b")
    assert epochs([trainer.hear(), trainer.hear()]) == [(4, False), (5, True)]
    params = {"x": 0.5, "kind": "b"}
    heard = trainer.carry_out(segment(trainees.objective, 6, 9, params=params, fence=3))
    assert epochs(heard) == [(6, False)]
    said = {"value": 50.0, "further": [], "constraints": {}, "pruned": False, "unasked": []}
    assert heard[-1] == {"op": "returned", "trial": "s-0000", "fence": 3, **said}
    assert "written" not in [m["op"] for m in heard], "the scheduler sampled all, so it knows"


def test_an_objective_in_another_trainer_starts_over_and_repeats_no_report(trainer):
    params = {"x": 0.5, "kind": "a"}
    heard = trainer.carry_out(segment(trainees.objective, 4, 2, params=params))
    assert [m["text"] for m in heard[:3]] == [f"replaying epoch {n} of 3" for n in (1, 2, 3)]
    assert epochs(heard) == [(4, False), (5, True)]
    # A fenced-off attempt was ahead: what was not accepted is sent again from memory.
    again = trainer.carry_out(segment(trainees.objective, 4, 1, params=params, fence=2))
    assert again[0]["metrics"] == heard[3]["metrics"]
    assert epochs(again) == [(4, True)]
    # Released, the paused objective is unwound; the trial could start over.
    trainer.say(op="release", trial="s-0000")
    assert epochs(trainer.carry_out(segment(trainees.objective, 1, 1, params=params))) == [
        (1, True)
    ]
    # Fenced off while it waits for the sampler.
    trainer.run(segment(trainees.objective, trial="s-0001", define_by_run=True, fence=5))
    assert trainer.hear()["op"] == "suggest"
    trainer.say(op="stop")
    assert trainer.hear() == {"op": "stopped", "trial": "s-0001", "fence": 5}


def test_how_an_objective_ends_is_said_as_optuna_would(trainer):
    pruned = trainer.carry_out(segment(trainees.objective_prunes, 1, 5))
    assert (pruned[-1]["op"], pruned[-1]["value"]) == ("returned", 0.25)
    assert pruned[-1]["pruned"]
    for code, kind, words in [
        (
            trainees.objective_returns_text,
            "exception",
            "is no result: The value 'good' could not be cast",
        ),
        (trainees.objective_reports_nan, "nan", "reported at step 0 is nan"),
        (trainees.objective_exits, "exit", "sys.exit('enough')"),
        (trainees.objective_raises, "exception", "KeyError: 'missing'"),
        (trainees.objective, "exception", "asks for 'x', the study's space has nothing"),
    ]:
        (failed,) = trainer.carry_out(segment(code))
        assert (failed["op"], failed["kind"]) == ("failed", kind)
        assert words in failed["message"]


def test_an_objective_of_several_returns_as_many_numbers_and_reports_none(trainer):
    two = {"directions": ("minimize", "minimize"), "params": {"x": 0.5}}
    written, said = trainer.carry_out(segment(trainees.objective_of_two, **two))
    assert written["writing"] == {"system_attrs": [["constraints:memory", "0.5"]]}
    assert (said["value"], said["further"]) == (0.5, [2.0])
    assert said["constraints"] == {"memory": 0.5}
    for code, n, words in [
        (trainees.objective_of_two, 1, "The number of the values 2 did not match"),
        (trainees.objective_of_two, 3, "The number of the values 2 did not match"),
        (trainees.objective_of_two_reports, 2, "not supported for multi-objective optimization"),
    ]:
        task = segment(code, **two | {"directions": ("minimize",) * n, "study": f"s{n}"})
        *_, failed = trainer.carry_out(task)
        assert failed["op"] == "failed"
        assert words in failed["message"]


def test_what_an_objective_writes_is_said_at_once(trainer, tmp_path):
    trainer.run(segment(trainees.objective_that_waits, cwd=str(tmp_path)))
    written = trainer.hear()
    assert (written["op"], written["writing"]) == (
        "written",
        {"user_attrs": [["stage", '"waiting"']]},
    )
    (tmp_path / "go").touch()
    returned = trainer.hear()
    assert (returned["op"], returned["value"]) == ("returned", 1.0)


def test_what_a_thread_writes_while_its_trial_waits_is_said_when_the_trial_goes_on(
    trainer, tmp_path
):
    code = trainees.objective_with_a_thread_that_writes
    (reported,) = trainer.carry_out(segment(code, 1, 1, cwd=str(tmp_path)))
    assert (reported["op"], reported["closes"]) == ("epoch", True)
    (tmp_path / "go").touch()
    until((tmp_path / "written").exists)
    written, returned = trainer.carry_out(segment(code, 2, 1, cwd=str(tmp_path), fence=2))
    assert (written["fence"], written["writing"]) == (2, {"user_attrs": [["from", '"a thread"']]})
    assert returned["op"] == "returned"


def test_an_objective_that_writes_more_than_can_be_sent_fails(trainer):
    (failed,) = trainer.carry_out(segment(trainees.objective_that_writes_too_much))
    assert failed["op"] == "failed"
    assert "written: writing has 1,0" in failed["message"]
    assert "too many to be sent" in failed["message"]


def test_what_was_enqueued_and_not_asked_for_is_said(trainer):
    given = {"define_by_run": True, "params": {"x": 0.5, "kind": "a", "tpyo": 3}}
    said = trainer.carry_out(segment(trainees.objective, 1, 7, **given))
    assert (said[-1]["op"], said[-1]["unasked"]) == ("returned", ["tpyo"])
    assert not said[-1]["pruned"]
    # The scheduler sampled neither, so it is told of their distributions.
    suggestions = [s for m in said if "writing" in m for s in m["writing"].get("suggestions", ())]
    assert [(name, value) for name, value, *_ in suggestions] == [("x", 0.5), ("kind", "a")]
    assert '"FloatDistribution"' in suggestions[0][2]


def drawn(heard):
    return [m["metrics"]["accuracy"] for m in heard if m["op"] == "epoch"]


def test_a_trial_draws_the_same_numbers_alone_and_between_others(trainer, tmp_path):
    """From random, numpy.random and torch, which all trials of the process share."""
    between = {trial: [] for trial in ("s-0000", "s-0001", "s-0002")}
    for epoch in range(1, 5):
        for trial in between:
            heard = trainer.carry_out(segment(trainees.objective_draws, epoch, trial=trial))
            between[trial] += drawn(heard)
    assert len({*between["s-0000"], *between["s-0001"]}) == 8, "each has numbers of its own"
    with TrainerProcess(tmp_path / "alone") as alone:
        for trial in ("s-0001", "s-0000"):
            heard = alone.carry_out(segment(trainees.objective_draws, 1, 4, trial=trial))
            assert drawn(heard) == between[trial]
        # Where its state is gone, a trial starts over, and comes to the same numbers.
        heard = alone.carry_out(segment(trainees.objective_draws, 4, trial="s-0002"))
        assert drawn(heard) == between["s-0002"][3:]


def test_a_released_objective_is_unwound_past_its_except_and_through_its_finally(trainer):
    trainer.carry_out(segment(trainees.objective_tidies))
    trainer.say(op="release", trial="s-0000")
    trainer.carry_out(segment(trainees.objective_tidies, trial="s-0001"))
    assert trainer.printed() == [("s-0000", "trial 0 is unwound")]


def test_the_objectives_that_waited_longest_make_room(trainer):
    trials = [f"s-{number:04}" for number in range(PAUSED_KEPT + 1)]
    for trial in trials:
        trainer.carry_out(segment(trainees.objective_tidies, trial=trial))
    assert drawn(trainer.carry_out(segment(trainees.objective_tidies, 2, trial=trials[1]))) == [1.0]
    trainer.carry_out(segment(trainees.objective_tidies, trial="s-0098"))
    trainer.carry_out(segment(trainees.objective_raises, trial="s-0099"))  # one thing at a time
    unwound = [("s-0000", "trial 0 is unwound"), ("s-0002", "trial 2 is unwound")]
    assert trainer.printed() == unwound, "each as itself, although another trial makes it end"


def test_one_that_fails_leaves_the_paused_ones_where_they_are(trainer):
    trainer.carry_out(segment(trainees.objective_tidies))
    (failed,) = trainer.carry_out(segment(trainees.objective_raises, trial="s-0001"))
    assert failed["op"] == "failed"
    heard = trainer.carry_out(segment(trainees.objective_tidies, 2))
    assert (heard[0]["op"], epochs(heard)) == ("epoch", [(2, True)])


def test_an_objective_that_will_not_end_takes_the_process_with_it():
    """Otherwise it would run at the same time as the next trial."""
    code = """
from types import SimpleNamespace
from user_code import trainees
from patience import until
from penstock.tasks.contracts import suspended
from penstock.tasks.objectives import objective
from penstock.tasks.process import pipe
from trainers.trainer_process import segment
suspended.UNWIND = 0.1
objectives = objective.Objectives()
def say(op, **_):
    if op == "history":
        run.answer(["", []])
silent = SimpleNamespace(say=say)
run = pipe.Run(segment(trainees.objective_stubborn), silent)
objectives.run(run, lambda: trainees.objective_stubborn, None)
objectives.release("s-0000")
"""
    run = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stderr) == (1, "objective s-0000 has not ended in 0.1 s\n")
