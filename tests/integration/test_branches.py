"""Branches on real devices: the bits of a state carried into what is made anew, trained alone."""

from __future__ import annotations

import pytest
from branch_reference import Leg, trained
from penstock import Float, FullBudget, UsageError, create_study
from users_trainables import Paced

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
