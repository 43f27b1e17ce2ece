"""Every refusal of a submitted study, with field, value and the allowed values."""

import functools
import json
import sys
import threading
from dataclasses import replace

import optuna
import penstock
import pytest
from penstock import (
    ASHA,
    PASHA,
    PBT,
    CurveStopping,
    Float,
    FullBudget,
    Hyperband,
    Int,
    Limits,
    MedianStopping,
    Resources,
    Sampler,
    SuccessiveHalving,
    TorchTrainable,
    epoch_function,
)
from penstock.app.client.study import submission
from penstock.app.client.study.handle import StudyHandle
from penstock.app.spec.build import check_name, make_asked_spec, make_plan, make_spec, new_id
from penstock.app.spec.changes import differences
from penstock.app.spec.options import GROUPS
from penstock.app.spec.plan import StudyPlan
from penstock.base.errors import UsageError
from penstock.scheduler.model.study import Code

GOOD = {
    "direction": "maximize",
    "metric": "accuracy",
    "sampler": "tpe",
    "strategy": ASHA(max_epochs=9),
    "seed": 0,
}
SPACE = {"lr": Float(1e-4, 1, log=True)}
STRICT = Resources(exactness="statistical", on_signature_change="refuse")


class Net(TorchTrainable):
    pass


@epoch_function
def loops(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": trial.params["lr"]})


def loops_unmarked(trial):
    for _ in trial.epochs():
        trial.report({"accuracy": 0.5})


@epoch_function
def suggests(trial):
    trial.suggest_float("lr", 0, 1)


@epoch_function
def prunes(this):
    for _ in this.epochs():
        if this.should_prune():
            break


def counts_its_own_epochs(trial):
    arguments = Data(epochs=3)
    return float(arguments.epochs)


class Data:
    def __init__(self, epochs):
        self.epochs = epochs


def objective(trial):
    return trial.suggest_float("x", 0, 1)


def plan(**changes):
    for name in ("sampler", *GROUPS):  # these are checked when they are made
        if callable(make := changes.get(name)):
            changes[name] = make()
    return make_plan(**GOOD | changes)


def spec(code=Net, space=SPACE, n_trials=27, **changes):
    return make_spec(plan(**changes), "s-1", "s", code, space, n_trials)


def an_objective_with_a_study():
    study = penstock.create_study()
    return lambda trial: study


def a_local_objective():
    lock = threading.Lock()
    return lambda trial: lock


STUDY_REFUSALS = [
    ({"direction": "up"}, "direction = 'up'", "minimize or maximize"),
    ({"metric": ""}, "metric", "name of a metric"),
    ({"metric": 3}, "metric = 3", "name of a metric"),
    ({"sampler": "annealing"}, "sampler = 'annealing'", "grid, random, qmc, tpe, bohb, gp"),
    ({"sampler": 3}, "sampler = 3", "grid, random, qmc, tpe, bohb, gp"),
    ({"sampler": lambda: Sampler(optuna.samplers.TPESampler(multivariate=True), x=1)},
     "sampler.x = 1", "n_startup_trials"),
    ({"sampler": lambda: Sampler("tpe", n_startup_trials=-1)}, "n_startup_trials", ">= 0"),
    ({"sampler": lambda: Sampler("tpe", n_startup_trials=2.5)}, "n_startup_trials", "whole number"),
    ({"sampler": lambda: Sampler("tpe", n_ei_candidates=0)}, "n_ei_candidates", ">= 1"),
    ({"sampler": lambda: Sampler("tpe", multivariate=1)}, "multivariate", "True or False"),
    ({"sampler": lambda: Sampler("random", seed=1)}, "sampler.seed", "none with 'random'"),
    ({"strategy": "asha"}, "strategy = 'asha'", "ASHA(...)"),
    ({"seed": -1}, "seed = -1", "whole number >= 0"),
    ({"seed": 2**63}, "seed", "at most 9223372036854775807"),
    ({"seed": "zero"}, "seed = 'zero'", "whole number"),
    ({"limits": lambda: Limits(epoch_timeout=0)}, "limits.epoch_timeout = 0", "above 0"),
    ({"limits": lambda: Limits(epoch_timeout=float("inf"))}, "epoch_timeout", "above 0"),
    ({"limits": lambda: Limits(epoch_timeout="1m")}, "epoch_timeout", "above 0"),
    ({"limits": lambda: Limits(retries=-1)}, "limits.retries = -1", ">= 0"),
    ({"limits": lambda: Limits(retries=True)}, "limits.retries = True", "whole number"),
    ({"resources": lambda: Resources(shards=0)}, "resources.shards = 0", ">= 1"),
    ({"resources": lambda: Resources(shards=2.0)}, "resources.shards = 2.0", "whole number"),
    ({"resources": lambda: Resources(exactness="exact")}, "exactness = 'exact'", "bitwise, stati"),
    ({"resources": lambda: Resources(on_signature_change="ask")},
     "resources.on_signature_change = 'ask'", "refuse, record or None"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "field", "allowed"), STUDY_REFUSALS)
def test_a_study_that_cannot_be_is_refused_when_it_is_created(changes, field, allowed):
    with pytest.raises(UsageError) as refusal:
        plan(**changes)
    assert field in str(refusal.value)
    assert allowed in str(refusal.value)


@pytest.mark.parametrize(
    ("given", "change"),
    [
        ({}, "refuse"),
        ({"resources": Resources(exactness="statistical")}, "record"),
        ({"resources": STRICT}, "refuse"),
        ({"resources": Resources(on_signature_change="record")}, "record"),
    ],
)
def test_a_signature_may_not_change_where_bits_count_unless_said(given, change):
    assert spec(**given).on_signature_change == change


STRATEGY_REFUSALS = [
    (lambda: FullBudget(0), "FullBudget.epochs = 0", ">= 1"),
    (lambda: ASHA(max_epochs=9, eta=1), "ASHA.eta = 1", ">= 2"),
    (lambda: ASHA(max_epochs=9, eta=2.5), "ASHA.eta = 2.5", "whole number"),
    (lambda: ASHA(min_epochs=0, max_epochs=9), "ASHA.min_epochs = 0", ">= 1"),
    (lambda: ASHA(min_epochs=10, max_epochs=9), "ASHA.min_epochs = 10", "at most max_epochs = 9"),
    (lambda: SuccessiveHalving(max_epochs=0), "SuccessiveHalving.max_epochs = 0", ">= 1"),
    (lambda: PASHA(max_epochs=9, eta=1), "PASHA.eta = 1", ">= 2"),
    (lambda: Hyperband(max_epochs=9, overlap=1), "Hyperband.overlap = 1", "True or False"),
    (lambda: PBT(max_epochs=9, interval=10), "PBT.interval = 10", "at most max_epochs = 9"),
    (lambda: PBT(max_epochs=9, quantile=0.6), "PBT.quantile = 0.6", "at most 0.5"),
    (lambda: PBT(max_epochs=9, quantile="a"), "PBT.quantile = 'a'", "at most 0.5"),
    (lambda: PBT(max_epochs=9, resample=2), "PBT.resample = 2", "0 to 1"),
    (lambda: PBT(max_epochs=9, explore="lr"), "PBT.explore = 'lr'", "a list"),
    (lambda: MedianStopping(9, every=0), "MedianStopping.every = 0", ">= 1"),
    (lambda: CurveStopping(9, risk=1.0), "CurveStopping.risk = 1.0", "above 0 and below 1"),
    (
        lambda: SuccessiveHalving(max_epochs=None),
        "SuccessiveHalving.max_epochs = None",
        "whole number",
    ),
]


@pytest.mark.parametrize(("make", "field", "allowed"), STRATEGY_REFUSALS)
def test_a_strategy_that_cannot_be_is_refused_when_it_is_named(make, field, allowed):
    with pytest.raises(UsageError) as refusal:
        make()
    assert field in str(refusal.value)
    assert allowed in str(refusal.value)


SUBMISSION_REFUSALS = [
    ("no trials", {"n_trials": 0}, "n_trials = 0", ">= 1"),
    ("half a trial", {"n_trials": 1.5}, "n_trials = 1.5", "whole number"),
    ("endless trials", {"n_trials": None}, "n_trials = None", "whole number"),
    ("an endless grid", {"sampler": "grid"}, "space['lr']", "a step"),
    ("a grid of nothing", {"sampler": "grid", "code": objective, "space": None}, "space", "'grid'"),
    ("an empty space", {"space": {}}, "space", "at least one name"),
    ("a trainable without space", {"space": None}, "space = None", "for a TorchTrainable"),
    ("a trainable without metric", {"metric": None}, "metric=", "create_study"),
    ("a trainable without strategy", {"strategy": None}, "strategy = None", "FullBudget(epochs)"),
    ("a trainable without end", {"strategy": FullBudget()}, "strategy", "FullBudget(epochs)"),
    (
        "more shards than examples",
        {"resources": Resources(shards=65)},
        "resources.shards = 65",
        "1 to the batch size, 64",
    ),
    (
        "more shards than the smallest batch of a list",
        {"resources": Resources(shards=9), "space": {"batch_size": [16, 8]}},
        "resources.shards = 9",
        "batch size, 8",
    ),
    (
        "more shards than the smallest batch of a range",
        {"resources": Resources(shards=5), "space": {"batch_size": Int(4, 128)}},
        "resources.shards = 5",
        "batch size, 4",
    ),
    (
        "an objective in shards",
        {"code": objective, "resources": Resources(shards=2)},
        "resources.shards = 2",
        "an objective",
    ),
    (
        "an objective that is to lend its checkpoint",
        {"code": objective, "strategy": PBT(max_epochs=9)},
        "strategy = 'PBT'",
        "which objectives do not have",
    ),
    (
        "a population in which nobody is last",
        {"strategy": PBT(max_epochs=9, quantile=0.1), "n_trials": 9},
        "n_trials = 9",
        "at least 10",
    ),
    (
        "exploring what the space lacks",
        {"strategy": PBT(max_epochs=9, explore=["speed"]), "n_trials": 9},
        "PBT.explore = 'speed'",
        "lr",
    ),
    (
        "a statistical objective",
        {"code": objective, "resources": Resources(exactness="statistical")},
        "resources.exactness = 'statistical'",
        "an objective",
    ),
    ("a function without space", {"code": loops, "space": None}, "space = None", "epoch function"),
    (
        "a function without metric",
        {"code": loops, "metric": None},
        "is an epoch function",
        "metric=",
    ),
    ("a function without end", {"code": loops, "strategy": None}, "strategy", "an epoch function"),
    (
        "a function in shards",
        {"code": loops, "resources": Resources(shards=2)},
        "resources.shards = 2",
        "an epoch function",
    ),
    (
        "a wide function",
        {"code": loops, "resources": Resources(max_width=2)},
        "resources.max_width = 2",
        "an epoch function",
    ),
    (
        "a bitwise function",
        {"code": loops, "resources": Resources(exactness="bitwise")},
        "bitwise",
        "statistical or None",
    ),
    (
        "a function of one machine",
        {"code": loops, "resources": Resources(on_signature_change="refuse")},
        "resources.on_signature_change = 'refuse'",
        "record or None for an epoch function",
    ),
    (
        "a function without mark",
        {"code": loops_unmarked, "space": None},
        "loops_unmarked loops over trial.epochs()",
        "write @penstock.epoch_function",
    ),
    ("a function that suggests", {"code": suggests}, "trial.suggest_float()", "trial.params"),
    (
        "a function that asks whether to stop",
        {"code": prunes},
        "trial.should_prune()",
        "objectives",
    ),
    ("no code", {"code": 3}, "first argument", "objective(trial)"),
    ("another class", {"code": dict}, "first argument", "TorchTrainable"),
    ("an instance", {"code": Net({})}, "first argument", "TorchTrainable"),
    ("a study in its code", {"code": an_objective_with_a_study()}, "another study", "inside"),
    ("what cannot be pickled", {"code": a_local_objective()}, "lock", "top level"),
]


@pytest.mark.parametrize(("changes", "field", "allowed"), [row[1:] for row in SUBMISSION_REFUSALS],
                         ids=[row[0] for row in SUBMISSION_REFUSALS])  # fmt: skip
def test_a_study_that_cannot_run_is_refused_when_it_is_submitted(changes, field, allowed):
    with pytest.raises(UsageError) as refusal:
        spec(**changes)
    assert field in str(refusal.value)
    assert allowed in str(refusal.value)


def test_a_trainable_becomes_a_study_of_the_torch_contract():
    changes = {"sampler": Sampler("tpe", n_startup_trials=5), "limits": Limits(epoch_timeout=60)}
    changes |= {"system": "off"}  # as where nothing tunes
    made = spec(**changes)
    assert made.contract == "torch"
    assert made.code.target.endswith(":Net")
    assert len(made.code.digest) == 64
    assert made.space == (("lr", SPACE["lr"].to_json()),)
    assert made.strategy == ASHA(max_epochs=9)
    assert made.sampler_options == '{"n_startup_trials": 5}'
    assert made.epoch_timeout == 60.0
    assert StudyPlan.of(made) == plan(
        **changes, resources=Resources(exactness="bitwise", on_signature_change="refuse")
    )
    assert make_spec(StudyPlan.of(made), "s-1", "s", Net, SPACE, 27) == made


def test_a_marked_function_becomes_a_study_of_the_epochs_contract():
    made = spec(loops)
    assert (made.contract, made.exactness, made.on_signature_change) == (
        "epochs",
        "statistical",
        "record",
    )
    assert make_spec(StudyPlan.of(made), "s-1", "s", loops, SPACE, 27) == made
    assert spec(loops, resources=Resources(exactness="statistical")) == made


def test_an_attribute_of_something_else_makes_no_epoch_function():
    assert spec(counts_its_own_epochs, None, 5).contract == "objective"


def test_shards_follow_from_the_widest_allocation_unless_the_user_says_how_many():
    def cut(space=SPACE, **resources):
        made = spec(space=space, resources=Resources(**resources))
        return made.shards, made.max_width

    assert cut() == (spec().shards, spec().max_width) == (None, 1)
    assert cut(max_width=4) == (None, 4)
    assert cut(shards=64) == (64, 64)
    assert cut(shards=8, max_width=2) == (8, 2)
    assert cut({"batch_size": [256, 128]}, shards=128) == (128, 128)
    made = StudyPlan.of(spec(resources=Resources(shards=4))).resources
    assert (made.max_width, made.shards) == (4, 4)
    wider = spec(resources=Resources(max_width=4))
    assert differences(spec(), wider) == ["resources.max_width was 1 and is 4"]


def test_a_trial_is_no_wider_than_its_shards():
    with pytest.raises(UsageError, match=r"resources.max_width = 4 .* is 1 to .* 2"):
        spec(resources=Resources(shards=2, max_width=4))
    with pytest.raises(UsageError, match=r"resources.max_width = 2 .* 1 for an objective"):
        spec(objective, None, 5, metric=None, strategy=None, resources=Resources(max_width=2))


def test_what_runs_in_a_trainer_may_have_a_memory_limit():
    limit = {"resources": Resources(memory=2**30)}
    assert spec(objective, None, 5, metric=None, strategy=None, **limit).memory_limit == 2**30
    assert spec(loops, **limit).memory_limit == 2**30


def test_an_objective_needs_nothing_but_a_number_of_trials():
    made = spec(objective, None, 5, metric=None, strategy=None)
    assert (made.contract, made.metric, made.space) == ("objective", "value", None)
    assert made.strategy == FullBudget()


def test_a_space_given_to_an_objective_is_its_space():
    assert spec(objective, SPACE).space == (("lr", SPACE["lr"].to_json()),)


def test_a_grid_has_as_many_trials_as_points_unless_told():
    space = {"lr": [0.1, 0.2], "n": [1, 2, 3]}
    assert spec(space=space, n_trials=None, sampler="grid").n_trials == 6
    assert spec(space=space, n_trials=4, sampler="grid").n_trials == 4


def test_optunas_own_samplers_are_understood():
    samplers = optuna.samplers
    assert plan(sampler=samplers.RandomSampler(seed=1)).sampler == "random"
    tpe = plan(sampler=samplers.TPESampler(n_startup_trials=3, seed=1))
    assert tpe.sampler == "tpe"
    assert json.loads(tpe.sampler_options)["n_startup_trials"] == 3
    grid = {"sampler": samplers.GridSampler({"x": [1, 2, 3]})}
    made = spec(objective, None, None, **grid)
    assert (made.sampler, made.n_trials) == ("grid", 3)
    with pytest.raises(UsageError, match="has its own space"):
        spec(objective, SPACE, **grid)


def a_tpe_with_code():
    with pytest.warns(FutureWarning):
        return optuna.samplers.TPESampler(gamma=lambda n: 3)


class TPESampler(optuna.samplers.RandomSampler):
    """A user's class may be called as one of Optuna's."""


@pytest.mark.parametrize(
    ("make", "generations"),
    [
        (a_tpe_with_code, False),
        (TPESampler, False),
        (lambda: optuna.samplers.CmaEsSampler(x0={"lr": 0.1}), True),
        (optuna.samplers.NSGAIIISampler, True),
    ],
)
@pytest.mark.parametrize(
    "scheduled",
    [{}, {"space": None, "code": objective, "metric": None, "strategy": ASHA(max_epochs=3)}],
)
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.filterwarnings("ignore:.*has been deprecated:FutureWarning")
def test_a_sampler_that_the_scheduler_does_not_build_goes_as_it_is(make, generations, scheduled):
    sampler = make()
    made = spec(**scheduled | {"sampler": sampler})
    assert (made.sampler, made.hosted, made.local) == ("own", True, False)
    assert json.loads(made.sampler_options) == {
        "sampler": type(sampler).__name__,
        "generations": generations,
    }
    again = spec(**scheduled | {"sampler": make()})
    assert differences(made, again) == [], "two pickles of one sampler differ"


def test_beside_an_objective_any_sampler_draws():
    given = plan(sampler=a_tpe_with_code(), metric=None, strategy=None)
    assert (given.local, given.sampler) == (True, "optuna")


def test_differences_name_what_changed_and_overlook_an_edited_file():
    old = spec()
    assert differences(old, spec()) == []
    assert differences(old, spec(seed=4)) == ["seed was 0 and is 4"]
    assert differences(old, spec(n_trials=28)) == [], "up to so many in all"
    assert any(each.startswith("code was ") for each in differences(old, spec(objective)))


def test_a_study_of_an_installation_that_tunes_nothing_goes_on_where_one_does():
    old, new = spec(system="off"), replace(spec(), system="reuse")
    assert differences(old, new) == []
    assert differences(new, old) == ["system was reuse and is off"]
    assert differences(old, replace(new, system="tune")) == ["system was off and is tune"]


class Extending:
    """A client that keeps what a study is extended to."""

    def extend(self, study, *, to, now, blobs, heard):
        self.extended = now


def test_such_a_study_is_extended_as_it_is():
    handle, client = StudyHandle(plan(), "s", "s-1", None), Extending()
    handle.client, handle.ensure_up = lambda: client, lambda devices: None
    handle.note_submitted(spec(system="off"))
    submission.submit_scheduled(handle, Net, SPACE, 28, None, heard=False)
    assert (client.extended.n_trials, client.extended.system) == (28, "off")


def test_differences_are_in_the_users_words():
    old = spec(space={"lr": Float(0.1, 0.5, log=True), "act": ["relu"]})
    new = spec(
        space={"lr": Float(0.1, 0.9, log=True), "n": Int(1, 9, step=2)},
        strategy=ASHA(max_epochs=27, eta=2),
        limits=Limits(epoch_timeout=30),
    )
    assert sorted(differences(old, new)) == [
        "limits.epoch_timeout was not given and is 30.0",
        "space['act'] was ['relu'] and is not given",
        "space['lr'] was Float(0.1, 0.5, log=True) and is Float(0.1, 0.9, log=True)",
        "space['n'] was not given and is Int(1, 9, step=2)",
        "strategy's eta was 3 and is 2",
        "strategy's max_epochs was 9 and is 27",
    ]


def test_code_is_the_same_by_its_module_and_by_its_path_and_in_a_folder_that_was_moved():
    old = spec()
    _, _, name = old.code.target.rpartition(":")
    by_path = Code(f"/elsewhere/file.py:{name}", "/elsewhere", old.code.digest)
    assert differences(old, replace(old, code=by_path)) == []
    other = replace(by_path, digest="0" * 64)
    assert differences(old, replace(old, code=other)) == [
        f"code was {old.code.target} and is {other.target}"
    ]


def test_code_by_value_is_the_same_by_its_names_whatever_its_bytes_are():
    old = spec(functools.partial(objective), None, 5, metric=None, strategy=None)
    assert old.code.target == f"pickle:{__name__}:partial(objective)"

    def as_now(**changes):
        return differences(old, replace(old, code=replace(old.code, **changes)))

    assert as_now(digest="0" * 64, path="/elsewhere") == []
    assert as_now(target=f"/elsewhere/{__name__}.py:partial(objective)") == []
    other = f"pickle:{__name__}:partial(other)"
    assert as_now(target=other) == [f"code was {old.code.target} and is {other}"]
    assert as_now(target="pickle:elsewhere:partial(objective)") != []
    assert differences(old, replace(old, argv=("other.py",), cwd="/elsewhere")) == []


@pytest.mark.parametrize(
    ("script", "name"),
    [("/a/Digits v2.py", "digits-v2-"), ("-c", "study-"), ("", "study-")],
)
def test_a_study_without_a_name_takes_the_scripts_and_a_new_one_every_time(
    script, name, monkeypatch
):
    monkeypatch.setattr(sys, "argv", [script])
    assert check_name(None).startswith(name)
    assert check_name(None) != check_name(None)


def test_names_and_ids_read_well():
    assert new_id("LeNet on MNIST!").startswith("lenet-on-mnist-")
    assert len(new_id("x" * 300)) == 49
    # With four hex digits, one new study of sixty thousand was taken for each older one.
    assert len({new_id("x") for _ in range(1000)}) == 1000
    assert new_id("数").startswith("study-")
    for name in ("", "  ", "a\nb", "x" * 201, 7):
        with pytest.raises(UsageError, match="study_name"):
            check_name(name)


class Taken:
    """A client of a scheduler in which other processes take the first names that are sent."""

    def __init__(self, taken):
        self.taken, self.sent = taken, []

    def submit(self, spec, enqueued, blobs, *, heard):
        self.sent.append(spec.name)
        if len(self.sent) <= self.taken:
            allowed = "a name not taken by another study"
            raise UsageError(str(UsageError.refuse("study_name", spec.name, allowed)))


def submitted(monkeypatch, taken, *, numbered=True):
    monkeypatch.setattr(submission, "_NAME_WAIT", 0.0)
    handle, client = StudyHandle(make_plan(), "d", "d-0", None), Taken(taken)
    handle.client = lambda: client
    names = iter(f"d-{n}" for n in range(2, 99))
    handle.next_name = (lambda: next(names)) if numbered else None
    return (
        submission._submit_new(handle, make_asked_spec("d-0", "d", make_plan().objectives)),
        handle,
        client,
    )


def test_a_name_that_another_process_takes_in_the_meantime_gets_another_number(monkeypatch):
    spec, handle, client = submitted(monkeypatch, 2)
    assert client.sent == ["d", "d-2", "d-3"]
    assert (spec.name, spec.id) == (handle.study_name, handle.id)
    assert handle.id.startswith("d-3-")


def test_a_name_of_the_user_s_own_is_refused_if_it_is_taken(monkeypatch):
    with pytest.raises(UsageError, match="not taken by another study"):
        submitted(monkeypatch, 1, numbered=False)
    with pytest.raises(UsageError, match="no name like"):
        submitted(monkeypatch, 99)
