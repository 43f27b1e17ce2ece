"""A sampler in a process next to the scheduler draws the same values as in plain Optuna."""

from __future__ import annotations

import optuna
import pytest
from optuna import samplers
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from penstock.base.errors import UsageError
from penstock.tasks.objectives.distributions import from_text, to_text
from penstock.tasks.objectives.sampling import STUDY_NOTES, HostedStudy
from penstock.tasks.objectives.wire import attributes
from user_code import users_samplers

optuna.logging.set_verbosity(optuna.logging.ERROR)
pytestmark = [
    pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning"),
    pytest.mark.filterwarnings("ignore:.*has been deprecated:FutureWarning"),  # CMA-ES's x0
]

DISTS = {
    "x": FloatDistribution(-5, 5),
    "n": IntDistribution(1, 9, log=True),
    "kind": CategoricalDistribution(["a", "b"]),
}
SPACE = [(name, to_text(dist)) for name, dist in DISTS.items()]

SAMPLERS = {
    "group": lambda: samplers.TPESampler(
        seed=3, n_startup_trials=3, multivariate=True, group=True, constant_liar=True
    ),
    "nsga3": lambda: samplers.NSGAIIISampler(seed=3, population_size=4),
    "cmaes": lambda: samplers.CmaEsSampler(
        x0={"x": 1.0, "n": 3},
        sigma0=0.3,
        seed=3,
        n_startup_trials=1,
        warn_independent_sampling=False,
    ),
    "halton": lambda: samplers.QMCSampler(
        qmc_type="halton", seed=3, warn_independent_sampling=False, warn_asynchronous_seeding=False
    ),
    "fixed": lambda: samplers.PartialFixedSampler({"n": 4}, samplers.RandomSampler(seed=3)),
    "own": lambda: users_samplers.Halves(seed=3),
}


def loss(params):
    return float(params["x"]) ** 2 + params["n"] + (params["kind"] == "b")


class Scheduler:
    """Asks a sampler as the scheduler does."""

    def __init__(self, sampler, space=SPACE):
        self.space = space
        self.asked = HostedStudy("mine", ["minimize"], sampler)
        self.updates, self.ended, self.conditions = [], [], []

    def answer(self, **question):
        updates, self.updates = self.updates, []
        ended, self.ended = self.ended, []
        return self.asked.answer({"updates": updates, "ended": ended, **question})

    def draw(self, number, **fixed):
        answer = self.answer(
            draw=[{"number": number, "fixed": fixed}], space=self.space, conditions=self.conditions
        )
        return answer["drawn"][0] if answer["drawn"] else answer

    def tell(self, number, drawn, value):
        known = dict(self.space)
        self.updates.append(
            {
                "n": number,
                "state": "complete",
                "values": [value],
                "started": 1.0,
                "ended": 2.0,
                "system_attrs": attributes(drawn["notes"]),
                "suggestions": [
                    (name, known[name], from_text(known[name]).to_internal_repr(value))
                    for name, value in drawn["params"].items()
                ],
            }
        )
        self.ended.append((number, "complete", [value]))


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_seeded_sampler_draws_what_it_draws_in_plain_optuna(kind):
    plain, ours = optuna.create_study(sampler=SAMPLERS[kind]()), Scheduler(SAMPLERS[kind]())
    for number in range(12):
        trial, drawn = plain.ask(dict(DISTS)), ours.draw(number)
        assert drawn["params"] == trial.params
        plain.tell(trial, loss(trial.params))
        ours.tell(number, drawn, loss(drawn["params"]))
    if kind == "own":
        assert ours.asked._sampler.told == plain.sampler.told[:-1]
        [*_, last] = ours.asked._study.trials
        assert last.system_attrs["halves:call"] == 11


@pytest.mark.parametrize("kind", ["nsga3", "halton", "own"])
def test_what_a_sampler_notes_is_known_to_the_one_that_takes_over(kind):
    before, whole = Scheduler(SAMPLERS[kind]()), []
    for number in range(9):
        drawn = before.draw(number)
        before.tell(number, drawn, loss(drawn["params"]))
        whole += before.updates
    anew = Scheduler(SAMPLERS[kind]())
    anew.updates, anew.ended = whole, [(n, "complete", [1.0]) for n in range(9)]
    anew.draw(9)
    for study in (before.asked._study, anew.asked._study):
        study._storage.reads.sync()
    noted = anew.asked._study._storage.history.system_attrs
    assert STUDY_NOTES not in anew.asked._study.trials[3].system_attrs
    if kind == "own":
        assert noted["halves:calls"] == 1, "the count of the new object came last"
        assert len(anew.asked._sampler.told) == 9, "it is told of all that has ended"
    else:
        assert noted.keys() >= before.asked._study._storage.history.system_attrs.keys()
    if kind == "halton":
        assert [*noted.values()] == [8], "from trial 1 on each has the next point"


def test_what_the_user_fixed_stays_and_what_is_inactive_is_not_drawn():
    ours = Scheduler(samplers.RandomSampler(seed=1))
    ours.conditions = [("n", "kind", ["b"])]
    ours.space = [*SPACE[::-1]]  # a parent comes first
    assert ours.draw(0, kind="a", x=1.5)["params"] == {"kind": "a", "x": 1.5}
    assert ours.draw(1, kind="b")["params"].keys() == {"kind", "n", "x"}


def test_a_running_objective_gets_its_parameters_one_by_one_and_relative_ones_too():
    text = dict(SPACE)["x"]
    ours = Scheduler(users_samplers.Halves(seed=1), space=None)
    suggest = {"name": "x", "distribution": text}
    assert ours.draw(0)["params"] == {}
    first = ours.answer(suggest={"number": 0, **suggest})["value"]
    assert ours.answer(suggest={"number": 0, **suggest})["value"] == first, "asked again"
    ours.space = [("x", text)]
    ours.tell(0, {"params": {"x": first}, "notes": {}}, 1.0)
    ours.space = None
    assert ours.draw(1)["notes"] == {"halves:call": 1, STUDY_NOTES: {"halves:calls": 1}}
    assert ours.answer(suggest={"number": 1, **suggest})["value"] == (first - 5) / 2
    # One that takes over in the middle of a trial knows what the trial has drawn.
    anew = Scheduler(samplers.BruteForceSampler(seed=1), space=None)
    anew.updates = [{"n": 3, "suggestions": [("x", text, 1.25)]}]
    n = {"name": "n", "distribution": dict(SPACE)["n"]}
    assert 1 <= anew.answer(suggest={"number": 3, **n})["value"] <= 9
    assert anew.asked._study.trials[3].params["x"] == 1.25


def test_a_sampler_that_stops_its_study_ends_the_draws():
    ours = Scheduler(samplers.BruteForceSampler(seed=1), space=SPACE[2:])
    for number in range(2):
        drawn = ours.draw(number)
        ours.tell(number, drawn, 1.0)
    assert ours.draw(2) == {"drawn": [], "stopped": True}
    assert ours.asked._study.trials[1].state is TrialState.COMPLETE


def test_a_value_outside_of_its_range_is_refused():
    with pytest.raises(UsageError, match=r"drew x = 7.0, which is outside of FloatDistribution"):
        Scheduler(users_samplers.Bad("outside")).draw(0)
