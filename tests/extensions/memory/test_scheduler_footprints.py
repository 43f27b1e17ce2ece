"""The memory of trials in the engine: who is estimated when, and what is kept of it."""

from __future__ import annotations

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.base.footprint import Footprint
from penstock.extensions.memory.events import FootprintReported
from penstock.extensions.memory.footprints import MAX_UNTRACED
from penstock.extensions.memory.known import known_of, known_study, known_trial
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.events import DeviceJoined, StudyCancelled
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.state.next_trials import AT_ONCE
from worlds.drive_world import World, spec

SMALL, LARGE = Footprint(10, 30, 64), Footprint(20, 70, 128)
NONE = Footprint(0, 0, 0)


def world(devices=1, **fields):
    found = World()
    for i in range(devices):
        device = Device(f"cpu.a.{i}", "a", "cpu", (i,), None)
        found.send(DeviceJoined(at=0.0, device=device, incarnation="i1"))
    plan = StrategySpec("full", max_epochs=3)
    found.submit(spec(plan, **{"n_trials": 12, "contract": "torch", "max_segment": 1} | fields))
    return found


def tell(at, dispatch, of, footprint=SMALL, **fields):
    return at.send(
        FootprintReported(
            at=at.at,
            trial=dispatch.segment.trial,
            fence=dispatch.segment.fence,
            of=of,
            footprint=footprint,
            measured=fields.pop("measured", False),
            **fields,
        )
    )


def asked(dispatch):
    return [each["trial"] for each in estimates(dispatch)]


def estimates(dispatch):
    """Return what the trainer is told of trials that are to be estimated."""
    return dispatch.ext.get("memory", {}).get("estimate", ())


def after_an_epoch(at, dispatch):
    trial = at.engine.state.trials[dispatch.segment.trial]
    at.send(at.epoch(dispatch, trial.epoch + 1))
    (now,) = [d for d in at.open.values() if d.segment.trial == trial.id]
    return now


def test_a_dispatch_names_its_own_trial_and_the_first_that_wait_until_they_are_known():
    at = world()
    (first,) = at.open.values()
    own = first.segment.trial
    assert asked(first)[0] == own
    assert len(asked(first)) <= AT_ONCE
    tell(at, first, own)
    second = after_an_epoch(at, first)
    assert own not in asked(second)
    for name in asked(second):
        tell(at, second, name, LARGE)
    third = after_an_epoch(at, second)
    assert not set(asked(third)) & {own, *asked(second)}
    assert known_trial(at.engine.state, at.engine.state.trials[own]).estimate == SMALL


def test_what_is_sent_makes_the_trial():
    at = world(devices=2, shards=1)
    for dispatch in at.open.values():
        for each in estimates(dispatch):
            trial = at.engine.state.trials[each["trial"]]
            assert (each["number"], each["params"]) == (trial.number, dict(trial.params))
            assert each["shards"] == dispatch.shards


@pytest.mark.parametrize("contract", ["objective", "epochs"])
def test_functions_are_not_estimated(contract):
    at = world(contract=contract)
    assert all(not estimates(dispatch) for dispatch in at.open.values())


def test_a_measurement_is_kept_beside_the_estimate_and_both_outlive_a_restart():
    at = world()
    (first,) = at.open.values()
    own = first.segment.trial
    tell(at, first, own)
    tell(at, first, own, LARGE, measured=True)
    again = Engine(state_from_json(state_to_json(at.engine.state)), plugs=PLUGS)
    for engine in (at.engine, again):
        trial = known_trial(engine.state, engine.state.trials[own])
        assert (trial.estimate, trial.measured) == (SMALL, LARGE)


def test_code_that_cannot_be_traced_is_left_alone():
    at = world()
    (now,) = at.open.values()
    own = now.segment.trial
    for n in range(MAX_UNTRACED):
        assert asked(now), n
        tell(at, now, asked(now)[0], NONE, failed="it looks at values")
        now = after_an_epoch(at, now) if now.segment.trial == own and n < 2 else now
    at.send(at.epoch(now, at.engine.state.trials[own].epoch + 1))
    assert all(not asked(dispatch) for dispatch in at.open.values() if dispatch is not now)


def test_one_that_can_be_traced_keeps_the_others_in():
    at = world()
    (now,) = at.open.values()
    names = asked(now)
    for _ in range(MAX_UNTRACED - 1):
        tell(at, now, names[0], NONE, failed="no")
    tell(at, now, names[0], SMALL)
    tell(at, now, names[0], NONE, failed="no")
    assert known_study(at.engine.state, "s-1").untraced == 1


def test_what_an_old_attempt_says_is_refused_and_of_a_trial_that_is_over_forgotten():
    at = world()
    (first,) = at.open.values()
    own = first.segment.trial
    with pytest.raises(Refused):
        at.send(
            FootprintReported(
                at=0.0, trial=own, fence=first.segment.fence + 1, of=own, footprint=SMALL,
                measured=False,
            )
        )  # fmt: skip
    tell(at, first, "s-unknown-0001")
    assert not known_study(at.engine.state, "s-1").trials


def test_nothing_is_kept_of_a_study_that_is_over():
    at = world()
    for dispatch in at.open.values():
        tell(at, dispatch, dispatch.segment.trial)
    assert known_of(at.engine.state).studies
    at.send(StudyCancelled(at=at.at, study="s-1"))
    assert not known_of(at.engine.state).studies
