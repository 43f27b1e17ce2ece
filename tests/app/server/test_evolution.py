"""Regularised evolution: whose child a trial is, what is changed in it, and whether it pays."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from statistics import mean

import pytest
from penstock import Categorical, Float, FullBudget, Int, Sampler, UsageError, create_study
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.sampling.evolution import POPULATION
from penstock.app.spec.conditions import is_active, parse_conditions
from penstock.app.spec.sampler_options import check_space
from penstock.app.spec.space import check_params, parse_space
from penstock.scheduler.model.events import Proposed
from penstock.scheduler.model.study import Code, StrategySpec, StudySpec
from penstock.scheduler.model.trial import Trial, TrialState
from worlds.drive_world import World, check_invariants

#: Twelve choices of four, of which each has a right one: no choice misleads.
CHOICES = {f"c{index}": ["a", "b", "c", "d"] for index in range(12)}
CONDITIONAL = {
    "op": ["conv", "pool", "skip"],
    "kernel": Categorical([3, 5, 7], when={"op": ["conv", "pool"]}),
    "expansion": Int(1, 6, when={"op": "conv"}),
    "rate": Float(0.0, 0.5, when={"op": "conv", "kernel": [5, 7]}),
    "lr": Float(1e-4, 1e-1, log=True),
    "only": [1],
}


def spec(space, sampler="evolution", population=20, tournament=5, seed=0, **fields):
    options = f'{{"population_size": {population}, "sample_size": {tournament}}}'
    return StudySpec(
        id="s", name="s", contract="torch", code=Code("m:a", "/", "0" * 64), metric="loss",
        space=parse_space(space), conditions=parse_conditions(space), n_trials=400, seed=seed,
        sampler=sampler, sampler_options=options if sampler == "evolution" else "{}",
        **{"direction": "minimize", "strategy": StrategySpec("full", max_epochs=1)} | fields,
    )  # fmt: skip


def trial(number, params, value=None, state=TrialState.COMPLETED, **fields):
    return Trial(
        id=f"s-{number:04d}", study="s", number=number, params=params, created_at=0.0,
        state=state if value is not None else TrialState.RUNNING, value=value,
        values={} if value is None else {1: value}, **fields,
    )  # fmt: skip


def wrong(params):
    """Return the number of wrong choices in a configuration."""
    return float(sum(value != "abcd"[int(name[1:]) % 4] for name, value in params))


def searched(of, trials, loss=wrong, fresh=False):
    """``trials`` trials, two of which run at any time; ``fresh``: a new host for each ask."""
    host, found = SamplerHost(), []
    for index in range(trials // 2):
        host = SamplerHost() if fresh else host
        answer, *_ = host.ask(of, index, 2, found)
        # The results of two trials come when the two after them are out.
        found = [
            each if each.value is not None else trial(each.number, each.params, loss(each.params))
            for each in found
        ]
        found += [trial(len(found) + k, params) for k, params in enumerate(answer)]
    return found


def test_it_finds_more_than_chance_does():
    best = {
        sampler: [
            min(wrong(each.params) for each in searched(spec(CHOICES, sampler, seed=seed), 200))
            for seed in range(5)
        ]
        for sampler in ("evolution", "random")
    }
    assert max(best["evolution"]) < min(best["random"])
    assert mean(best["evolution"]) < 1


def test_a_scheduler_that_was_killed_proposes_what_the_old_one_would_have():
    of = spec(CONDITIONAL, population=10)

    def loss(params):
        return dict(params)["lr"]

    kept, fresh = (searched(of, 60, loss, fresh) for fresh in (False, True))
    assert [each.params for each in kept] == [each.params for each in fresh]
    other = searched(spec(CONDITIONAL, population=10, seed=1), 60, loss)
    assert other[0].params != kept[0].params


def test_it_begins_as_chance_does():
    begun, random = (
        [each.params for each in searched(spec(CHOICES, sampler), 20)]
        for sampler in ("evolution", "random")
    )
    assert begun == random


def child_of(parents, space=CONDITIONAL, number=20, **fields):
    """The child that is asked for when ``parents`` (params, value) are there."""
    of = spec(space, population=4, tournament=50, **fields)
    found = [trial(k, params, value) for k, (params, value) in enumerate(parents)]
    found += [trial(k, (), None) for k in range(len(found), number)]
    [child], *_ = SamplerHost().ask(of, number, 1, found)
    return dict(child)


def whole(**params):
    return check_params(parse_space(CONDITIONAL), params, parse_conditions(CONDITIONAL))


CONV = whole(op="conv", kernel=5, expansion=3, rate=0.25, lr=0.01, only=1)
SKIP = whole(op="skip", lr=0.02, only=1)


@pytest.mark.parametrize("parent", [CONV, SKIP])
def test_one_parameter_is_changed_and_what_depends_on_it_comes_and_goes(parent):
    conditions, changed = parse_conditions(CONDITIONAL), set()
    for number in range(20, 80):
        child = child_of([(parent, 1.0)], number=number)
        assert check_params(parse_space(CONDITIONAL), child, conditions) == tuple(child.items())
        assert {*child} == {name for name in CONDITIONAL if is_active(name, conditions, child)}
        differs = {name for name, value in parent if name in child and child[name] != value}
        assert len(differs) == 1
        changed |= differs
    assert changed == {name for name, _ in parent} - {"only"}


def test_the_best_of_those_looked_at_is_the_parent():
    better, worse = CONV, SKIP
    for direction, values in (("minimize", (1.0, 2.0)), ("maximize", (2.0, 1.0))):
        child = child_of([(worse, values[1]), (better, values[0])], direction=direction)
        assert sum(dict(better).get(name) == value for name, value in child.items()) >= 3


def test_the_oldest_die_however_good_they_are():
    parents = [(CONV, 0.0), *[(SKIP, 5.0)] * 4]  # the population has four
    for number in range(20, 40):
        child = child_of(parents, number=number)
        assert child["lr"] == 0.02 or child["op"] == "skip"
        assert (child["lr"], child["op"]) != (0.01, "conv")


def test_a_feasible_trial_is_a_better_parent_than_one_that_exceeds_its_bounds():
    of = spec(CONDITIONAL, population=2, tournament=50)
    found = [
        trial(0, SKIP, 1.0, constraints=(("ms", 0.5),)),
        trial(1, CONV, 9.0, constraints=(("ms", -0.5),)),
    ]
    [child], *_ = SamplerHost().ask(of, 2, 1, found)
    assert dict(child)["lr"] == 0.01 or dict(child)["op"] == "conv"


def test_a_failed_trial_has_no_children_and_without_results_chance_goes_on():
    found = [trial(k, CONV, 0.0, state=TrialState.FAILED) for k in range(9)]
    answers = [
        SamplerHost().ask(spec(CONDITIONAL, sampler, population=4), 9, 1, found)[0]
        for sampler in ("evolution", "random")
    ]
    assert answers[0] == answers[1]


def test_what_the_user_enqueues_is_kept():
    of = spec(CONDITIONAL, population=4)
    found = [trial(k, CONV, 1.0) for k in range(6)]
    answer, *_ = SamplerHost().ask(of, 3, 2, found, [(("op", "skip"),)])
    assert dict(answer[0])["op"] == "skip"
    assert {*dict(answer[0])} == {"op", "lr", "only"}


#: Four hyperparameters from the start, and schedules that change twice.
SCHEDULES = {name: ["a", "b", "c", "d"] for name in ("c0", "c1", "c2")} | {
    piece: [0, 1, 2, 3] for piece in ("lr", "lr@3", "lr@6")
}


def biased(bias, seed=0, **fields):
    of = spec(SCHEDULES, population=4, tournament=4, seed=seed, **fields)
    options = f'{{"population_size": 4, "sample_size": 4, "prefix_bias": {bias}}}'
    return replace(of, sampler_options=options)


def changes(bias):
    """Count the changes of each parameter in 600 children of one parent."""
    parent = {"c0": "a", "c1": "a", "c2": "a", "lr": 0, "lr@3": 0, "lr@6": 0}
    found = [trial(0, tuple(parent.items()), 1.0)]
    answer, *_ = SamplerHost().ask(biased(bias), 0, 600, found)
    children = [dict(params) for params in answer[4:]]
    return Counter(n for child in children for n, value in child.items() if value != parent[n])


def test_with_a_bias_children_keep_what_their_parent_has_trained():
    always, half, never = changes(1), changes(0.5), changes(0)
    assert set(always) == {"lr@3", "lr@6"}
    assert always["lr@6"] / always["lr@3"] == pytest.approx(2, abs=0.6), "six epochs beside three"
    assert set(never) == set(half) == {"c0", "c1", "c2", "lr", "lr@3", "lr@6"}
    assert never["lr@6"] == pytest.approx(100, abs=40)
    assert half["lr@6"] == pytest.approx(300 * 2 / 3 + 300 / 6, abs=50)


class Evolving(World):
    """A world whose sampler is ours: the value of a trial is how many choices are right."""

    def __init__(self, of):
        super().__init__(lambda number, _: self.value(number))
        self.of = of
        self.join("cpu.a.0", "cpu.a.1")
        self.submit(of)
        while self.open:
            self.run_segment()
            check_invariants(self.engine)

    def value(self, number):
        return float(len([v for _, v in self.trials()[number].params if v in ("a", 0)]))

    def trials(self):
        return sorted(self.engine.state.trials.values(), key=lambda each: each.number)

    def propose(self, ask, n=None):
        answer, exhausted, _ = SamplerHost().ask(self.of, ask.index, ask.n, self.trials())
        fields = {"study": ask.study, "index": ask.index, "exhausted": exhausted}
        self.send(Proposed(at=self.at, cause=ask.id, trials=answer, **fields))


@pytest.mark.extension("prefixes")
@pytest.mark.parametrize("strategy", ["full", "asha"])
def test_a_bias_saves_epochs(strategy):
    """Of 40 trials, each trained for nine epochs or until it is stopped."""
    how = {
        "strategy": StrategySpec(strategy, max_epochs=9), "n_trials": 40, "contract": "empty",
        "metric": "v", "direction": "maximize",
    }  # fmt: skip

    def trained(bias):
        studies = [replace(biased(bias, seed, seeding="shared"), **how) for seed in range(4)]
        return [sum(Evolving(each).epochs_by_trial().values()) for each in studies]

    without, with_bias = trained(0), trained(0.8)
    assert mean(with_bias) < 0.75 * mean(without)


def test_a_bias_is_refused_where_trials_have_no_epochs_in_common():
    evolution = Sampler("evolution", prefix_bias=0.5)
    with pytest.raises(UsageError, match=r"sampler\.prefix_bias = 0\.5 is refused.*shared"):
        create_study(sampler=evolution, metric="loss", strategy=FullBudget(2))


def test_a_bias_is_refused_where_no_parameter_changes_with_the_epoch():
    with pytest.raises(UsageError, match=r"sampler\.prefix_bias = 0\.5 is refused.*is a Steps"):
        check_space("evolution", '{"prefix_bias": 0.5}', parse_space({"lr": [0.1, 0.2]}), ())


@pytest.mark.parametrize(("population", "tournament"), [(4, 2), (8, 2), (17, 4)])
def test_a_tournament_is_a_quarter_of_the_population_where_nothing_is_said(population, tournament):
    """So that of a small population others than the best have children too."""
    told = [trial(n, (("x", n), ("y", 0)), float(n)) for n in range(population)]
    space = {"x": [*range(population)], "y": [*range(100)]}
    of = spec(space, population=population, tournament=tournament)
    silent = replace(of, sampler_options=f'{{"population_size": {population}}}')
    for number in range(population, population + 8):
        said, as_told = (SamplerHost().ask(each, number, 1, told)[0] for each in (silent, of))
        assert said == as_told


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"population_size": 1}, "population_size"),
        ({"p": 1}, "sampler.p"),
        ({"prefix_bias": 1.5}, "prefix_bias"),
        ({"population_size": 5, "sample_size": 6}, r"sample_size = 6 is refused.*1 to 5"),
        ({"sample_size": POPULATION + 1}, r"sample_size = 101 is refused.*1 to 100"),
    ],
)
def test_an_option_that_is_none_is_refused_by_name(options, named):
    with pytest.raises(UsageError, match=named):
        Sampler("evolution", **options)
