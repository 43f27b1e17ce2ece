"""Replicates: each configuration several times in a row, whatever strategy and sampler."""

from __future__ import annotations

import pytest
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.answers import proposal
from penstock.app.spec.space import Float, parse_space
from penstock.scheduler.engine.engine import Refused
from penstock.scheduler.model.events import StudyExtended, StudySubmitted, TrialEnqueued
from penstock.scheduler.model.study import StrategySpec, replicate_of
from penstock.scheduler.model.trial import Trial, TrialState
from penstock.scheduler.state.configurations import as_sampled, best_replicates
from worlds.drive_world import World, check_invariants, spec

SPACE = parse_space({"x": Float(0, 1), "y": [1, 2, 3, 4, 5, 6]})
GRID = parse_space({"y": [1, 2, 3]})
PLANS = {
    "full": StrategySpec("full", max_epochs=3),
    "asha": StrategySpec("asha", max_epochs=9),
    "halving": StrategySpec("halving", max_epochs=4, eta=2),
    "hyperband": StrategySpec("hyperband", max_epochs=4, eta=2, proportional=True),
}


class Sampled(World):
    """A world with the real samplers. It keeps the trials of its study."""

    def __init__(self):
        super().__init__()
        self.host = SamplerHost()
        self.trials = {}

    def propose(self, ask):
        self.send(proposal(self.host, ask, self.engine.state, self.at))

    def send(self, event):
        decisions = super().send(event)
        self.trials |= self.engine.take_changes().trials
        check_invariants(self.engine)
        return decisions

    def params(self):
        return [self.trials[name].params for name in sorted(self.trials)]


def replicated(size=2, n=12, plan="full", **fields):
    given = {"space": SPACE, "sampler": "random", "n_trials": n} | fields
    return spec(PLANS[plan], seeding="shared", replicates=size, **given)


def ran(study, devices=1, enqueued=()):
    world = Sampled()
    world.send(StudySubmitted(at=0.0, study=study, enqueued=enqueued))
    world.join(*(f"cpu.a.{each}" for each in range(devices)))
    world.run()
    return world


@pytest.mark.parametrize("devices", [1, 5])
@pytest.mark.parametrize("sampler", ["random", "qmc", "tpe"])
@pytest.mark.parametrize("plan", PLANS)
def test_every_configuration_has_its_replicates_in_a_row(plan, sampler, devices):
    world = ran(replicated(3, 12, plan, sampler=sampler), devices)
    found = world.params()
    assert len(found) == 12
    assert [params for params in found[::3] for _ in range(3)] == found
    assert len({*found}) == 4
    assert world.finish.status == "complete"


@pytest.mark.parametrize("sampler", ["random", "qmc", "grid"])
def test_the_configurations_are_those_of_a_study_without_replicates(sampler):
    space = GRID if sampler == "grid" else SPACE
    single = ran(spec(PLANS["asha"], n_trials=3, sampler=sampler, space=space)).params()
    assert ran(replicated(2, 6, "asha", sampler=sampler, space=space), 4).params()[::2] == single


def test_a_grid_that_is_too_small_is_tried_whole_with_all_replicates():
    world = ran(replicated(2, 12, "asha", sampler="grid", space=GRID))
    assert [dict(params)["y"] for params in world.params()] == [1, 1, 2, 2, 3, 3]
    assert world.finish.status == "complete"


def test_enqueued_configurations_come_first_with_all_replicates():
    world = ran(replicated(2, 6, "asha"), enqueued=((("y", 6),), (("y", 5),)))
    assert [dict(params)["y"] for params in world.params()][:4] == [6, 6, 5, 5]
    assert [t.enqueued for t in world.trials.values()].count(True) == 4


def test_one_enqueued_late_takes_a_whole_configuration_that_has_not_begun():
    world = Sampled()
    world.submit(replicated(2, 6))
    world.join("cpu.a.0")  # trial 0 runs; all are proposed, since the sampler needs no results
    world.send(TrialEnqueued(at=0.0, study="s-1", params=(("x", 0.25),)))
    assert [dict(params)["x"] == 0.25 for params in world.params()] == [False] * 4 + [True] * 2
    assert world.engine.state.ready[:2] == ["s-1-0004", "s-1-0005"]
    world.send(TrialEnqueued(at=0.0, study="s-1", params=(("x", 0.5),)))
    with pytest.raises(Refused, match="have begun"):
        world.send(TrialEnqueued(at=0.0, study="s-1", params=(("x", 0.75),)))
    world.run()
    assert world.finish.status == "complete"


def test_an_extended_study_goes_on_with_whole_configurations():
    study = replicated(2, 4)
    world = Sampled()
    world.submit(study)
    world.join("cpu.a.0")
    world.send(StudyExtended(at=0.0, study=replicated(2, 8)))
    world.run()
    assert world.params() == ran(replicated(2, 8)).params()


def test_the_number_says_which_replicate_a_trial_is():
    assert [replicate_of(replicated(3), n) for n in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert [replicate_of(replicated(1), n) for n in range(3)] == [0, 0, 0]
    assert replicate_of(spec(), 3) is None


def trial(number, values=(), state=TrialState.PAUSED, **fields):
    found = dict(enumerate(values, start=1))
    value = values[-1] if values else None
    params = (("x", number // 2),)
    return Trial(f"s-1-{number:04d}", "s-1", number, params, 0.0, state, value=value, values=found)


def test_samplers_see_one_trial_a_configuration_with_the_means_of_those_that_live():
    done, failed = TrialState.COMPLETED, TrialState.FAILED
    trials = [
        *(trial(0, (1.0, 2.0)), trial(1, (3.0,))),
        *(trial(2, (9.0,), failed), trial(3, (4.0, 6.0), done)),
        *(trial(4, (1.0,), failed), trial(5, (), failed)),
        *(trial(6, (8.0,)), trial(7, (2.0, 4.0), done)),
        trial(8),
    ]
    seen = as_sampled(replicated(2), trials)
    assert [(each.number, dict(each.params)["x"]) for each in seen] == [(n, n) for n in range(5)]
    assert [each.values for each in seen[:2]] == [{1: 2.0, 2: 2.0}, {1: 4.0, 2: 6.0}]
    assert [each.value for each in seen] == [2.5, 6.0, 1.0, 4.0, None]
    assert [each.state for each in seen] == [
        TrialState.PAUSED,
        done,
        failed,
        done,
        TrialState.PAUSED,
    ]
    assert as_sampled(spec(), trials) == trials


def test_the_best_configuration_has_the_best_mean_among_those_with_most_results():
    values = {0: 0.9, 2: 0.6, 3: 0.8, 4: 0.5, 5: 0.7}
    assert best_replicates(2, 1.0, values) == [2, 3], "0 was lucky once"
    assert best_replicates(2, -1.0, values) == [4, 5]
    assert best_replicates(2, 1.0, {}) == []
    assert best_replicates(2, 1.0, {0: 1.0, 1: 0.0, 2: 0.5, 3: 0.5}) == [0, 1], "the earlier"
