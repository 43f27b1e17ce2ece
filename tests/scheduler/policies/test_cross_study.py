"""Policies over the trials of all studies: who goes first, who gives way, and nobody starves."""

from __future__ import annotations

import json

import pytest
from penstock.app.ledger.codec import decode, state_from_json, state_to_json
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.decisions import Cut, Dispatch
from penstock.scheduler.model.events import DeviceJoined, PolicyChosen, StudyWeighed
from penstock.scheduler.model.snapshot import Candidate, Plan, Snapshot, find_fault
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.outlook.outlook import outlook
from penstock.scheduler.policies import las, pack, srtf
from penstock.scheduler.policies.names import CROSS_STUDY
from penstock.scheduler.policies.registry import find_policy
from penstock.scheduler.state.state import PastWindows, Waits
from worlds.drive_world import World, check_invariants, spec


@pytest.mark.parametrize("policy", sorted(CROSS_STUDY))
def test_no_weight_and_no_share_counts_across_studies_but_priority_does(policy):
    world = World()
    world.join("d0")
    world.send(PolicyChosen(at=0.0, policy=policy, cross_study=True))
    for name in ("s-1", "s-2", "s-3"):
        priority = int(name == "s-3")
        world.submit(spec(id=name, name=name, n_trials=1, max_segment=1, priority=priority))
    world.send(StudyWeighed(at=0.0, study="s-2", weight=1000.0, priority=0))
    assert all(study.share is None for study in world.engine.state.studies.values())
    world.run()
    order = list(dict.fromkeys(d.segment.trial[:3] for d in world.trace if isinstance(d, Dispatch)))
    assert order == ["s-1", "s-3", "s-2"]


def test_every_study_shows_its_next_trial_and_no_sampler_is_asked_for_more():
    world = World()
    world.send(PolicyChosen(at=0.0, policy="fifo", cross_study=True))
    world.join("d0")
    for name in ("s-1", "s-2"):
        world.submit(spec(id=name, name=name, n_trials=5, sampler="tpe"))
    waiting = [world.engine.state.trials[name].study for name in world.engine.state.ready]
    assert sorted(waiting) == ["s-1", "s-2"]
    assert len(world.engine.state.attempts) == 1


def held(max_segment: int = 1, contract: str = "empty") -> tuple[World, Dispatch]:
    """A world in which a trial of a longer study runs while one of a shorter study waits."""
    world = World()
    world.send(PolicyChosen(at=0.0, policy="srtf", cross_study=True))
    world.join("d0")
    long = StrategySpec("full", max_epochs=10_000)
    world.submit(spec(long, n_trials=1, max_segment=max_segment, contract=contract))
    for _ in range(3):
        dispatch = world.open[min(world.open)]
        world.at += 0.05
        for epoch in range(dispatch.segment.first, dispatch.segment.last + 1):
            world.send(world.epoch(dispatch, epoch, seconds=0.05))
    world.submit(spec(StrategySpec("full", max_epochs=1), id="s-2", name="t", n_trials=1))
    world.at += 1.0
    return world, next(iter(world.open.values()))


def test_a_trial_that_gives_way_keeps_its_arrival_and_comes_back():
    world, running = held()
    arrived = world.engine.state.trials[running.segment.trial].since
    world.run_segment()
    state = world.engine.state
    assert state.ready == [running.segment.trial]
    assert state.trials[running.segment.trial].since == arrived
    assert [a.study for a in state.attempts.values()] == ["s-2"]
    world.run_segment()
    assert [a.study for a in world.engine.state.attempts.values()] == ["s-1"]
    assert world.engine.state.waits[running.segment.trial].waited == pytest.approx(0.5)


def test_a_segment_of_several_epochs_is_cut():
    world, running = held(max_segment=4)
    assert running.segment.n > 1
    cuts = [each for each in world.trace if isinstance(each, Cut)]
    assert [each.fence for each in cuts] == [running.segment.fence]
    [shown] = outlook(world.engine, world.at)["running"]
    assert "gives way to a trial that the policy puts first" in shown["why"]
    assert shown["ends"] == shown["epoch_ends"]
    world.at += 0.5
    first = running.segment.first
    world.send(world.epoch(running, first, closes=True))
    assert [a.study for a in world.engine.state.attempts.values()] == ["s-2"]


def test_an_objective_is_not_interrupted_since_it_would_begin_anew_elsewhere():
    world, running = held(contract="objective")
    world.run_segment()
    assert [a.study for a in world.engine.state.attempts.values()] == ["s-1"]
    assert world.engine.state.trials[running.segment.trial].epoch == running.segment.last


def candidate(trial: str, left: float, **fields) -> Candidate:
    """A trial with ten epochs to go, which take ``left`` seconds."""
    return Candidate(trial, trial, 0, 10, fields.pop("since", 0.0), left / 10, **fields)


def planned(policy: str, waiting, running=(), free: int = 0, at: float = 1e6) -> Plan:
    snapshot = Snapshot(at, tuple(waiting), free, tuple(running), free, devices=4)
    plan = find_policy(policy)(snapshot)
    assert find_fault(snapshot, plan) == ""
    return plan


def test_srtf_holds_as_many_as_wait_with_less_to_do():
    running = [candidate("long", 90.0, width=1), candidate("short", 5.0, width=1)]
    waiting = [candidate("b", 20.0), candidate("a", 10.0), candidate("c", 95.0)]
    plan = planned("srtf", waiting, running)
    assert plan.order == ("a", "b", "c")
    assert plan.hold == ("long",)
    assert planned("srtf", waiting, running, free=2).hold == ()


def test_srtf_counts_only_what_is_left_of_the_epoch_at_work():
    running = [candidate("r", 100.0, width=1, boundary=0.1)]  # 90.1 s are left of it
    assert planned("srtf", [candidate("w", 95.0)], running).hold == ()
    assert planned("srtf", [candidate("w", 85.0)], running).hold == ("r",)


def test_srtf_tries_what_it_is_not_sure_of_and_first_what_it_knows_nothing_of():
    unknown = Candidate("unknown", "u", 0, 10, 0.0)
    waiting = [candidate("sure", 50.0), candidate("unsure", 60.0, deviation=0.5), unknown]
    assert planned("srtf", waiting).order == ("unknown", "unsure", "sure")


def test_who_is_sure_to_end_soon_gives_way_to_nobody_of_whom_nothing_is_known():
    unknown = [Candidate(f"unknown {n}", "u", n, 10, 0.0) for n in range(2)]
    short, long = candidate("short", 50.0, width=1), candidate("long", 70.0, width=1)
    unsure = candidate("unsure", 50.0, width=1, deviation=0.5)
    for running, hold in ((short, ()), (long, ("long",)), (unsure, ("unsure",))):
        assert planned("srtf", unknown[:1], [running]).hold == hold
        assert planned("srtf", unknown[:1], [running], free=1).hold == ()
    assert planned("srtf", [candidate("shorter", 40.0)], [short]).hold == ("short",)
    both = planned("srtf", [unknown[0], candidate("shorter", 40.0)], [short, long])
    assert both.hold == ("long",), "to the shorter one"
    assert set(planned("srtf", unknown, [short, long]).hold) == {"long"}


def test_a_trial_that_cannot_go_on_elsewhere_keeps_its_place():
    running = [candidate("r", 90.0, width=1, movable=False)]
    assert planned("srtf", [candidate("w", 1.0)], running).hold == ()


@pytest.mark.parametrize(
    ("policy", "patience"),
    [("srtf", srtf.PATIENCE * 100.0), ("las", las.PATIENCE * las.QUANTUM)],
)
def test_who_has_waited_too_long_goes_first_and_is_not_held(policy, patience):
    starved = candidate("long", 100.0, waited=patience)
    newcomer = candidate("new", 1.0, since=9e5)
    assert planned(policy, [newcomer, starved]).order == ("long", "new")
    assert (
        planned(policy, [newcomer], [candidate("long", 100.0, waited=patience, width=1)]).hold == ()
    )
    nearly = candidate("long", 100.0, waited=patience - 1.0, service=10 * las.QUANTUM)
    plan = planned(policy, [newcomer, nearly])
    assert plan.order == ("new", "long")
    if policy == "srtf":
        assert plan.until == pytest.approx(1e6 + 1.0), "then it is starved"


def test_pack_lets_smaller_ones_pass_only_for_a_while():
    first = candidate("first", 10.0, arrived=0.0, waited=pack.PATIENCE - 1.0)
    plan = planned("pack", [first, candidate("second", 10.0, arrived=5.0)])
    assert (plan.packed, plan.patient) == (True, False)
    assert plan.until == pytest.approx(1e6 + 1.0)
    first = candidate("first", 10.0, arrived=0.0, waited=pack.PATIENCE)
    assert planned("pack", [first, candidate("second", 10.0, arrived=5.0)]).patient


def test_a_plan_may_hold_only_what_runs():
    snapshot = Snapshot(0.0, (candidate("w", 1.0),), 0, (candidate("r", 1.0, width=1),))
    assert not find_fault(snapshot, Plan(("w",), hold=("r",)))
    assert "holds w, which does not run" in find_fault(snapshot, Plan(("w",), hold=("w",)))


@pytest.mark.parametrize("policy", sorted(CROSS_STUDY))
def test_a_snapshot_and_a_replay_give_the_same_state(policy):
    world = World(score=lambda number, epoch: 1.0 / (number + epoch))
    world.send(PolicyChosen(at=0.0, policy=policy, cross_study=True))
    world.join("d0", "d1")
    for number, epochs in enumerate((9, 2, 5), start=1):
        plan = StrategySpec("asha", max_epochs=epochs) if number == 1 else None
        world.submit(spec(plan, id=f"s-{number}", name=f"n{number}", n_trials=6, max_segment=1))
        for _ in range(5):
            world.run_segment()
            check_invariants(world.engine)
    again = Engine()
    for event in world.journal:
        again.handle(event)
    text = state_to_json(again.state)
    assert text == state_to_json(world.engine.state)
    assert state_to_json(state_from_json(text)) == text
    world.run()
    check_invariants(world.engine)
    assert not world.engine.state.studies


def test_a_policy_that_an_older_version_chose_shares_as_it_did_there():
    old = decode("PolicyChosen", '{"at": 0.0, "cause": "", "policy": "waterfill"}')
    assert old == PolicyChosen(at=0.0, policy="waterfill", cross_study=False)
    world = World()
    world.send(DeviceJoined(at=0.0, device=Device("d0", "a", "cpu", (0,), None), incarnation="i"))
    for name in ("s-1", "s-2"):
        world.submit(spec(id=name, name=name, n_trials=4))
    assert world.engine.state.policy == "fifo"
    assert [study.share for study in world.engine.state.studies.values()] == [0.5, 0.5]
    world.send(PolicyChosen(at=1.0, policy="fifo", cross_study=True))
    world.run_segment()
    assert [study.share for study in world.engine.state.studies.values()] == [None, None]


def test_waiting_is_counted_from_when_the_policy_was_chosen():
    world = World()
    world.join("d0")
    for name in ("s-1", "s-2"):
        world.submit(spec(StrategySpec("full", max_epochs=9), id=name, name=name, n_trials=1))
    world.at = 100.0
    world.send(PolicyChosen(at=100.0, policy="srtf", cross_study=True))
    [waiting] = world.engine.state.ready
    assert world.engine.state.waits[waiting].queued_at == 100.0
    world.send(PolicyChosen(at=200.0, policy="fair"))
    assert {waits.queued_at for waits in world.engine.state.waits.values()} == {None}


def test_a_snapshot_of_02_has_what_trials_waited_with_the_trials():
    world, running = held()
    world.run_segment()
    state = world.engine.state
    assert state.waits[running.segment.trial] != Waits()
    body = json.loads(state_to_json(state))
    for name, waits in body.pop("waits").items():
        body["trials"][name] |= waits
    had = {"heard": False, "unheard": [], "ending": False, "finishes": "", "vain_windows": 0}
    for name in body["studies"]:
        body["studies"][name] |= had | {"rule": "own", "deadline": 7.0}
    body["studies"]["s-2"] |= {"heard": True, "unheard": ["s-2-0000"], "vain_windows": 3}
    body["studies"]["s-2"] |= {"ending": True, "finishes": "s-2-0001"}
    body["trials"]["s-1-0000"] |= {"window": 4, "cut_windows": 0, "passed": 2}
    found = state_from_json(json.dumps(body))
    assert found.waits == {name: each for name, each in state.waits.items() if each != Waits()}
    assert found.past_windows == {"s-1": PastWindows(0, {"s-1-0000": 4}), "s-2": PastWindows(3)}
    assert found.own_rules == dict.fromkeys(("s-1", "s-2"), ("own", 7.0))
    assert found.passed == {"s-1-0000": 2}
    first, second = found.studies["s-1"], found.studies["s-2"]
    assert (first.unheard, first.finishes) == (None, None)
    assert (second.unheard, second.finishes) == (["s-2-0000"], "s-2-0001")
