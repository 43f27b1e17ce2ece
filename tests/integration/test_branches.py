"""Branches on real devices: the bits of a state carried into a new model, trained alone."""

from __future__ import annotations

import os
import signal

import pytest
from integration.branch_reference import Leg, trained
from penstock import ASHA, Float, FullBudget, Steps, UsageError, create_study
from penstock.app.host import locks
from user_code.epoch_functions import adds
from user_code.trainees import Small
from user_code.users_trainables import Paced

pytestmark = [pytest.mark.integration, pytest.mark.extension("branches")]

KIND = {"metric": "loss", "sampler": "random", "seed": 5}


def made_of(site, study, number):
    """The parameters of a trial, and what its epochs came to."""
    row = site.reader.trials(study.id)[number]
    epochs = [each for each in site.reader.epochs(study.id) if each.trial == row.id]
    return dict(row.params), {each.epoch: (each.state_hash, each.metrics) for each in epochs}


@pytest.fixture
def paced(tmp_path):
    go = tmp_path / "go"
    return {"lr": Float(1e-3, 1e-1, log=True), "pace": [1.0], "until": [str(go)]}, go


def test_a_branch_has_the_bits_of_its_parents_state_under_new_values(site, paced):
    space, go = paced
    go.touch()
    study = create_study(study_name="branched", strategy=FullBudget(9), **KIND)
    study.optimize(Paced, space, 2, show_progress=False)
    said = site.penstock("branch", "branched/1", "lr=0.05", "--at", "4", "--reason", "too slow")
    assert "trial 2 of branched goes on from trial 1's state after epoch 4" in said
    assert site.wait(study.id).status == "complete"
    parent, _ = made_of(site, study, 1)
    branch, found = made_of(site, study, 2)
    assert branch == parent | {"lr": 0.05}
    legs = [Leg(parent, 1, 4), Leg(branch, 1, 9)]
    assert found == trained(Paced, 5, legs)
    # A branch of the branch, beyond the study's last epoch, and a copy with keys of its own.
    assert study.branch(2, at=7, params={"lr": 0.01}, to=12, copies=2) == [3, 4]
    assert site.wait(study.id).status == "complete"
    last = branch | {"lr": 0.01}
    expected = trained(Paced, 5, [*legs[:1], Leg(branch, 1, 7), Leg(last, 1, 12)])
    assert made_of(site, study, 3) == (last, expected)
    copied = trained(Paced, 5, [*legs[:1], Leg(branch, 1, 7), Leg(last, 4, 12)])
    assert made_of(site, study, 4) == (last, copied)
    assert copied != expected
    story = site.penstock("story", "branched/2")
    assert "it goes on from trial 1's state after epoch 4 with lr 0.05" in " ".join(story.split())
    assert "too slow" in site.penstock("story", "branched/1")
    with pytest.raises(UsageError, match="epoch 4 is of trial 1, of which it was made"):
        study.branch(2, at=4, params={"lr": 0.01})


def test_a_value_that_decides_a_shape_fails_the_branch_before_anything_is_trained(site):
    study = create_study(study_name="shaped", strategy=FullBudget(4), **KIND)
    space = {"lr": Float(1e-3, 1e-1), "width": [8, 16], "optimizer": ["sgd", "adam"]}
    study.enqueue_trial({"width": 8, "optimizer": "sgd"})
    study.optimize(Small, space, 1, show_progress=False)
    study.branch(0, at=2, params={"lr": 0.01, "width": 16})
    study.branch(0, at=4, params={"optimizer": "adam"}, to=6)
    assert site.wait(study.id).status == "complete"
    rows = site.reader.trials(study.id)
    assert [row.failure_kind for row in rows] == [None, "fork", "fork"]
    assert "width decides what a state is made of: 0.weight is (16, 4)" in rows[1].failure_message
    assert "optimizer decides" in rows[2].failure_message
    assert not [each for each in site.reader.events(rows[1].id) if "Replayed" in repr(each)]


def test_another_schedule_is_taken_where_it_can_go_on_from_the_state(site):
    study = create_study(study_name="scheduled", strategy=FullBudget(4), **KIND)
    space = {"lr": Float(1e-3, 1e-1), "schedule": ["steps", "other", "plateau"]}
    study.enqueue_trial({"schedule": "steps"})
    study.optimize(Small, space, 1, show_progress=False)
    study.branch(0, at=2, params={"schedule": "other"})
    study.branch(0, at=2, params={"schedule": "plateau"})
    assert site.wait(study.id).status == "complete"
    parent, _ = made_of(site, study, 0)
    branch, found = made_of(site, study, 1)
    assert found == trained(Small, 5, [Leg(parent, 0, 2), Leg(branch, 0, 4)])
    row = site.reader.trials(study.id)[2]
    assert row.failure_kind == "fork"
    assert "schedule decides what a state is made of: schedule is True" in row.failure_message


def test_a_branch_survives_kills_of_scheduler_and_trainers_while_it_begins(site, paced):
    space, go = paced
    go.touch()
    study = create_study(study_name="killed", strategy=ASHA(max_epochs=9), **KIND)
    study.optimize(Paced, space, 9, show_progress=False)
    parent = max(site.reader.trials(study.id), key=lambda row: row.epoch)
    go.unlink()
    made = study.branch(parent.number, at=7, params={"lr": 0.002}, to=10)
    pid = locks.pid_of(site.settings.run, "scheduler")
    os.kill(pid, signal.SIGKILL)
    site.until(lambda: locks.pid_of(site.settings.run, "scheduler") not in (None, pid))
    for _ in range(2):
        site.until(site.trainers, "trainers")
        for each in site.trainers():
            each.kill()
    go.touch()
    assert site.wait(study.id).status == "complete"
    rows = site.reader.trials(study.id)
    assert [row.number for row in rows if row.origin_trial] == made
    params, _ = made_of(site, study, parent.number)
    branch, found = made_of(site, study, made[0])
    legs = [Leg(params, parent.number, 7), Leg(branch, parent.number, 10)]
    assert found == trained(Paced, 5, legs)


@pytest.mark.extension("prefixes")
def test_a_branch_among_trials_with_epochs_in_common(site, paced):
    space, go = paced
    go.touch()
    study = create_study(study_name="common", strategy=FullBudget(6), seeding="shared", **KIND)
    weight = Steps({0: [0.0, 0.1], 3: [0.01, 0.02, 0.04]})
    study.optimize(Paced, {**space, "decay": weight}, 4, show_progress=False)
    made = study.branch(1, at=5, params={"lr": 0.04}, copies=2)
    assert site.wait(study.id).status == "complete"
    parent, _ = made_of(site, study, 1)
    for number, keys in zip(made, (0, made[1]), strict=True):
        branch, found = made_of(site, study, number)
        assert found == trained(Paced, 5, [Leg(parent, 0, 5), Leg(branch, keys, 6)])


def test_an_epoch_function_is_branched_from_its_own_checkpoint(site):
    study = create_study(
        study_name="function", metric="accuracy", direction="maximize", sampler="random", seed=3,
        strategy=FullBudget(6),
    )  # fmt: skip
    study.optimize(adds, {"every": [2], "more": [0, 1]}, 1, show_progress=False)
    row = site.reader.trials(study.id)[0]
    with pytest.raises(UsageError, match="the state after epoch 3 is not in the store; those afte"):
        study.branch(0, at=3, params={"more": 1 - row.params["more"]})
    study.branch(0, at=6, params={"more": 1 - row.params["more"]}, to=8)
    assert site.wait(study.id).status == "complete"
    _, before = made_of(site, study, 0)
    _, found = made_of(site, study, 1)
    assert sorted(found) == [7, 8]
    assert found[7][1]["accuracy"] > before[6][1]["accuracy"] + 7
