"""A trial's output is marked with the time and its id, also if it shares the trainer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from penstock.tasks.process.output import MARK
from trainers.trainer_process import TrainerProcess, hear_all, segment
from user_code import trainees

SAID = ["one", "", "two", "three", "four", "five ...", "six"]


def test_each_line_says_who_printed_it_and_when(tmp_path):
    """Also what is logged, written as bytes, and printed by a child; not what passes Python by."""
    with TrainerProcess(tmp_path / "log") as trainer:
        for trial in ("s-0000", "s-0001"):
            trainer.carry_out(segment(trainees.objective_that_prints, trial=trial))
        lines = [*trainer.printed()]
        [first, *_] = trainer.log.read_text().splitlines()
    own = [("s-0000", each) for each in SAID]
    assert lines[: len(own) + 2] == [*own, ("", "past Python"), ("s-0000", "not at its end")]
    assert lines[len(own) + 2 :][: len(own)] == [("s-0001", each) for each in SAID]
    at = datetime.fromisoformat(MARK.match(first)[1])
    assert timedelta() <= datetime.now(UTC) - at < timedelta(hours=1)


@pytest.mark.extension("lanes")
def test_trials_that_take_turns_print_each_as_itself(lane):
    tasks = [
        segment(
            trainees.Speaks,
            trial=f"s-{n:04}",
            fence=n + 1,
            params={"steps": 200, "who": f"s-{n:04}"},
        )
        for n in range(3)
    ]
    for each in tasks:
        lane.run(each)
    hear_all(lane, tasks)
    printed = lane.printed()
    assert {line for _, line in printed} == {f"this is {each.trial}" for each in tasks}
    assert all(line == f"this is {trial}" for trial, line in printed)
    order = [trial for trial, _ in printed]
    assert order != sorted(order), "one after another"


def test_who_closes_the_output_does_not_stop_the_trainer(tmp_path):
    with TrainerProcess(tmp_path / "log") as trainer:
        for trial in ("s-0000", "s-0001"):
            code = trainees.objective_that_closes_its_output
            heard = trainer.carry_out(segment(code, trial=trial))
            assert heard[-1]["op"] == "returned"
