"""Several objectives and constraints at the door: what is taken, what is refused and how."""

import json

import optuna
import pytest
from penstock import (
    ASHA,
    Categorical,
    Float,
    FullBudget,
    Int,
    Sampler,
    TorchTrainable,
    epoch_function,
)
from penstock.app.server.runner.commands import to_event
from penstock.app.spec.build import make_plan, make_spec
from penstock.app.spec.objectives import parse_constraints, parse_objectives
from penstock.app.spec.plan import StudyPlan
from penstock.base.errors import UsageError
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.study import Objective

GOOD = {
    "direction": None,
    "sampler": "tpe",
    "strategy": FullBudget(3),
    "seed": 0,
    "directions": ["minimize", "maximize"],
    "metric": ["loss", "accuracy"],
}
SPACE = {
    "optimizer": ["adam", "sgd"],
    "lr": Float(1e-4, 1, log=True),
    "momentum": Float(0.5, 0.9, when={"optimizer": "sgd"}),
}


class Net(TorchTrainable):
    pass


@epoch_function
def loops(trial):
    for _ in trial.epochs():
        trial.report({"loss": 1.0})


def objective(trial):
    return trial.suggest_float("x", 0, 1), 1.0


def plan(**changes):
    if callable(make := changes.get("sampler")):  # a sampler is checked when it is made
        changes |= {"sampler": make()}
    return make_plan(**GOOD | changes)


def spec(code=Net, space=SPACE, **changes):
    return make_spec(plan(**changes), "s-1", "s", code, space, 9)


REFUSED = [
    ({"directions": []}, "directions = []", "one entry for each objective"),
    ({"directions": "minimize"}, "directions = 'minimize'", "a list"),
    ({"directions": ["minimize", "up"]}, "directions[1] = 'up'", "minimize or maximize"),
    ({"directions": ["minimize"] * 3}, "metric", "as many names as there are directions, 3"),
    ({"metric": ["loss", "loss"]}, "metric", "distinct names"),
    ({"metric": ["loss", ""]}, "metric[1] = ''", "the name of a metric"),
    ({"metric": "loss"}, "metric = 'loss'", "a list with one entry for each"),
    ({"directions": None}, "metric = ['loss', 'accuracy']", "a list of them goes with directions"),
    ({"directions": None, "metric": ("loss",)}, "metric = ('loss',)", "goes with directions"),
    ({"directions": None, "metric": 3}, "metric = 3", "the name of a metric"),
    ({"direction": "minimize"}, "direction = 'minimize'", "None, because directions is given"),
    ({"strategy": ASHA(max_epochs=9)}, "strategy = 'asha'", "FullBudget(...) or None"),
    ({"sampler": "cmaes"}, "sampler = 'cmaes'", "nsga2 with several objectives"),
    ({"sampler": optuna.samplers.CmaEsSampler()}, "sampler = 'cmaes'", "several objectives"),
    ({"sampler": "bohb"}, "sampler = 'bohb'", "random, qmc, tpe, gp, nsga2"),
    ({"constraints": {}}, "constraints = {}", "{'latency_ms': 20.0}"),
    ({"constraints": ["ms <= 2"]}, "constraints", "a mapping of metrics to the highest value"),
    ({"constraints": {"": 1}}, "a name in constraints", "the name of a metric"),
    ({"constraints": {"ms": "2"}}, "constraints['ms'] = '2'", "a finite number"),
    ({"constraints": {"ms": float("nan")}}, "constraints['ms']", "a finite number"),
    ({"sampler": lambda: Sampler("cmaes", popsize=1)}, "popsize", ">= 2"),
    ({"sampler": lambda: Sampler("nsga2", population_size=1)}, "population_size", ">= 2"),
    ({"sampler": lambda: Sampler("nsga2", mutation_prob=1.5)}, "mutation_prob", "0 to 1"),
    (
        {"sampler": lambda: Sampler("cmaes", lr_adapt=True, with_margin=True)},
        "with_margin, lr_adapt",
        "one of these at a time",
    ),
]


@pytest.mark.parametrize(("changes", "field", "allowed"), REFUSED)
def test_objectives_and_constraints_that_cannot_be_are_refused(changes, field, allowed):
    with pytest.raises(UsageError) as refusal:
        plan(**changes)
    assert field in str(refusal.value)
    assert allowed in str(refusal.value)


ONE = {"directions": None, "metric": "loss"}
NUMBERS = {"x": Float(0, 1), "n": Int(1, 9)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"metric": None}, "metric=[...] with directions=[...]"),
        ({"code": loops, "metric": None}, "metric=[...] with directions=[...]"),
        (
            {"code": objective, "space": None, "constraints": {"ms": 1}},
            "which calls trial.set_constraint(name, excess)",
        ),
        (ONE | {"sampler": "cmaes"}, "sampler = 'cmaes' is refused: allowed is grid, random, qmc"),
        ({"sampler": "gp"}, "in a space with conditions"),
        (
            ONE | {"sampler": "cmaes", "code": objective, "space": None},
            "Float or Int, given to optimize(), with 'cmaes'",
        ),
        (ONE | {"sampler": "cmaes", "space": {"a": [1, 2]}}, "another where no parameter is a"),
    ],
)
def test_a_study_whose_parts_do_not_go_together_is_refused(changes, words):
    with pytest.raises(UsageError) as refusal:
        spec(**changes)
    assert words in str(refusal.value)


def test_a_study_of_several_objectives_is_the_same_after_a_reload_and_over_the_wire():
    made = spec(constraints={"ms": 20, "loss": 3})
    assert made.objectives == (Objective("loss", "minimize"), Objective("accuracy", "maximize"))
    assert made.constraints == (("ms", 20.0), ("loss", 3.0))
    assert made.also == ("accuracy", "ms"), "what is reported besides the first metric"
    again = make_spec(StudyPlan.of(made), "s-1", "s", Net, SPACE, 9)
    assert again == made
    body = {"kind": "submit", "study": json.loads(json.dumps(_plain(made)))}
    assert to_event(body, Engine(), 1.0, {}.__getitem__).study == made


def _plain(made):
    from penstock.app.ledger.codec import spec_to_json

    return json.loads(spec_to_json(made))


def test_the_scheduler_refuses_what_a_client_of_another_version_lets_through():
    made = _plain(spec())
    for changes, words in [
        ({"strategy": made["strategy"] | {"name": "asha", "max_epochs": 9}}, "FullBudget"),
        ({"sampler": "gp"}, "with conditions"),
        ({"further": [{"metric": "b", "direction": "up"}]}, "direction = 'up'"),
    ]:
        with pytest.raises(UsageError, match=words):
            to_event({"kind": "submit", "study": made | changes}, Engine(), 1.0, {}.__getitem__)


def test_an_objective_needs_no_names_for_its_values():
    made = spec(objective, None, metric=None, strategy=None)
    assert [each.metric for each in made.objectives] == ["values_0", "values_1"]
    assert spec(objective, None, metric=None, directions=["maximize"]).metric == "value"


def test_optunas_evolutionary_samplers_are_read_with_their_options():
    samplers = optuna.samplers
    one = ONE | {"strategy": None}
    made = plan(sampler=samplers.CmaEsSampler(popsize=7, seed=3), **one)
    assert (made.sampler, json.loads(made.sampler_options)["popsize"]) == ("cmaes", 7)
    made = plan(sampler=samplers.NSGAIISampler(population_size=12, crossover_prob=0.5))
    options = json.loads(made.sampler_options)
    assert (made.sampler, options["population_size"], options["crossover_prob"]) == (
        "nsga2",
        12,
        0.5,
    )


def test_a_parameter_that_is_not_always_there_is_beside_the_space():
    made = spec()
    assert [name for name, _ in made.space] == ["optimizer", "lr", "momentum"]
    [condition] = made.conditions
    assert (condition.name, condition.parent, condition.values) == (
        "momentum",
        "optimizer",
        ("sgd",),
    )
    space = SPACE | {"more": Categorical([1, 2], when={"optimizer": ["sgd", "adam"], "flag": True})}
    with pytest.raises(UsageError, match=r"space\['more'\].when = 'flag' is refused.*optimizer"):
        spec(space=space)


@pytest.mark.parametrize("bad", ["a\x1b[31m", "a\ud800", "a\nb"])
def test_a_name_that_cannot_be_printed_is_refused(bad):
    for arguments in (("minimize", bad, None), (None, ["a", bad], ["minimize"] * 2)):
        with pytest.raises(UsageError, match="printable"):
            parse_objectives(*arguments)
    with pytest.raises(UsageError, match="printable"):
        parse_constraints({bad: 1.0})
