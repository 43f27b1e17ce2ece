"""Data tokens at the door: what is refused, what an edit means, what an earlier study leaves."""

import json
from dataclasses import replace

import penstock
import pytest
from ledgers.study_ledger import study_spec
from penstock import (
    PBT,
    FullBudget,
    Resources,
    Share,
    SystemTuning,
    UsageError,
    create_study,
)
from penstock.app.ledger.codec import spec_to_json
from penstock.app.server.runner import commands
from penstock.app.spec.build import make_plan, make_spec
from penstock.app.spec.changes import differences
from penstock.tasks.contracts.import_digest import IMPORTS
from user_code import trainees
from worlds.desk import command
from worlds.drive_world import World

SPACE = {"lr": [0.1, 0.2]}
GIVEN = {
    "metric": "accuracy",
    "sampler": "grid",
    "strategy": FullBudget(3),
    "seeding": "shared",
    "share": Share(data_token="points"),
}


def objective(trial):
    return trial.suggest_float("x", 0, 1)


@penstock.epoch_function
def epochs(trial):
    for _ in trial.epochs():
        trial.report(accuracy=1.0)


def made(changes=(), code=trainees.Small):
    return make_spec(make_plan(**GIVEN | dict(changes)), "s-1", "s", code, SPACE, None)


@pytest.mark.parametrize("token", [5, b"x", "", "x" * 201, "a\nb", " "])
def test_what_is_no_token_is_refused_by_name(token):
    with pytest.raises(UsageError, match=r"share\.data_token = .* None or 1 to 200 printable"):
        Share(data_token=token)


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"seeding": "trial"}, trainees.Small, "each trial random numbers of its own"),
        ({}, epochs, "a training loop of its own"),
        ({"strategy": PBT(max_epochs=9, interval=3)}, trainees.Small, "population based training"),
        (
            {"resources": Resources(exactness="statistical")},
            trainees.Small,
            "does not promise equal bits",
        ),
        pytest.param(
            {"system": SystemTuning("tune", probing="bandit")},
            trainees.Small,
            "a system parameter that rounds differently",
            marks=pytest.mark.extension("system_tuning"),
        ),
        pytest.param(
            {"environment": "venv:/x"},
            trainees.Small,
            "an environment of its own",
            marks=pytest.mark.extension("environments"),
        ),
    ],
)
def test_a_token_where_no_epoch_can_be_taken_over_is_refused_by_name(changes, code, words):
    with pytest.raises(UsageError, match=rf"share\.data_token = 'points' is refused.*{words}"):
        n = 5 if "strategy" in changes else None
        sampler = {"sampler": "random"} if n else {}
        make_spec(make_plan(**GIVEN | changes | sampler), "s-1", "s", code, SPACE, n)


def test_code_by_value_and_trials_that_sample_as_they_run_are_refused_by_name():
    class Local(trainees.Small):
        pass

    with pytest.raises(UsageError, match=r"data_token = 'points'.*top level of a \.py file"):
        made(code=Local)
    with pytest.raises(UsageError, match="data_token = 'points' is refused"):
        create_study(seeding="shared", share=Share(data_token="points")).submit(objective, 6)
    with pytest.raises(UsageError, match="data_token = 'points' is refused"):
        create_study(seeding="shared", share=Share(data_token="points")).ask()


def test_the_scheduler_refuses_it_as_well():
    world = World()
    forged = study_spec(data_token="points", contract="torch")
    body = command(1, "submit", study=json.loads(spec_to_json(forged)), enqueued=[]).body
    with pytest.raises(UsageError, match="data_token = 'points' is refused"):
        commands.to_event(body, world.engine, 1.0, past=None)


def test_with_a_token_the_digest_is_of_all_imports_and_an_edit_is_a_difference():
    plain, token = made({"share": None}), made()
    assert not plain.code.digest.startswith(IMPORTS)
    assert token.code.digest.startswith(IMPORTS)
    assert made().code == token.code
    for spec, found in ((plain, 0), (token, 1)):
        edited = replace(spec, code=replace(spec.code, digest="imports:edited"))
        assert len(differences(spec, edited)) == found
    [told] = differences(token, replace(token, data_token="others"))
    assert told == "share.data_token was points and is others"
