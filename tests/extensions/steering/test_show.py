"""Decisions about single trials as users read them, and as the page of a trial offers them."""

from __future__ import annotations

import pytest
from ledgers.study_ledger import start_study, study_spec
from penstock.app.ledger.reader import Reader
from penstock.app.show.stories.story import find_trial, trial_story
from penstock.extensions.steering.control import done, offers
from penstock.extensions.steering.events import Steered
from penstock.extensions.steering.show import status_lines
from penstock.scheduler.model.study import StrategySpec


def steered(runner, verb, number, **words):
    event = Steered(at=runner._clock.now(), trial=f"digits-1a2b-{number:04}", verb=verb, **words)
    assert runner._apply(event) is None
    runner._write(())


@pytest.mark.extension("report")
def test_what_was_decided_is_in_story_status_report_and_page(tmp_path):
    plan = StrategySpec("full", max_epochs=50)
    runner, ledger = start_study(tmp_path, study_spec(n_trials=3, strategy=plan))
    for _ in range(20):
        runner.turn(1.0)
    reader = Reader(f"sqlite:///{tmp_path / 'ledger.db'}")
    study, trial = find_trial(reader, "digits/0")
    assert [each.verb for each in offers(reader, study, trial)] == ["pause", "stop", "promote"]
    steered(runner, "pause", 0, who="ada@lab", why="<b>lunch</b>")
    lines = [line.what for line in trial_story(reader, study, trial).lines]
    assert "ada@lab paused it at the end of its epoch: <b>lunch</b>" in lines
    assert status_lines(reader, study).endswith("(penstock trial resume digits/0)")
    assert [each.verb for each in offers(reader, study, trial)] == ["resume", "stop", "promote"]
    from penstock.extensions.report.report import report_text

    text = report_text(reader, study.id)
    assert "Decisions" in text
    assert "&lt;b&gt;lunch" in text
    assert done(study, 0, "promote", 60).endswith("before others, to epoch 60")
    ledger.close()
