"""Lanes with several seats: who takes one beside whom, whose turns count, and who gives way."""

from __future__ import annotations

import io
from random import Random

import pytest
from drive_world import World, check_invariants, spec
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.app.views.plan import plan_view
from penstock.profiling.devices.device import Device
from penstock.profiling.memory.footprint import Footprint
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.decisions import Dispatch, Member
from penstock.scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    DeviceJoined,
    DevicesGivenBack,
    DevicesTakenOut,
    FootprintReported,
    PolicyChosen,
    Tick,
)
from penstock.scheduler.model.snapshot import Plan
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import Trial
from penstock.scheduler.outlook.outlook import outlook
from penstock.scheduler.resources.lanes import lane_need, seat_verdict
from penstock.scheduler.resources.memory_fit import RESERVE
from penstock.scheduler.state.epoch_times import epoch_left
from penstock.scheduler.state.fusing import MAX_SINGLES, fuses, steps_together, why_not
from penstock.scheduler.state.lane_time import lane_seconds
from rich.console import Console

GIB = 2**30


class Laned(World):
    """Studies of one trial each, on devices with lanes."""

    def __init__(self, *, lanes=1, seats=4, devices=1, memory=None, policy="fair"):
        super().__init__()
        if policy != "fifo":
            across = policy in ("srtf", "las", "pack")
            self.send(PolicyChosen(at=0.0, policy=policy, cross_study=across))
        for i in range(devices):
            size = None if memory is None else round(memory * GIB)
            made = Device(f"d{i}", "a", "cuda", (i,), size, lanes * seats, seats=seats)
            self.send(DeviceJoined(at=0.0, device=made, incarnation="i1"))

    def study(self, name, epochs=5, **fields):
        plan = StrategySpec("full", max_epochs=epochs)
        one = {"n_trials": 1, "max_segment": 1, "contract": "torch", "sampler": "random"}
        self.submit(spec(plan, id=name, name=name, **{**one, **fields}))
        check_invariants(self.engine)

    @property
    def state(self):
        return self.engine.state

    def trial(self, name):
        return self.state.trials[name if name in self.state.trials else f"{name}-0000"]

    def attempt(self, name):
        return self.state.attempts[self.trial(name).fence]

    def parts(self):
        return {a.study: round(a.part, 3) for a in self.state.attempts.values()}

    def places(self):
        return {
            a.study: (a.segment.members[0].device, a.segment.members[0].slot)
            for a in self.state.attempts.values()
        }

    def last(self):
        return next(d for d in reversed(self.trace) if isinstance(d, Dispatch))

    def end_epoch(self, name, seconds, **changes):
        """The trial's epoch ends now, after ``seconds`` of turns."""
        trial = self.trial(name)
        event = self.epoch(self.open[trial.fence], trial.epoch + 1, seconds=seconds, **changes)
        self.send(event)
        check_invariants(self.engine)

    def gain(self, study, ratios):
        """Epochs of so many trials together have taken these parts of what they take alone."""
        for together, ratio in ratios.items():
            self.state.costs.observe_company(study, together, ratio)
        self.at += 1.0
        self.send(Tick(at=self.at))
        check_invariants(self.engine)

    def told(self, name, persistent, ephemeral, **fields):
        """An attempt at work tells what memory a trial needs (GiB)."""
        dispatch = next((d for d in self.open.values() if not d.segment.widths), None)
        if dispatch is None:
            return
        peak = round((persistent + ephemeral) * GIB)
        footprint = Footprint(round(persistent * GIB), round(ephemeral * GIB), peak)
        self.send(
            FootprintReported(
                at=self.at,
                trial=dispatch.segment.trial,
                fence=dispatch.segment.fence,
                of=name if name in self.state.trials else f"{name}-0000",
                footprint=footprint,
                **{"measured": True, **fields},
            )
        )
        check_invariants(self.engine)


def test_a_newcomer_of_another_study_takes_a_seat_at_once_and_turns_go_by_weight():
    at = Laned()
    at.study("a")
    assert at.last().weights == (("a-0000", 1.0),)
    at.at = 10.0
    at.study("b", weight=3.0)
    assert at.places() == {"a": ("d0", 0), "b": ("d0", 1)}
    assert at.last().weights == (("a-0000", 1.0), ("b-0000", 3.0))
    assert at.parts() == {"a": 0.25, "b": 0.75}


def test_a_lane_of_its_own_comes_first_and_then_the_seat_with_most_turns():
    at = Laned(lanes=2, seats=2, policy="pack")
    for name in "abcd":
        at.study(name)
    assert at.places() == {"a": ("d0", 0), "b": ("d0", 2), "c": ("d0", 1), "d": ("d0", 3)}
    at.study("e")
    assert "e" not in at.places(), "all seats are taken"


def test_a_second_lane_is_opened_by_measured_gain_and_seats_count_as_one():
    at = Laned(lanes=2, seats=3)
    for name in "abc":
        at.study(name, epochs=20)
    assert {slot for _, slot in at.places().values()} == {0, 1, 2}, "nothing to compare with yet"
    for _ in range(8):
        for name in "abc":
            at.at += 1.0
            at.end_epoch(name, 1.0)
    lanes = {slot // 3 for _, slot in at.places().values()}
    assert lanes == {0, 1}, "whether a second lane gains is found out"
    known = at.state.sharing.of("a", "cuda")
    assert set(known.shared) <= {1, 2}, "lanes at work, not residents"


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
    verdict = seat_verdict(at.state, Member("d0", 1), at.trial("b"))
    assert not verdict.accepted
    assert why in verdict.why


def test_a_trial_of_a_higher_priority_has_all_turns():
    at = Laned()
    at.study("a")
    at.study("b", priority=1)
    assert at.last().weights == (("a-0000", 0.0), ("b-0000", 1.0))


class TestMemory:
    """The lane rule: persistent bytes add up, and one step at a time is taken."""

    def test_one_of_whom_nothing_is_known_counts_with_its_seat_s_part_of_the_lane(self):
        at = Laned(memory=10.0 / (1.0 - RESERVE))
        for name in "abc":
            at.study(name)
        assert set(at.places()) == {"a", "b", "c"}, "2.5 each of 10"
        at.told("a", 3.0, 3.0)
        at.study("d")
        assert "d" not in at.places(), "3 + 3 + 3 x 2.5 of 10"
        at.told("d", 0.5, 0.5, measured=False)
        assert "d" not in at.places(), "3 + 0.5 + 3 + 2 x 2.5 of 10"
        at.told("b", 0.5, 0.5)
        at.told("c", 0.5, 0.5)
        assert "d" in at.places(), "3 + 3 x 0.5 + 3 of 10"

    def test_persistent_bytes_add_up_and_the_largest_step_counts_once(self):
        usable = 10.0
        at = Laned(memory=usable / (1.0 - RESERVE), seats=5, policy="pack")
        for name in "abcde":
            at.study(name)
            at.told(name, 1.0, 5.0)
        found = lane_need(
            at.state, at.state.devices["d0"].device, [at.trial(name) for name in "abcde"]
        )
        assert (found.persistent, found.ephemeral) == (5 * GIB, 5 * GIB)
        assert set(at.places()) == set("abcde"), "5 x 1 + 5 of 10"

    def test_one_that_does_not_fit_waits_and_smaller_ones_overtake_it(self):
        at = Laned(memory=10.0 / (1.0 - RESERVE), policy="pack")
        at.study("a")
        at.told("a", 1.0, 5.0)
        at.study("b")
        at.told("b", 3.0, 2.0)
        at.study("big")
        at.told("big", 2.0, 5.0)
        at.study("small")
        at.told("small", 1.0, 2.0)
        assert set(at.places()) == {"a", "b", "small"}

    def test_each_lane_has_its_part_of_the_device(self):
        at = Laned(lanes=2, seats=2, memory=20.0 / (1.0 - RESERVE), policy="pack")
        for name in "ab":
            at.study(name)
            at.told(name, 2.0, 4.0)
            at.end_epoch(name, 1.0, memory=6 * GIB)
        at.study("c")
        at.told("c", 6.0, 3.0)
        assert "c" not in at.places(), "2 + 6 + 4 of a lane's 10"
        at.study("d")
        at.told("d", 4.0, 4.0)
        assert "d" in at.places(), "2 + 4 + 4 of a lane's 10"

    def test_what_a_shared_process_has_is_no_trials_need(self):
        at = Laned(memory=100.0)
        at.study("a")
        at.told("a", 1.0, 1.0)
        at.end_epoch("a", 1.0, memory=3 * GIB)
        assert at.trial("a").peaks == {"cuda": 3 * GIB}
        at.study("b")
        at.told("b", 1.0, 1.0)
        assert set(at.places()) == {"a", "b"}
        at.end_epoch("a", 1.0, memory=30 * GIB)
        assert at.trial("a").peaks == {"cuda": 3 * GIB}

    def test_the_process_beside_the_tensors_counts_once(self):
        at = Laned(memory=100.0)
        at.study("a")
        at.told("a", 1.0, 1.0)
        at.end_epoch("a", 1.0, memory=5 * GIB)
        at.study("b")
        at.told("b", 2.0, 1.0)
        found = lane_need(at.state, at.state.devices["d0"].device, [at.trial("a"), at.trial("b")])
        assert (found.persistent, found.ephemeral, found.beside) == (3 * GIB, GIB, 3 * GIB)

    def test_where_only_processes_are_known_they_count_as_persistent(self):
        at = Laned(memory=10.0 / (1.0 - RESERVE))
        at.study("a")
        at.end_epoch("a", 1.0, memory=6 * GIB)
        at.study("b", epochs=1, priority=1)
        assert "b" in at.places(), "6 + 2.5 of 10"
        at.study("c", epochs=1, priority=2)
        assert "c" not in at.places(), "6 + 2 x 2.5 of 10"
        at.told("b", 1.0, 2.0)
        at.told("c", 1.0, 2.0)
        assert "c" in at.places(), "6 + 2 x 1 + 2 of 10"

    def test_one_that_ran_out_of_memory_counts_with_more(self):
        at = Laned(memory=12.0 / (1.0 - RESERVE))
        for name in "ab":
            at.study(name)
            at.told(name, 2.0, 4.0)
        assert set(at.places()) == {"a", "b"}, "2 + 2 + 4"
        dispatch = at.open[at.trial("b").fence]
        at.send(
            AttemptFailed(
                at=at.at,
                cause=dispatch.id,
                trial="b-0000",
                fence=dispatch.segment.fence,
                kind="memory",
                message="",
                traceback="",
            )
        )
        assert at.trial("b").failures == 0, "it was beside another"


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
        assert at.last().weights == (("long-0000", 0.0), ("short-0000", 1.0))
        assert at.parts() == {"long": 0.0, "short": 1.0}
        assert at.state.hold == ["long-0000"]
        at.at += 30.0
        at.end_epoch("short", 30.0)
        assert at.parts() == {"long": 1.0}
        left = epoch_left(at.state, at.attempt("long"))
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
        assert at.trial("long").waited == pytest.approx(35.0)
        assert at.parts() == {"long": 1.0, "short": 0.0}
        assert at.last().weights == (("long-0000", 1.0), ("short-0000", 0.0))

    def test_time_in_turn_is_service_and_what_the_study_used(self):
        at = self.start()
        at.at += 10.0
        at.study("short", epochs=1)
        at.at += 30.0
        assert lane_seconds(at.attempt("long"), at.at) == pytest.approx(10.0)
        assert lane_seconds(at.attempt("short"), at.at) == pytest.approx(30.0)
        at.end_epoch("short", 30.0)
        at.at += 50.0
        at.end_epoch("long", 60.0)
        [row] = [e for e in at.engine.take_changes().epochs if e.trial == "long-0000"][-1:]
        assert (row.seconds, row.at - row.begin) == (60.0, 90.0)
        assert at.trial("long").service == pytest.approx(180.0)


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
            at.send(
                AttemptLost(
                    at=at.at,
                    cause=dispatch.id,
                    trial=f"{name}-0000",
                    fence=dispatch.segment.fence,
                    reason="its trainer ended",
                )
            )
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


def test_the_outlook_says_whose_turns_count_and_what_memory_is_needed():
    at = Laned(policy="srtf", memory=12.0)
    at.study("long", epochs=10)
    at.told("long", 1.0, 8.0)
    for _ in range(2):
        at.at += 60.0
        at.end_epoch("long", 60.0)
    at.study("short", epochs=1)
    plan = outlook(at.engine, at.at)
    assert plan["waiting"][0]["why"] == (
        "place 1 in line for a slot; no seat beside others:"
        " 2 persistent 3.5 GiB + 1 ephemeral 8.0 GiB + process 0.0 GiB of 10.2 GiB"
    )
    at.told("long", 1.0, 2.0)
    at.told("short", 0.5, 1.0)
    plan = outlook(at.engine, at.at)
    [shared] = plan["shared"]
    [lane] = shared["lanes"]
    assert (
        lane["memory"] == "2 persistent 1.5 GiB + 1 ephemeral 2.0 GiB + process 0.0 GiB of 10.2 GiB"
    )
    why = "policy srtf puts another trial of its lane first"
    assert [(r["study"], r["part"], r["why"]) for r in lane["residents"]] == [
        ("long", 0.0, why),
        ("short", 1.0, ""),
    ]
    console = Console(file=io.StringIO(), width=200)
    console.print(plan_view(plan))
    shown = console.file.getvalue()
    assert f"has no turns for now: {why}" in shown
    assert f"turns: long/0 none, as {why}, short/0 100%" in shown
    assert "d0 is shared by 2 trials: it has one lane" in shown


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


@pytest.mark.parametrize("seed", range(24))
def test_random_worlds_keep_every_invariant_and_end(seed):
    """Any policy, random lanes, arrivals, gangs, memory, losses, drains; restarts, a replay."""
    rng = Random(seed)
    policy = rng.choice(["fair", "srtf", "las", "pack", "waterfill"])
    memory = rng.choice([None, 12.0])
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
                if trial.measured is None and rng.random() < 0.3 and at.open:
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
                at.send(
                    AttemptLost(
                        at=at.at,
                        cause=dispatch.id,
                        trial=dispatch.segment.trial,
                        fence=dispatch.segment.fence,
                        reason="lost",
                    )
                )
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
            at.engine = Engine(state_from_json(text))
            assert state_to_json(at.state) == text
    assert not come
    assert not at.state.studies, "a study never ended"
    again = Engine()
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


class TestReadOnce:
    """Trials that cannot be trained together, and whose batches are read once for a lane."""

    @pytest.mark.parametrize(("readers", "there"), [(1, 2), (0, 1)])
    def test_others_are_seated_beside_one_that_says_it_pays(self, readers, there):
        at = Laned()
        at.study("a", epochs=9, n_trials=20, sampler="tpe", fuse="auto")
        assert len(at.state.attempts) == 1
        at.at += 1.0
        at.end_epoch("a", 1.0, together=0, readers=readers)
        assert len(at.state.attempts) == there
        study = at.state.studies["a"]
        assert fuses(study) == bool(readers)
        assert not steps_together(study)
        assert "their trainer could not" in why_not(at.state, study)

    def test_plans_count_with_what_was_measured_beside_so_many(self):
        at = Laned(seats=2)
        at.study("a", epochs=4, n_trials=2, sampler="tpe", fuse="auto")
        at.at += 4.0
        at.end_epoch("a", 4.0, together=0, readers=1)
        for name in ("a", "a-0001"):
            at.at += 2.0
            at.end_epoch(name, 2.0, together=0, readers=2, alone=4.0)
        assert at.state.epoch_seconds(at.trial("a")) == pytest.approx(4.0)
        assert at.state.costs.company_ratio("a", 2) == pytest.approx(0.5)
        ends = {row["trial"]: row["epoch_ends"] for row in outlook(at.engine, at.at)["running"]}
        assert ends == pytest.approx({0: 2.0, 1: 4.0})

    def test_epochs_in_which_nothing_was_found_count_too(self):
        at = Laned(seats=2)
        at.study("a", epochs=3, n_trials=2, sampler="tpe", fuse="auto")
        for name in ("a", "a", "a-0001"):
            at.at += 2.0
            at.end_epoch(name, 2.0, together=0, readers=1)
        assert at.state.costs.studies["a"].company.ratios == {2: 1.0}

    def test_those_that_never_meet_are_seated_apart_in_the_end(self):
        at = Laned()
        at.study("a", epochs=100, n_trials=40, sampler="tpe", fuse="auto")
        study = at.state.studies["a"]
        seated = []
        for _ in range(12):
            seated.append(len(at.state.attempts))
            oldest = min(at.state.attempts.values(), key=lambda each: each.segment.fence)
            at.at += 1.0
            at.end_epoch(oldest.segment.trial, 1.0, together=0, readers=1)
        assert seated[:9] == [1, *[2] * 8]
        assert seated[-1] == 1, "eight epochs have shown it"
        assert why_not(at.state, study)
        [seen] = outlook(at.engine, at.at)["studies"]
        assert seen["readers"] == 0

    def test_the_plan_tells_them_from_those_that_share_nothing(self):
        at = Laned(seats=2)
        at.study("a", epochs=9, n_trials=2, sampler="tpe", fuse="auto")
        said = []
        for readers, alone in ((0, 0.0), (1, 0.0), (1, 0.0), (2, 5.0)):
            at.at += 2.0
            at.end_epoch("a", 2.0, together=0, readers=readers, alone=alone)
            [row] = outlook(at.engine, at.at)["studies"]
            said.append((row["readers"], round(row["readers_take"], 2)))
        assert said[:3] == [(0, 1.0), (1, 1.0), (1, 1.0)]
        assert said[3][0] == 2
        assert said[3][1] < 1.0

    def test_their_steps_do_not_need_memory_at_once(self):
        at = Laned(memory=10.0 / (1.0 - RESERVE))
        at.study("a", n_trials=8, fuse="auto")
        at.told("a", 1.0, 2.0)
        trials = [at.state.trials[f"a-000{n}"] for n in range(2)]
        device = at.state.devices["d0"].device
        at.at += 1.0
        at.end_epoch("a", 1.0, together=0, readers=2, alone=2.0)
        need = lane_need(at.state, device, trials)
        assert need is not None
        assert need.ephemeral < 2.5 * GIB, "that of one step"


def asha(*, seats, seed):
    """A study of 81 trials in two lanes: (trials begun, promoted ones at work) after each epoch,
    and epochs by trial.
    """
    at = Laned(seats=seats, devices=2)
    scores = [Random(f"{seed} {n}").random() for n in range(81)]
    at.score = lambda number, epoch: scores[number]
    plan = StrategySpec("asha", max_epochs=27, eta=3)
    fields = {"n_trials": 81, "max_segment": 1, "contract": "torch", "fuse": "auto"}
    at.submit(spec(plan, id="a", name="a", sampler="tpe", **fields))
    seen = []
    while at.state.attempts:
        oldest = at.state.attempts[min(at.state.attempts)]
        there = [at.trial(each.segment.trial) for each in at.state.attempts.values()]
        seen.append((len(at.state.trials), sum(each.target > 1 for each in there)))
        at.at += 1.0
        gains = {"company": ((2, 0.6), (8, 0.3)), "together": min(seats, 2), "alone": 2.0}
        at.end_epoch(oldest.segment.trial, 1.0, **(gains if seats > 1 else {}))
    assert at.finish.status == "complete"
    return seen, at.epochs_by_trial()


class TestTrainedTogether:
    """Trials of a study that are trained together take the seats of a lane."""

    def test_one_study_fills_the_seats_and_its_strategy_is_asked_for_them(self):
        at = Laned(devices=2)
        at.study("a", n_trials=20, sampler="tpe", fuse="auto")
        assert len(at.state.attempts) == 2, "one a lane, until one says what company gains"
        waits = Trial("x", "a", 99, (), 0.0)
        [unknown] = {seat_verdict(at.state, Member("d0", seat), waits).why for seat in (1, 2, 3)}
        assert unknown.endswith("and what they would gain together is not measured yet")
        at.at += 1.0
        at.end_epoch("a", 1.0, company=((2, 0.6), (8, 0.3)))
        assert len(at.state.studies["a"].trials) == 8
        assert len(at.state.attempts) == 8

    @pytest.mark.parametrize(
        ("company", "beside"),
        [
            (((2, 0.97),), 1),
            (((2, 1.0), (8, 0.95)), 1),
            (((2, 0.7),), 4),
            (((2, 0.6), (8, 0.2)), 9),
        ],
    )
    @pytest.mark.parametrize("sampler", ["random", "tpe"])
    def test_no_more_have_a_seat_than_pay(self, company, beside, sampler):
        """Neither if they are asked for, nor if they wait."""
        at = Laned(seats=9)
        at.study("a", epochs=50, n_trials=40, sampler=sampler, fuse="auto")
        at.at += 1.0
        at.end_epoch("a", 1.0, company=company)
        assert len(at.state.attempts) == beside
        assert (why_not(at.state, at.state.studies["a"]) == "") == (beside > 1)

    def test_with_seats_asha_promotes_no_more_than_without(self):
        """Many promoted at once are trials that later results overtake."""
        epochs = {
            seats: sum(sum(asha(seats=seats, seed=seed)[1].values()) for seed in range(5))
            for seats in (1, 16)
        }
        assert epochs[16] <= epochs[1]

    def test_a_lane_has_one_trial_that_was_promoted_before_its_rung_is_complete(self):
        seen, _ = asha(seats=8, seed=0)
        # Once 54 of 81 are in their rung, the best one is in its third whatever the others are.
        early = {promoted for begun, promoted in seen if begun <= 54}
        assert early == {0, 1, 2}, "in two lanes"
        assert max(promoted for _, promoted in seen) > 2

    def test_where_company_is_no_gain_after_all_trials_leave_the_lane(self):
        at = Laned()
        at.study("a", epochs=50, n_trials=20, sampler="tpe", fuse="auto")
        at.at += 1.0
        at.end_epoch("a", 1.0, company=((2, 0.6), (8, 0.3)))
        names = [each.segment.trial for each in at.state.attempts.values()]
        assert len(names) == 4
        for _ in range(5):
            for name in names:
                if at.trial(name).fence in at.state.attempts:
                    at.at += 1.0
                    at.end_epoch(name, 2.0, together=4, alone=1.5)
        assert len(at.state.attempts) == 1
        assert "too little" in why_not(at.state, at.state.studies["a"])

    @pytest.mark.parametrize("policy", ["fifo", "srtf", "waterfill", "pack"])
    def test_no_policy_keeps_them_from_their_seats(self, policy):
        at = Laned(devices=2, policy=policy)
        at.study("a", n_trials=20, sampler="tpe", fuse="auto")
        at.gain("a", {2: 0.6, 8: 0.3})
        assert len(at.state.attempts) == 8

    def test_costs_are_those_alone_and_what_is_expected_is_that_of_the_company(self):
        at = Laned()
        at.study("a", epochs=3, n_trials=4, sampler="tpe", fuse="auto")
        at.gain("a", {2: 0.6})
        for name in ("a", "a-0001", "a-0002", "a-0003"):
            at.at += 2.0
            at.end_epoch(name, 2.0, together=4, alone=5.0)
        trial = at.trial("a")
        assert at.state.epoch_seconds(trial) == pytest.approx(5.0)
        assert at.state.costs.company_ratio("a", 4) == pytest.approx(0.4)
        running = outlook(at.engine, at.at)["running"]
        # Each has a quarter of the lane, and an epoch takes two seconds of that.
        ends = {row["trial"]: row["epoch_ends"] for row in running}
        assert ends == pytest.approx({0: 2.0, 1: 4.0, 2: 6.0, 3: 8.0})

    def test_an_epoch_in_which_they_proved_no_faster_together_says_what_each_takes_alone(self):
        at = Laned()
        at.study("a", epochs=3, n_trials=4, sampler="tpe", fuse="auto")
        at.at += 2.0
        at.end_epoch("a", 2.0, together=1, alone=1.0)
        assert at.state.epoch_seconds(at.trial("a")) == 1.0
        assert at.state.costs.company_ratio("a", 4) == 1.0

    def test_plans_see_an_epoch_take_less_of_a_device_and_a_second_device_gain_less(self):
        """Alone an epoch takes 5 s on one device and 3 s on two; with others, 2 s of one."""
        at = Laned(policy="waterfill")
        at.study("a", epochs=9, n_trials=4, sampler="tpe", fuse="auto", max_width=2, shards=2)
        at.gain("a", {2: 0.6})
        for number in range(4):
            at.at += 2.0
            at.end_epoch(f"a-{number:04}", 2.0, together=4, alone=5.0)
        at.state.costs.observe_window("a", "a-0000", {1: 0.5, 2: 0.3}, 10, meeting=0.0, met=True)
        seen = []

        def policy(snapshot):
            seen.append(snapshot)
            return Plan(tuple(each.trial for each in snapshot.waiting))

        at.policy = policy
        at.send(PolicyChosen(at=at.at, policy="user:policy"))
        at.at += 5.0
        at.send(Tick(at=at.at))
        [first] = [each for each in seen[-1].running if each.trial == "a-0001"]
        assert first.level == pytest.approx(2.0)
        assert dict(first.shape)[1] == 1.0
        assert dict(first.shape)[2] > 1.0, "alone on two devices it takes longer than its part"

    def test_where_their_trainer_cannot_they_are_seated_apart_again(self):
        at = Laned()
        at.study("a", n_trials=8, sampler="tpe", fuse="auto")
        at.at += 1.0
        at.end_epoch("a", 1.0, company=((2, 0.6),))
        assert len(at.state.attempts) == 4
        at.at += 1.0
        at.end_epoch("a", 1.0, together=0)
        assert len(at.state.studies["a"].trials) == 4, "no more are drawn"
        study = at.state.studies["a"]
        assert "their trainer could not" in why_not(at.state, study)
        at.at += 1.0
        at.end_epoch("a", 1.0, together=3)
        assert why_not(at.state, study) == ""
        assert study.together == 3

    def test_trials_that_are_never_alike_are_seated_apart_in_the_end(self):
        at = Laned()
        at.study("a", epochs=100, n_trials=40, sampler="tpe", fuse="auto")
        study = at.state.studies["a"]
        for n in range(1 + MAX_SINGLES):
            assert why_not(at.state, study) == (
                "" if n else "what they would gain is not measured yet"
            )
            at.at += 1.0
            at.end_epoch("a", 1.0, company=((2, 0.6),))
        assert "different structures" in why_not(at.state, study)

    @pytest.mark.parametrize(
        ("fields", "why"),
        [
            ({"fuse": "off"}, 'fuse="off"'),
            ({"contract": "objective"}, "TorchTrainable"),
            ({"exactness": "statistical"}, "bitwise"),
            ({"epoch_timeout": 60.0}, "limit"),
            ({"memory_limit": 2**30}, "limit"),
        ],
    )
    def test_what_is_not_trained_together_leaves_seats_to_others(self, fields, why):
        at = Laned()
        at.study("a", n_trials=8, **{"fuse": "auto", **fields})
        assert len(at.state.attempts) == 1
        assert why in why_not(at.state, at.state.studies["a"])

    def test_their_steps_need_memory_at_once_and_a_copy_of_what_they_keep(self):
        at = Laned(memory=10.0 / (1.0 - RESERVE))
        at.study("a", n_trials=8, fuse="auto")
        at.at += 1.0
        at.end_epoch("a", 1.0, company=((2, 0.6), (8, 0.3)))
        assert len(at.state.attempts) == 4, "a seat's part each"
        at.told("a", 1.0, 2.0)
        trials = [at.state.trials[f"a-000{n}"] for n in range(2)]
        need = lane_need(at.state, at.state.devices["d0"].device, trials)
        assert need is not None
        assert 2 * GIB < need.persistent < 2.2 * GIB, "the other one as large, with a margin"
        assert need.ephemeral == pytest.approx(3 * need.persistent)
