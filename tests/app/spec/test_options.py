"""``create_study``'s groups: what each refuses, their old form, and the spec that they come to."""

import inspect
import json
import pickle
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import optuna
import penstock
import pytest
from penstock import (
    ASHA,
    Float,
    FullBudget,
    Limits,
    Resources,
    Sampler,
    Share,
    SystemTuning,
    UsageError,
    create_study,
)
from penstock.app.ledger.codec import spec_from_json, spec_to_json
from penstock.app.spec.build import make_plan, make_spec
from penstock.app.spec.options import GROUPS, option_paths
from penstock.app.spec.plan import StudyPlan
from penstock.scheduler.model.study import StudySpec

SPACE = {"lr": Float(1e-4, 1, log=True)}


class Net(penstock.TorchTrainable):
    pass


def objective(trial):
    return trial.suggest_float("x", 0, 1)


@penstock.epoch_function
def loops(trial):
    for _ in trial.epochs():
        trial.report({"loss": 1.0})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"resources": 8}, "resources = 8 is refused: allowed is None or penstock.Resources(max_"),
        ({"limits": {"retries": 1}}, "limits = {'retries': 1} is refused: allowed is None or pen"),
        ({"share": Limits()}, "share = Limits(epoch_timeout=None, retries=0, keep_checkpoints=1"),
    ],
)
def test_what_cannot_be_is_refused_by_its_place(given, words):
    with pytest.raises(UsageError) as refusal:
        make_plan(**given)
    assert words in str(refusal.value)
    assert str(refusal.value).startswith(f"{refusal.value.field} = ")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Resources(exactness="exact"), "resources.exactness = 'exact' is refused: allow"),
        (lambda: Resources(exactness=["bitwise"]), "resources.exactness = ['bitwise'] is refused"),
        (lambda: Resources(max_width=0), "resources.max_width = 0 is refused"),
        (lambda: Resources(max_width=True), "resources.max_width = True is refused"),
        (lambda: Resources(max_width=3, shards=2), "resources.max_width = 3 is refused"),
        (lambda: Resources(memory=2**29 - 1), "resources.memory = 536870911 is refused"),
        (lambda: Limits(epoch_timeout="1m"), "limits.epoch_timeout = '1m' is refused"),
        (lambda: Limits(retries=0.5), "limits.retries = 0.5 is refused"),
        (lambda: Limits(keep_checkpoints=-1), "limits.keep_checkpoints = -1 is refused"),
        (lambda: Limits(fail_early=None), "limits.fail_early = None is refused"),
        (lambda: Limits(fail_early=-1), "limits.fail_early = -1 is refused"),
        (lambda: Share(weight=0), "share.weight = 0 is refused: allowed is a number from 0.00"),
        (lambda: Share(weight=1001.0), "share.weight = 1001.0 is refused"),
        (lambda: Share(priority=1.5), "share.priority = 1.5 is refused"),
        (lambda: Share(priority=1001), "share.priority = 1001 is refused: allowed is a whole n"),
    ],
)
def test_a_group_that_cannot_be_is_refused_where_it_is_made(make, words):
    with pytest.raises(UsageError) as refusal:
        make()
    assert words in str(refusal.value)
    assert str(refusal.value).startswith(f"{refusal.value.field} = ")


def test_a_group_keeps_what_its_checks_made_of_it():
    assert repr(Limits(epoch_timeout=60).epoch_timeout) == "60.0"
    assert Resources(shards=4).max_width is None, "it is filled in with the study"


@pytest.mark.parametrize(
    ("call", "given", "words"),
    [
        (
            create_study,
            {"stratgy": None},
            "create_study() takes no stratgy: did you mean strategy?",
        ),
        (
            create_study,
            {"max_widht": 2},
            "takes no max_widht: did you mean resources=penstock.Resources(max_width=2)?",
        ),
        (
            create_study,
            {"memory_limit": 2**30},
            "takes no memory_limit: did you mean resources=penstock.Resources(memory=1073741824)?",
        ),
        (create_study, {"xyzzy": 1}, "create_study() takes no xyzzy: it takes storage, sampler"),
        (Resources, {"max_widht": 2}, "Resources() takes no max_widht: did you mean max_width?"),
        (Limits, {"retry": 2}, "Limits() takes no retry: did you mean retries?"),
        (SystemTuning, {"knob": "lr"}, "SystemTuning() takes no knob: did you mean knobs?"),
        (Share, {"xyzzy": 2}, "Share() takes no xyzzy: it takes weight, priority"),
    ],
)
def test_what_is_no_option_is_refused_with_the_nearest_one(call, given, words):
    with pytest.raises(UsageError) as refusal:
        call(**given)
    assert words in str(refusal.value)
    assert refusal.value.field == next(iter(given))


@pytest.mark.parametrize("kind", GROUPS.values())
def test_groups_are_copied_and_pickled_as_other_values(kind):
    group = kind()
    assert pickle.loads(pickle.dumps(group)) == deepcopy(group) == replace(group) == group


def test_create_study_has_few_arguments_and_optunas_come_first():
    names = [*inspect.signature(create_study).parameters]
    assert len(names) <= 23
    optunas = [*inspect.signature(optuna.create_study).parameters]
    assert names[: len(optunas)] == optunas
    assert {*GROUPS} <= {*names}


def test_every_field_of_a_group_is_stored_by_a_name_of_its_own():
    assert {*option_paths()} <= {*StudySpec.__dataclass_fields__}
    assert len(option_paths()) == sum(len(kind.__dataclass_fields__) for kind in GROUPS.values())


#: Made by ``create_study`` when each option was an argument of its own; what is not the default.
RECORDED = [
    (
        objective,
        None,
        {"metric": None},
        {"contract": "objective", "metric": "value", "space": None},
    ),
    pytest.param(
        Net,
        SPACE,
        {
            "sampler": Sampler("tpe", n_startup_trials=5),
            "strategy": ASHA(max_epochs=9),
            "limits": Limits(epoch_timeout=60, retries=2, keep_checkpoints=3),
            "resources": Resources(2, 8, 2**30, "statistical", on_signature_change="refuse"),
            "system": lambda: SystemTuning(
                "tune", knobs=["threads", "autocast"], energy_weight=0.5, probing="bandit"
            ),
            "share": Share(weight=2, priority=-1),
            "seed": 4,
        },
        {
            "sampler_options": '{"n_startup_trials": 5}',
            "strategy": {"name": "asha", "max_epochs": 9, "ahead": True},
            "seed": 4,
            "epoch_timeout": 60.0,
            "retries": 2,
            "shards": 8,
            "max_width": 2,
            "exactness": "statistical",
            "on_signature_change": "refuse",
            "keep_checkpoints": 3,
            "system": "tune",
            "knobs": ["threads", "autocast"],
            "energy_weight": 0.5,
            "probing": "bandit",
            "memory_limit": 1073741824,
            "weight": 2.0,
            "priority": -1,
        },
        marks=pytest.mark.extension("system_tuning"),
    ),
    pytest.param(
        Net,
        SPACE,
        {
            "strategy": FullBudget(3),
            "resources": Resources(max_width=4),
            "system": lambda: SystemTuning(energy_weight=1),
        },
        {"strategy": {"max_epochs": 3}, "max_width": 4, "system": "reuse", "energy_weight": 1.0},
        marks=pytest.mark.extension("system_tuning"),
    ),
    (
        Net,
        SPACE,
        {
            "strategy": FullBudget(3),
            "resources": Resources(shards=4, on_signature_change="record"),
            "system": "off",
        },
        {
            "strategy": {"max_epochs": 3},
            "shards": 4,
            "max_width": 4,
            "on_signature_change": "record",
        },
    ),
    (
        loops,
        SPACE,
        {
            "strategy": FullBudget(3),
            "limits": Limits(retries=1, keep_checkpoints=0, fail_early=0),
            "resources": Resources(memory=2**30),
        },
        {
            "contract": "epochs",
            "strategy": {"max_epochs": 3},
            "retries": 1,
            "exactness": "statistical",
            "on_signature_change": "record",
            "keep_checkpoints": 0,
            "fail_early": 0,
            "memory_limit": 1073741824,
        },
    ),
    (
        objective,
        None,
        {
            "metric": None,
            "sampler": Sampler("nsga2", population_size=4),
            "directions": ["minimize", "maximize"],
            "share": Share(weight=0.5),
        },
        {
            "contract": "objective",
            "metric": "values_0",
            "space": None,
            "sampler": "nsga2",
            "sampler_options": '{"population_size": 4}',
            "further": [{"metric": "values_1", "direction": "maximize"}],
            "weight": 0.5,
        },
    ),
]
LR = {"step": None, "low": 0.0001, "high": 1.0, "log": True}
USUAL = {
    "id": "s-1",
    "name": "s",
    "contract": "torch",
    "metric": "loss",
    "direction": "minimize",
    "n_trials": 9,
    "space": [["lr", json.dumps({"name": "FloatDistribution", "attributes": LR})]],
    "sampler": "tpe",
    "sampler_options": "{}",
    "seed": 0,
    "seeding": "trial",
    "edits": None,
    "replicates": 1,
    "fuse": "auto",
    "epoch_timeout": None,
    "retries": 0,
    "max_segment": 64,
    "shards": None,
    "max_width": 1,
    "batch_size": 64,
    "exactness": "bitwise",
    "on_signature_change": "refuse",
    "keep_checkpoints": 1,
    "observations": [],
    "further": [],
    "constraints": [],
    "conditions": [],
    "system": "off",
    "knobs": None,
    "energy_weight": 0.0,
    "probing": "race",
    "precision": "fp32",
    "system_fixed": False,
    "memory_limit": None,
    "weight": 1.0,
    "priority": 0,
    "data_token": None,
    "fail_early": 3,
    "evidence": True,
    "environment": "",
    "device_hours": None,
    "kwh": None,
    "money": None,
    "deadline": None,
    "at_limit": "stop",
    "notify": [],
    "on_end": "",
    "on_error": "",
    "tools": None,
}
STRATEGY = {
    "name": "full",
    "max_epochs": None,
    "min_epochs": 1,
    "eta": 3,
    "overlap": True,
    "ahead": False,
    "proportional": False,
    "risk": 0.05,
    "quantile": 0.25,
    "resample": 0.25,
    "explore": None,
    "supernet": None,
}


@pytest.mark.parametrize(("code", "space", "given", "stored"), RECORDED)
def test_the_spec_is_that_of_the_single_arguments(code, space, given, stored):
    # Some groups cannot be made where their extension is not there.
    given = {
        name: value() if name == "system" and callable(value) else value
        for name, value in given.items()
    }
    made = make_spec(make_plan(**{"metric": "loss"} | given), "s-1", "s", code, space, 9)
    facts = json.loads(spec_to_json(made))
    assert facts.pop("code")["target"].endswith(f":{code.__name__}")
    assert (facts.pop("argv"), facts.pop("cwd")) == (sys.argv, str(Path.cwd()))
    assert facts == USUAL | stored | {"strategy": STRATEGY | stored.get("strategy", {})}
    read = spec_from_json(spec_to_json(made))
    assert StudyPlan.of(read).limits == given.get("limits", Limits())
    assert make_spec(StudyPlan.of(read), "s-1", "s", code, space, 9) == made
