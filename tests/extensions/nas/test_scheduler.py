"""Costs and memory of architectures that nobody has trained, by what the trained ones showed."""

from __future__ import annotations

import math
from random import Random

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.app.spec.space import Categorical, Float, parse_space
from penstock.extensions.nas.events import Described
from penstock.extensions.nas.known import known_of
from penstock.extensions.nas.models.architecture import Architecture
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.events import DeviceJoined, Proposed
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.state.next_trials import AT_ONCE
from worlds.drive_world import World, device, spec

CHOICES = tuple(f"block{i}" for i in range(12))
SPACE = parse_space(
    {name: Categorical(["a", "b", "c", "d"]) for name in CHOICES} | {"lr": Float(0.01, 1.0)}
)


class Chosen(World):
    """Proposes what ``params`` of a trial's number says."""

    def propose(self, ask):
        trials = tuple(params(ask.index + each) for each in range(ask.n))
        self.send(
            Proposed(at=self.at, cause=ask.id, study=ask.study, index=ask.index, trials=trials)
        )


def params(number):
    chance = Random(number)
    return (*((name, chance.choice("abcd")) for name in CHOICES), ("lr", 0.1))


def work(number):
    """Return the work of the model: some blocks are ten times as much as others."""
    return sum(10 ** "abcd".index(value) for _, value in params(number)[:-1])


def architecture(number, work=work):
    amount = work(number)
    return Architecture(10 * amount, 1000 * amount, 100 * amount, 36)


def describe(at, dispatch, of, found, choices=CHOICES):
    reporter = dispatch.segment
    return at.send(
        Described(
            at=at.at,
            trial=reporter.trial,
            fence=reporter.fence,
            of=of,
            architecture=found,
            choices=choices,
        )
    )


def counted_next(dispatch):
    """Return the trials whose models are to be counted with a segment."""
    return [each["trial"] for each in dispatch.ext.get("nas", {}).get("count", ())]


def world(**fields):
    at = Chosen()
    at.send(DeviceJoined(at=0.0, device=device(), incarnation="i1"))
    plan = StrategySpec("full", max_epochs=1)
    fields = {"n_trials": 60, "contract": "torch", "space": SPACE} | fields
    at.submit(spec(plan, **fields))
    return at


def errors(*, told):
    """|log(predicted / true)| of each first epoch but those of the first ten trials."""
    at, found = world(), []
    while at.open:
        [dispatch] = at.open.values()
        trial = at.engine.state.trials[dispatch.segment.trial]
        seconds = 1e-3 * work(trial.number) ** 0.8
        if told:
            describe(at, dispatch, trial.id, architecture(trial.number))
        if trial.number >= 10:
            expected = at.engine.state.epoch_seconds(trial)
            found.append(abs(math.log(expected / seconds)))
        at.at += seconds
        at.send(at.epoch(dispatch, 1, seconds=seconds))
    return sorted(found)


def median(values):
    return values[len(values) // 2]


def test_unseen_architectures_are_predicted_by_what_they_do_and_not_by_their_choices():
    by_choices, by_counts = errors(told=False), errors(told=True)
    assert len(by_counts) == len(by_choices) == 50
    assert median(by_counts) < 0.05
    assert median(by_choices) > 5 * median(by_counts)


def test_trials_are_named_once_the_study_is_known_to_have_architectures():
    at = world()
    [dispatch] = at.open.values()
    assert counted_next(dispatch) == []
    describe(at, dispatch, dispatch.segment.trial, architecture(0))
    at.send(at.epoch(dispatch, 1))
    [dispatch] = at.open.values()
    own = dispatch.segment.trial
    assert own in counted_next(dispatch)
    assert len(counted_next(dispatch)) <= AT_ONCE
    describe(at, dispatch, own, architecture(1))
    study = known_of(at.engine.state).studies["s-1"]
    known = study.architectures
    assert known.counted == 2
    describe(at, dispatch, own, architecture(2))
    assert known.counted == 2, "it is known already"
    assert study.trials[own] == architecture(1)
    with pytest.raises(Refused):
        at.send(
            Described(
                at=at.at,
                trial=own,
                fence=dispatch.segment.fence - 1,
                of=own,
                architecture=architecture(1),
                choices=CHOICES,
            )
        )


def test_features_change_for_all_when_another_choice_shows_up_and_outlive_a_restart():
    at = world()
    for number, choices in enumerate([CHOICES[:6], CHOICES]):
        [dispatch] = at.open.values()
        describe(at, dispatch, dispatch.segment.trial, architecture(number), choices)
        at.send(at.epoch(dispatch, 1))
    costs = at.engine.state.costs.studies["s-1"].trials
    first, second = (own.features for own in costs.values())
    assert first[:3] == (0.0, 0.0, 0.0)
    ratio = math.log(work(1) / work(0))
    assert second[:3] == pytest.approx((ratio, ratio, 0.0))
    assert len(first) == len(second) == 3 + 1, "the learning rate is left"
    again = Engine(state_from_json(state_to_json(at.engine.state)), plugs=PLUGS)
    for engine in (at.engine, again):
        [waits] = [d for d in at.trace if isinstance(d, Dispatch)][-1:]
        trial = engine.state.trials[waits.segment.trial]
        means = engine.state.features(trial)
        assert means[:3] == pytest.approx((ratio / 2, ratio / 2, 0.0)), "it is not known yet"


def test_what_cannot_be_counted_says_nothing():
    at = world()
    [dispatch] = at.open.values()
    describe(at, dispatch, dispatch.segment.trial, Architecture(10, 0, 0, 0))
    at.send(at.epoch(dispatch, 1, seconds=2.0))
    [dispatch] = at.open.values()
    trial = at.engine.state.trials[dispatch.segment.trial]
    features = at.engine.state.features(trial)
    assert features[:3] == (0.0, 0.0, 0.0)
    assert len(features) == 3 + 24, "the choices are left, as far as there is room"
    assert at.engine.state.epoch_seconds(trial) == pytest.approx(2.0, rel=0.01)


@pytest.mark.extension("memory")
def test_memory_of_an_unseen_architecture_is_that_of_the_measured_ones_for_each_number():
    """Before, it was the largest of its study."""
    from penstock.extensions.memory.fit import need
    from worlds.sized_world import GIB, Sized, tensors

    sizes = (4.0, 1.0, 2.0)
    at = Sized(*sizes, memory=16.0, batch_size=32)
    at.estimate(0, measured=True)
    [dispatch] = [each for each in at.world.open.values() if each.segment.trial == at.name(0)]
    small = at.state.trials[at.name(1)]
    largest = need(at.state, small, "cpu")
    for number in (0, 1):
        found = tensors(sizes[number])
        describe(
            at.world, dispatch, at.name(number),
            Architecture(found.persistent // 12, 9, found.ephemeral // (4 * 32), 9), ("width",),
        )  # fmt: skip
    expected = need(at.state, small, "cpu")
    assert not at.world.engine.extensions.footprints(at.state.trials[at.name(1)])
    assert 0.9 * GIB < expected.size < 1.4 * GIB
    at.epoch(0)
    assert (
        need(at.state, small, "cpu").size
        < 1.4 * GIB
        < 4 * GIB
        <= need(at.state, at.state.trials[at.name(2)], "cpu").size
    ), "nothing is known of the third one"
    assert largest.size == 0, "nothing was known before"


def test_a_trial_that_ran_before_any_was_counted_has_as_many_features_as_the_others():
    at = world()
    [dispatch] = at.open.values()
    at.send(at.epoch(dispatch, 1))
    for number in (1, 2):
        [dispatch] = at.open.values()
        # Its operators could not be counted, so its choices still count.
        describe(at, dispatch, dispatch.segment.trial, Architecture(10, 0, 0, 0))
        at.send(at.epoch(dispatch, 1, seconds=number))
    known = at.engine.state.costs.studies["s-1"].trials
    assert len({len(each.features) for each in known.values()}) == 1
