"""Trials of a study that are seated next to each other, because they are trained together."""

from __future__ import annotations

from random import Random

import pytest
from penstock.app.show.views.plan import detail_words
from penstock.extensions.fusion.grouping import MAX_SINGLES
from penstock.scheduler.model.decisions import Member
from penstock.scheduler.model.events import PolicyChosen, Tick
from penstock.scheduler.model.snapshot import Plan
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import Trial
from penstock.scheduler.outlook.outlook import outlook
from worlds.drive_world import spec
from worlds.laned_world import Laned

pytestmark = pytest.mark.extension("lanes")


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
        assert at.fused_groups.gains(study) == bool(readers)
        assert not at.fused_groups.steps_at_once(study)
        assert "their trainer could not" in at.fused_groups.why_not(study)

    def test_plans_count_with_what_was_measured_beside_so_many(self):
        at = Laned(seats=2)
        at.study("a", epochs=4, n_trials=2, sampler="tpe", fuse="auto")
        at.at += 4.0
        at.end_epoch("a", 4.0, together=0, readers=1)
        for name in ("a", "a-0001"):
            at.at += 2.0
            at.end_epoch(name, 2.0, together=0, readers=2, alone=4.0)
        assert at.state.epoch_seconds(at.trial("a")) == pytest.approx(4.0)
        assert at.state.costs.group_slowdown("a", 2) == pytest.approx(0.5)
        plan = outlook(at.engine, at.at)
        ends = {row["trial"]: row["epoch_ends"] for row in plan["running"]}
        assert ends == pytest.approx({0: 2.0, 1: 4.0})
        words = "batches are read once for up to 2 of its trials: each needs 50% of its time alone"
        assert words in "\n".join(detail_words(plan))

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
        assert at.fused_groups.why_not(study)
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


def asha(*, seats, seed):
    """Run 81 trials in two lanes.

    Returns (trials begun, promoted ones at work) after each epoch, and epochs by trial.
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


@pytest.mark.parametrize(
    ("fuse", "reported", "words"),
    [
        ("auto", {"together": 4, "alone": 2.0}, "up to 4 trials are trained together"),
        ("auto", {"together": 0, "readers": 1}, "batches would be read once for its trials"),
        ("off", {}, 'its trials are not trained together: the study says fuse="off"'),
    ],
)
def test_the_plan_says_what_trials_do_together(fuse, reported, words):
    at = Laned()
    at.study("a", epochs=9, n_trials=20, sampler="tpe", fuse=fuse)
    at.at += 1.0
    at.end_epoch("a", 1.0, **reported)
    assert words in "\n".join(detail_words(outlook(at.engine, at.at)))


class TestTrainedTogether:
    """Trials of a study that are trained together take the seats of a lane."""

    def test_one_study_fills_the_seats_and_its_strategy_is_asked_for_them(self):
        at = Laned(devices=2)
        at.study("a", n_trials=20, sampler="tpe", fuse="auto")
        assert len(at.state.attempts) == 2, "one a lane, until one says what company gains"
        waits = Trial("x", "a", 99, (), 0.0)
        [unknown] = {at.engine.extensions.too_full(waits, Member("d0", seat)) for seat in (1, 2, 3)}
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
        assert (at.fused_groups.why_not(at.state.studies["a"]) == "") == (beside > 1)

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

    @pytest.mark.parametrize("highest", [27, 81])
    def test_where_trials_go_ahead_none_has_company_before_one_was_at_the_top(self, highest):
        """Company would slow the first. Of 40 trials none will be at a rung above 27 epochs."""
        at = Laned(devices=2)
        at.score = lambda number, epoch: number + epoch / 100
        plan = StrategySpec("asha", max_epochs=highest, eta=3, ahead=True)
        fields = {"n_trials": 40, "max_segment": 1, "contract": "torch", "fuse": "auto"}
        at.submit(spec(plan, id="a", name="a", sampler="tpe", **fields))
        before, after = set[int](), set[int]()
        while at.state.attempts:
            furthest = max(each.epoch for each in at.state.trials.values())
            (before if furthest < 27 else after).add(len(at.state.attempts))
            oldest = at.state.attempts[min(at.state.attempts)]
            at.at += 1.0
            at.end_epoch(oldest.segment.trial, 1.0, company=((2, 0.6), (8, 0.3)))
            if furthest < 26:
                assert "top rung" in at.fused_groups.why_not(at.state.studies["a"])
        assert before == {2}
        assert max(after) == 8

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
        assert "too little" in at.fused_groups.why_not(at.state.studies["a"])

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
        assert at.state.costs.group_slowdown("a", 4) == pytest.approx(0.4)
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
        assert at.state.costs.group_slowdown("a", 4) == 1.0

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
        assert "their trainer could not" in at.fused_groups.why_not(study)
        at.at += 1.0
        at.end_epoch("a", 1.0, together=3)
        assert at.fused_groups.why_not(study) == ""
        assert at.fused_groups.known(study).together == 3

    def test_trials_that_are_never_alike_are_seated_apart_in_the_end(self):
        at = Laned()
        at.study("a", epochs=100, n_trials=40, sampler="tpe", fuse="auto")
        study = at.state.studies["a"]
        for n in range(1 + MAX_SINGLES):
            assert at.fused_groups.why_not(study) == (
                "" if n else "what they would gain is not measured yet"
            )
            at.at += 1.0
            at.end_epoch("a", 1.0, company=((2, 0.6),))
        assert "different structures" in at.fused_groups.why_not(study)

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
        assert why in at.fused_groups.why_not(at.state.studies["a"])
