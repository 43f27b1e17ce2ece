"""Common random numbers from the study's argument to the bits of its trials, on real workers."""

from __future__ import annotations

import json

import pytest
from penstock import FullBudget, Resources, UsageError, create_study
from penstock.scheduler.model.study import number_of
from user_code.trainees import Small

pytestmark = [pytest.mark.integration, pytest.mark.extension("prefixes")]

#: ``tag`` changes nothing of a trial but its parameters' names and values.
SPACE = {"tag": [0, 1], "lr": [0.05, 0.1]}


def states(site, study):
    """The state hashes of each trial's epochs, by its parameters."""
    params = {trial.id: trial.params for trial in site.reader.trials(study.id)}
    found = {(each["lr"], each["tag"]): {} for each in params.values()}
    for row in site.reader.epochs(study.id):
        found[params[row.trial]["lr"], params[row.trial]["tag"]][row.epoch] = row.state_hash
    return found


@pytest.mark.parametrize("width", [1, 2])
def test_equal_parameters_have_equal_bits_where_seeding_is_shared_and_only_there(site, width):
    def run(seeding):
        study = create_study(
            metric="accuracy",
            direction="maximize",
            sampler="grid",
            strategy=FullBudget(3),
            seeding=seeding,
            resources=Resources(max_width=width, shards=2),
        )
        study.optimize(Small, SPACE, show_progress=False)
        return study, states(site, study)

    study, shared = run("shared")
    for lr in SPACE["lr"]:
        assert shared[lr, 0] == shared[lr, 1]
        assert [*shared[lr, 0]] == [1, 2, 3]
    assert shared[0.05, 0] != shared[0.1, 0]
    _, own = run("trial")
    every = [{(epoch, state) for epoch, state in each.items()} for each in own.values()]
    assert len(set.union(*every)) == 4 * 3
    facts = json.loads(site.penstock("status", study.id, "--json"))
    assert facts["seeding"] == "shared"
    assert "shared seeding" in site.penstock("status", study.id)


def test_a_study_that_exists_keeps_its_seeding(site):
    given = {"metric": "accuracy", "sampler": "grid", "strategy": FullBudget(1)}
    first = create_study(study_name="kept", seeding="shared", **given)
    first.optimize(Small, SPACE, show_progress=False)
    again = create_study(study_name="kept", load_if_exists=True, **given)
    with pytest.raises(UsageError, match="seeding was shared and is trial"):
        again.submit(Small, SPACE)
    with pytest.raises(UsageError, match="seeding = 'each' is refused: allowed is trial or shared"):
        create_study(seeding="each", **given)


def test_replicates_differ_from_each_other_and_agree_across_configurations(site):
    study = create_study(
        metric="accuracy",
        direction="maximize",
        sampler="grid",
        strategy=FullBudget(2),
        seeding="shared",
        replicates=2,
    )
    study.optimize(Small, {"tag": [0, 1]}, show_progress=False)
    trials = site.reader.trials(study.id)
    assert [trial.params["tag"] for trial in trials] == [0, 0, 1, 1]
    bits = {trial.number: [] for trial in trials}
    for row in site.reader.epochs(study.id):
        bits[number_of(row.trial)].append((row.epoch, row.state_hash))
    assert sorted(bits[0]) == sorted(bits[2])
    assert sorted(bits[1]) == sorted(bits[3])
    assert not {*bits[0]} & {*bits[1]}
    # Both configurations are the same but for a name, so the earlier is the best.
    assert [trial.number for trial in study.best_replicates] == [0, 1]
    assert study.best_trial.number == 0
    assert study.best_params == {"tag": 0}
    assert study.best_value == sum(trial.value for trial in trials[:2]) / 2
    assert "best configuration trials 0, 1, mean accuracy" in site.penstock("best", study.id)
    with pytest.raises(UsageError, match="replicates = 3 is refused: allowed is 1 with"):
        create_study(metric="loss", replicates=3)
