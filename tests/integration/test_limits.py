"""Limits of studies that real workers train."""

from __future__ import annotations

from collections import Counter

import pytest
from penstock import Float, FullBudget, Limits, create_study
from user_code.users_trainables import Paced

pytestmark = [pytest.mark.integration, pytest.mark.extension("limits")]

LR = Float(1e-3, 1e-1, log=True)
#: Of which much more would be trained than any limit here allows.
KIND = {"metric": "loss", "sampler": "random", "strategy": FullBudget(200)}


#: More epochs than any machine trains before a deadline here.
LONG = FullBudget(20_000)


def space(tmp_path, pace=0.3):
    return {"lr": LR, "pace": [pace], "until": [str(tmp_path / "never")]}


def test_at_a_limit_of_device_hours_each_trial_ends_its_epoch_and_the_study_is_over(site, tmp_path):
    limits = Limits(device_hours=1.0 / 3600)  # less than one epoch takes
    study = create_study(study_name="at its hours", limits=limits, **KIND)
    study.optimize(Paced, space(tmp_path), 6, show_progress=False)
    row = site.reader.study("at its hours")
    assert row.status == "complete"
    assert row.message == "it has reached its limit: 0.000277778 device-hours"
    assert study.spent["limits"]["device_hours"]["reached"]
    trials = site.reader.trials(study.id)
    assert max(trial.epoch for trial in trials) == 1, "each ends the epoch that it is in"
    assert {trial.state for trial in trials} == {"stopped", "cancelled"}
    assert "of 0.000277778 device-hours, 0 left" in site.penstock("status", "at its hours")


def test_of_short_epochs_too_each_trial_ends_no_more_than_one_after_the_deadline(site, tmp_path):
    for seconds in (4.0 * 2**n for n in range(8)):  # a busy machine needs longer to begin
        name = f"short epochs, {seconds:g} s"
        kind = KIND | {"strategy": LONG, "limits": Limits(deadline=seconds)}
        study = create_study(study_name=name, **kind)
        study.optimize(Paced, space(tmp_path, 0.001), 4, show_progress=False)
        end = site.reader.study(name).created_at + seconds
        rows = site.reader.epochs(study.id)
        late = Counter(row.trial for row in rows if row.at > end)
        assert max(late.values(), default=0) <= 1
        if len(rows) > 40:
            return
    pytest.fail("epochs are not short")


def test_a_deadline_pauses_a_study_that_nobody_watches_and_its_user_resumes_it(site, tmp_path):
    limits = Limits(deadline=3.0, at_limit="pause")
    study = create_study(study_name="at its deadline", limits=limits, **KIND)
    study.submit(Paced, space(tmp_path), 6)
    site.until(lambda: study.status == "paused", "its deadline")
    assert site.reader.study("at its deadline").message == "it has reached its limit: its deadline"
    site.until(lambda: not site.reader.running(), "what ran ends its epoch")
    before = len(site.reader.epochs(study.id))
    study.resume()
    site.until(lambda: len(site.reader.epochs(study.id)) > before + 2, "it goes on")
    assert study.status == "running"
    study.cancel()
