"""Lanes with several seats: trials that share one, turns that count, and trials that give way."""

from __future__ import annotations

import json
from random import Random

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.decisions import Member
from penstock.scheduler.model.events import (
    DevicesGivenBack,
    DevicesTakenOut,
    PolicyChosen,
    Tick,
)
from penstock.scheduler.outlook.outlook import outlook
from penstock.scheduler.state.epoch_times import epoch_left
from penstock.scheduler.state.slot_time import slot_seconds
from worlds.drive_world import check_invariants
from worlds.laned_world import Laned

GIB = 2**30


def test_a_newcomer_of_another_study_takes_a_seat_at_once_and_turns_go_by_weight():
    at = Laned()
    at.study("a")
    assert at.weights() == {"a-0000": 1.0}
    at.at = 10.0
    at.study("b", weight=3.0)
    assert at.places() == {"a": ("d0", 0), "b": ("d0", 1)}
    assert at.weights() == {"a-0000": 1.0, "b-0000": 3.0}
    assert at.parts() == {"a": 0.25, "b": 0.75}


def test_a_lane_of_its_own_comes_first_and_then_the_seat_with_most_turns():
    at = Laned(lanes=2, seats=2, policy="pack")
    for name in "abcd":
        at.study(name)
    assert at.places() == {"a": ("d0", 0), "b": ("d0", 2), "c": ("d0", 1), "d": ("d0", 3)}
    at.study("e")
    assert "e" not in at.places(), "all seats are taken"


def test_seats_stay_free_for_other_studies_unless_the_plan_fills_devices():
    at = Laned()
    at.study("a", n_trials=8)
    assert len(at.state.attempts) == 1
    at.study("b", n_trials=8)
    assert set(at.places()) == {"a", "b"}
    assert len(at.state.attempts) == 2
    full = Laned(policy="pack")
    full.study("a", n_trials=8)
    assert len(full.state.attempts) == 4


def test_seats_do_not_make_strategies_draw():
    at = Laned(policy="pack")
    at.study("a", n_trials=8, sampler="tpe")
    assert len(at.state.studies["a"].trials) == 1


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"contract": "objective"}, "cannot be stopped between two steps"),
        ({"memory_limit": 2**30}, "memory limit"),
        ({"exactness": "statistical"}, "process of another kind"),
        ({"environment": "venv:/v"}, "process of another kind"),
        ({"priority": -1}, "higher priority"),
    ],
)
def test_what_cannot_be_in_one_process_takes_no_seat(fields, why):
    at = Laned()
    at.study("a")
    at.study("b", **fields)
    assert "b" not in at.places()
    assert why in at.engine.extensions.too_full(at.trial("b"), Member("d0", 1))


def test_a_trial_of_a_higher_priority_has_all_turns():
    at = Laned()
    at.study("a")
    at.study("b", priority=1)
    assert at.weights() == {"a-0000": 0.0, "b-0000": 1.0}


class TestGivingWay:
    """Policies over all trials: a resident gives way within a step of its neighbour."""

    def start(self, policy="srtf", **fields):
        at = Laned(policy=policy, **fields)
        at.study("long", epochs=10)
        for _ in range(2):
            at.at += 60.0
            at.end_epoch("long", 60.0)
        return at

    def test_a_shorter_newcomer_has_all_turns_in_the_middle_of_an_epoch(self):
        at = self.start()
        at.at += 10.0
        at.study("short", epochs=1)
        assert at.weights() == {"long-0000": 0.0, "short-0000": 1.0}
        assert at.parts() == {"long": 0.0, "short": 1.0}
        assert at.state.hold == ["long-0000"]
        at.at += 30.0
        at.end_epoch("short", 30.0)
        assert at.parts() == {"long": 1.0}
        left = epoch_left(at.state, at.engine.extensions, at.attempt("long"))
        assert left == pytest.approx(50.0), "it had ten of sixty seconds"

    def test_a_longer_newcomer_waits_without_a_seat(self):
        at = self.start()
        at.study("longer", epochs=10)
        for _ in range(3):
            at.at += 60.0
            at.end_epoch("longer" if "longer" in at.places() else "long", 60.0)
        assert len([p for p in at.parts().values() if p]) == 1
        at.study("third", epochs=1)
        at.study("fourth", epochs=1)
        assert len([p for p in at.parts().values() if p]) == 1, "one at a time has turns"

    def test_fifo_gives_no_seats(self):
        at = Laned(policy="fifo")
        at.send(PolicyChosen(at=0.0, policy="fifo", cross_study=True))
        at.study("a")
        at.study("b")
        assert set(at.places()) == {"a"}

    def test_who_has_no_turns_has_waited_and_is_not_starved(self):
        at = self.start()
        at.study("short", epochs=50)
        at.at += 5.0
        at.send(Tick(at=at.at))
        assert at.parts() == {"long": 0.0, "short": 1.0}
        at.at += 30.0
        at.end_epoch("short", 30.0)  # 49 more of 30 s: it is longer now
        assert at.state.waits["long-0000"].waited == pytest.approx(35.0)
        assert at.parts() == {"long": 1.0, "short": 0.0}
        assert at.weights() == {"long-0000": 1.0, "short-0000": 0.0}

    def test_time_in_turn_is_service_and_what_the_study_used(self):
        at = self.start()
        at.at += 10.0
        at.study("short", epochs=1)
        at.at += 30.0
        assert slot_seconds(at.attempt("long"), at.at) == pytest.approx(10.0)
        assert slot_seconds(at.attempt("short"), at.at) == pytest.approx(30.0)
        at.end_epoch("short", 30.0)
        at.at += 50.0
        at.end_epoch("long", 60.0)
        [row] = [e for e in at.engine.take_changes().epochs if e.trial == "long-0000"][-1:]
        assert (row.seconds, row.at - row.begin) == (60.0, 90.0)
        assert at.state.waits["long-0000"].service == pytest.approx(180.0)


class TestAccounts:
    """Shares are of lanes: residents hold the part that their turns are worth."""

    def test_a_study_holds_its_part_of_a_lane(self):
        at = Laned()
        at.study("a")
        at.study("b", weight=3.0)
        at.at += 40.0
        at.send(Tick(at=at.at))
        shares = {name: study.share for name, study in at.state.studies.items()}
        assert shares == {"a": pytest.approx(0.25), "b": pytest.approx(0.75)}
        at.end_epoch("b", 30.0)
        at.end_epoch("a", 10.0)
        used = {name: study.used for name, study in at.state.studies.items()}
        assert used == {"a": pytest.approx(10.0), "b": pytest.approx(30.0)}

    def test_costs_come_from_time_in_turn_and_overhead_is_not_learnt_in_company(self):
        at = Laned()
        at.study("a")
        overhead = at.state.costs.segment_overhead
        at.study("b")
        at.at += 40.0
        at.end_epoch("a", 20.0)
        assert at.state.epoch_seconds(at.trial("a")) == pytest.approx(20.0)
        assert at.state.costs.segment_overhead == overhead
        assert at.state.tally.to_claim.total == 0.0

    def test_the_end_of_a_trainer_counts_once_for_its_device(self):
        at = Laned(policy="pack")
        for name in "abcd":
            at.study(name)
        for name in "abcd":
            dispatch = at.open[at.trial(name).fence]
            before = at.state.devices["d0"].losses
            at.send(at.lost(dispatch, "its trainer ended"))
            check_invariants(at.engine)
            assert at.state.devices["d0"].losses <= before + 1
        assert not at.state.devices["d0"].backoff_until


def test_a_resident_moves_to_a_lane_that_becomes_free_at_the_end_of_its_epoch():
    at = Laned(devices=2, seats=2, policy="pack")
    at.study("a")
    at.study("b", epochs=1)
    at.study("c")
    assert at.places() == {"a": ("d0", 0), "b": ("d1", 0), "c": ("d0", 1)}
    at.at += 5.0
    at.end_epoch("b", 5.0)
    assert at.attempt("c").leaves
    at.at += 5.0
    at.end_epoch("c", 5.0)
    assert at.places() == {"a": ("d0", 0), "c": ("d1", 0)}


def test_a_gang_takes_only_devices_without_residents():
    at = Laned(devices=3, seats=2)
    at.study("a", epochs=3)
    at.study("gang", max_width=4, shards=4)
    wide = at.attempt("gang").segment.members
    assert all(member.device != at.places()["a"][0] for member in wide)
    check_invariants(at.engine)


def test_who_waits_for_a_probe_is_said_to_wait_for_it_and_has_no_part_of_the_turns():
    at = Laned()
    at.study("a")
    at.study("b")
    [measured] = [each for each in at.state.attempts.values() if each.study == "a"]
    measured.undivided = True
    plan = outlook(at.engine, at.at)
    [lane] = plan["shared"][0]["lanes"]
    why = "it waits for the end of a probe of a/0"
    assert [(r["study"], r["part"], r["why"]) for r in lane["residents"]] == [
        ("a", 1.0, ""),
        ("b", 0.0, why),
    ]
    assert [r["why"] for r in plan["running"]] == [
        "until its target",
        f"has no turns for now: {why}",
    ]
    measured.undivided = False
    [lane] = outlook(at.engine, at.at)["shared"][0]["lanes"]
    assert [r["part"] for r in lane["residents"]] == [0.5, 0.5]


@pytest.mark.parametrize(
    "memory", [None, pytest.param(12.0, marks=pytest.mark.extension("memory"))]
)
@pytest.mark.parametrize("seed", range(12))
def test_random_worlds_keep_every_invariant_and_end(seed, memory):
    """Any policy, random lanes, arrivals, gangs, memory, losses, drains; restarts, a replay."""
    rng, told = Random(seed), set[str]()
    policy = rng.choice(["fair", "srtf", "las", "pack", "waterfill"])
    at = Laned(
        lanes=rng.choice([1, 2, 3]),
        seats=rng.choice([2, 4]),
        devices=rng.choice([1, 2]),
        memory=memory,
        policy=policy,
    )
    seconds = [rng.choice([1.0, 7.0, 60.0]) for _ in range(10)]
    come = list(range(10))
    for _ in range(2000):
        if come and rng.random() < 0.2:
            number = come.pop(0)
            at.study(
                f"s{number}",
                epochs=rng.choice([1, 2, 5]),
                weight=rng.choice([1.0, 2.0]),
                priority=rng.choice([0, 0, 0, 1]),
                exactness=rng.choice(["bitwise", "bitwise", "statistical"]),
                n_trials=rng.choice([1, 1, 4]),
                shards=4,
                max_width=rng.choice([1, 1, 2]),
            )
        if rng.random() < 0.03:
            name = rng.choice(list(at.state.devices))
            kind = DevicesGivenBack if name in at.state.held else DevicesTakenOut
            at.send(kind(at=at.at, devices=(name,)))
            check_invariants(at.engine)
        if memory and at.open:
            for trial in list(at.state.trials.values()):
                if trial.id not in told and rng.random() < 0.3 and at.open:
                    told.add(trial.id)
                    at.told(trial.id, rng.uniform(0.2, 3.0), rng.uniform(0.2, 5.0))
        for lane in lanes_of(at):
            assert sum(each.part for each in lane) == pytest.approx(1.0)
        turns = [a for a in at.state.attempts.values() if a.part]
        if turns:
            attempt = rng.choice(turns)
            number = int(attempt.study[1:])
            at.at += seconds[number] * rng.uniform(0.3, 1.0) / attempt.part
            dispatch = at.open[attempt.segment.fence]
            trial = at.state.trials[attempt.segment.trial]
            if attempt.segment.widths:
                at.send(at.widths(dispatch))
            elif rng.random() < 0.1:
                at.send(at.lost(dispatch, "lost"))
            else:
                at.send(at.epoch(dispatch, trial.epoch + 1, seconds=seconds[number]))
        elif not come and not at.state.studies:
            break
        elif at.state.held:
            at.send(DevicesGivenBack(at=at.at, devices=tuple(at.state.held)))
        else:
            at.at += 1.0
            at.send(Tick(at=at.at))
        check_invariants(at.engine)
        if rng.random() < 0.05:
            text = state_to_json(at.state)
            at.engine = Engine(state_from_json(text), plugs=PLUGS)
            assert state_to_json(at.state) == text
    assert not come
    assert not at.state.studies, "a study never ended"
    again = Engine(plugs=PLUGS)
    for event in at.journal:
        again.handle(event)
    assert state_to_json(again.state) == state_to_json(at.state)


def lanes_of(at):
    for device in at.state.devices.values():
        for lane in device.lanes_in_use():
            fences = {device.fences[slot] for slot in device.seats_of(lane)} - {0}
            there = [at.state.attempts[fence] for fence in fences]
            assert len(there) == 1 or all(len(each.segment.members) == 1 for each in there)
            yield there


def test_weights_of_an_older_snapshot_are_kept_and_its_study_needs_lanes_from_then_on():
    at = Laned()
    at.study("a")
    at.study("b", weight=3.0)
    known = at.state.ext["lanes"].weights
    body = json.loads(state_to_json(at.state))
    for fence, weight in body["ext"].pop("lanes")["weights"].items():
        body["attempts"][fence]["weight"] = weight
    for study in body["studies"].values():
        study["needs"].remove("lanes")
    found = state_from_json(json.dumps(body))
    assert found.ext["lanes"].weights == known
    assert all("lanes" in study.needs for study in found.studies.values())
    assert all("lanes" in each.needs for each in Engine(found, plugs=PLUGS).state.studies.values())


def test_weights_that_a_snapshot_has_already_are_left_alone_where_other_fields_are_converted():
    at = Laned()
    at.study("a")
    at.study("b", weight=3.0)
    known = at.state.ext["lanes"].weights
    assert set(known.values()) != {1.0}
    body = json.loads(state_to_json(at.state))
    for study in body["studies"].values():
        study["vain_windows"] = 0  # of the core's state in the version before
    assert state_from_json(json.dumps(body)).ext["lanes"].weights == known
