"""Events in, decisions out, as sentences."""

import math

import pytest
from penstock.scheduler.engine.engine import Refused
from penstock.scheduler.model.decisions import Cut, Dispatch, Member, Release, Revoke
from penstock.scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    DeviceDraining,
    DeviceJoined,
    DeviceLeft,
    Durable,
    PolicyChosen,
    Proposed,
    StudyCancelled,
    StudySubmitted,
    Tick,
    TrialEnqueued,
    TrialReturned,
)
from penstock.scheduler.model.snapshot import Plan, WindowPlan
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import TrialState
from penstock.scheduler.outlook.outlook import outlook
from penstock.scheduler.planning.planning import MAX_REPLAN_INTERVAL, REPLAN_INTERVAL_PER_TRIAL
from penstock.scheduler.policies.registry import FUNCTIONS
from worlds.drive_world import World, check_invariants, device, spec


@pytest.fixture
def world():
    world = World()
    yield world
    check_invariants(world.engine)


def running(world: World, **fields) -> Dispatch:
    """A study at work on one device; the dispatch of its first segment."""
    world.submit(spec(**fields))
    world.join("cpu.a.0")
    return next(iter(world.open.values()))


def state(world: World, number: int = 0) -> TrialState:
    return world.engine.state.trials[f"s-1-{number:04d}"].state


def test_a_study_is_asked_for_when_a_device_joins_and_runs_to_its_end(world):
    running(world, n_trials=4)
    world.run()
    assert world.epochs_by_trial() == {f"s-1-000{n}": 3 for n in range(4)}
    assert world.finish.status == "complete"


def test_a_study_of_two_devices_runs_two_trials_at_once(world):
    world.submit(spec(n_trials=4))
    world.join("cpu.a.0", "cpu.a.1")
    assert {d.segment.members for d in world.open.values()} == {
        (Member("cpu.a.0", 0),),
        (Member("cpu.a.1", 0),),
    }


def test_the_same_study_submitted_twice_is_refused(world):
    running(world)
    with pytest.raises(Refused, match="submitted already"):
        world.send(StudySubmitted(at=1.0, study=spec()))


def test_a_trial_goes_on_in_its_slot_under_the_standing_plan(world):
    first = running(world, n_trials=1)
    decisions = world.send(world.epoch(first, 1))
    [following] = [d for d in decisions if isinstance(d, Dispatch)]
    assert following.segment.first == 2
    assert following.segment.members == first.segment.members
    assert following.segment.fence > first.segment.fence
    assert following.expect == "s-1-0000@1"


def test_a_report_under_an_old_fence_counts_for_nothing(world):
    first = running(world, n_trials=1)
    world.send(world.epoch(first, 1))
    before = world.engine.state.trials["s-1-0000"].epoch
    with pytest.raises(Refused, match="not the open one"):
        world.send(world.epoch(first, 2))
    assert world.engine.state.trials["s-1-0000"].epoch == before


def test_an_epoch_reported_twice_counts_once(world):
    first = running(world, n_trials=1)
    world.send(world.epoch(first, 1, closes=False))
    with pytest.raises(Refused, match="after 1 accepted"):
        world.send(world.epoch(first, 1, closes=False))
    assert world.engine.state.trials["s-1-0000"].epoch == 1


def test_a_repeated_epoch_with_other_bits_is_told_and_changes_no_result(world):
    first = running(world, n_trials=1)
    world.send(world.epoch(first, 1))
    world.send(world.epoch(first, 1, state_hash="other"))
    study = world.engine.state.studies["s-1"]
    assert "not deterministic" in study.message
    assert world.engine.state.trials["s-1-0000"].state_hash == "s-1-0000@1"


def test_a_report_without_the_metric_is_refused(world):
    first = running(world)
    with pytest.raises(Refused, match="without v"):
        world.send(world.epoch(first, 1, metrics=(("loss", 1.0),)))


def test_a_lost_attempt_is_fenced_off_and_dispatched_anew_first(world):
    first = running(world, n_trials=5)
    decisions = world.send(
        AttemptLost(at=1.0, trial="s-1-0000", fence=first.segment.fence, reason="lease")
    )
    [revoke] = [d for d in decisions if isinstance(d, Revoke)]
    assert revoke.fence == first.segment.fence
    [again] = [d for d in decisions if isinstance(d, Dispatch)]
    assert (again.segment.trial, again.segment.first) == ("s-1-0000", 1)


def test_a_device_that_loses_three_times_rests_and_is_woken_by_a_tick(world):
    running(world, n_trials=1)
    for _ in range(3):
        dispatch = next(iter(world.open.values()))
        world.send(
            AttemptLost(at=1.0, trial="s-1-0000", fence=dispatch.segment.fence, reason="lease")
        )
    assert not world.open
    assert world.engine.wake_at() == 2.0
    world.at = 2.0
    world.send(Tick(at=2.0))
    assert len(world.open) == 1


def test_a_rest_that_is_over_is_still_to_be_woken_when_other_events_came_first(world):
    """A checkpoint that is told just then fills no slot, and must not make the engine forget."""
    first = running(world, n_trials=1)
    world.send(world.epoch(first, 1))
    for _ in range(3):
        dispatch = next(iter(world.open.values()))
        world.send(
            AttemptLost(at=1.0, trial="s-1-0000", fence=dispatch.segment.fence, reason="lease")
        )
    world.send(Durable(at=2.5, trial="s-1-0000", epoch=1, state_hash="s-1-0000@1", uri="u1"))
    assert not world.open
    assert world.engine.wake_at() == 2.0
    world.send(Tick(at=2.5))
    assert len(world.open) == 1
    assert world.engine.wake_at() is None


def test_a_device_that_leaves_loses_its_attempts_and_takes_no_more(world):
    running(world, n_trials=2)
    world.send(DeviceLeft(at=1.0, device="cpu.a.0", reason="silent"))
    assert not world.open
    assert state(world) is TrialState.WAITING
    world.join("cpu.a.1")
    [dispatch] = world.open.values()
    assert dispatch.segment.members == (Member("cpu.a.1", 0),)


def test_a_worker_started_anew_loses_what_the_old_one_had(world):
    first = running(world, n_trials=1)
    world.send(DeviceJoined(at=1.0, device=device(), incarnation="i2"))
    [again] = world.open.values()
    assert again.segment.fence > first.segment.fence


def test_a_draining_device_is_cut_and_gets_nothing_more(world):
    first = running(world, n_trials=1)
    decisions = world.send(DeviceDraining(at=1.0, device="cpu.a.0"))
    assert [type(d) for d in decisions] == [Cut]
    world.send(world.epoch(first, 1, closes=True))
    assert not world.open
    assert state(world) is TrialState.WAITING


def test_a_node_that_refuses_a_study_is_not_asked_again(world):
    first = running(world, n_trials=1)
    world.send(
        AttemptLost(
            at=1.0,
            trial="s-1-0000",
            fence=first.segment.fence,
            reason="another digest",
            refused=True,
        )
    )
    assert not world.open
    assert "another digest" in world.engine.state.studies["s-1"].message
    world.join("cpu.a.1")
    assert len(world.open) == 1


def test_a_failed_trial_is_told_and_the_study_goes_on(world):
    first = running(world, n_trials=2)
    world.send(
        AttemptFailed(
            at=1.0,
            trial="s-1-0000",
            fence=first.segment.fence,
            kind="exception",
            message="boom",
            traceback="tb",
        )
    )
    assert state(world) is TrialState.FAILED
    world.run()
    assert world.finish.status == "complete"


def test_a_study_whose_trials_all_fail_has_failed(world):
    running(world, n_trials=2)
    while world.open:
        dispatch = next(iter(world.open.values()))
        world.send(
            AttemptFailed(
                at=1.0,
                trial=dispatch.segment.trial,
                fence=dispatch.segment.fence,
                kind="nan",
                message="nan",
            )
        )
    assert world.finish.status == "failed"


def test_a_failed_trial_does_not_hold_up_its_rung(world):
    running(world, strategy=StrategySpec("halving", max_epochs=3), n_trials=3)
    dispatch = world.open[min(world.open)]
    world.send(
        AttemptFailed(
            at=1.0,
            trial=dispatch.segment.trial,
            fence=dispatch.segment.fence,
            kind="nan",
            message="",
        )
    )
    world.run()
    assert sorted(world.epochs_by_trial().values()) == [1, 3]


def test_a_cancelled_study_is_fenced_off_and_frees_its_slots_for_others(world):
    first = running(world, n_trials=5)
    world.submit(spec(id="s-2", name="s2", n_trials=1))
    decisions = world.send(StudyCancelled(at=1.0, study="s-1"))
    assert [d.fence for d in decisions if isinstance(d, Revoke)] == [first.segment.fence]
    assert first.segment.trial in [d.trial for d in decisions if isinstance(d, Release)]
    assert world.finish.status == "cancelled"
    assert [d.study for d in world.open.values()] == ["s-2"]


def test_an_objective_that_returns_completes_its_trial(world):
    first = running(world, n_trials=1, strategy=StrategySpec("full"))
    world.send(world.epoch(first, 1, closes=False))
    world.send(TrialReturned(at=2.0, trial="s-1-0000", fence=first.segment.fence, value=0.7))
    assert world.finish.status == "complete"


def test_an_objective_that_returns_nothing_and_reported_nothing_fails(world):
    first = running(world, n_trials=1, strategy=StrategySpec("full"))
    world.send(TrialReturned(at=2.0, trial="s-1-0000", fence=first.segment.fence, value=None))
    assert world.finish.status == "failed"


def test_enqueued_configurations_are_asked_for_first(world):
    world.join("cpu.a.0")
    world.send(
        StudySubmitted(at=0.0, study=spec(n_trials=3, sampler="tpe"), enqueued=((("x", 1),),))
    )
    world.send(TrialEnqueued(at=0.0, study="s-1", params=(("x", 2),)))
    with pytest.raises(Refused, match="all 3 trials"):
        for _ in range(3):
            world.send(TrialEnqueued(at=0.0, study="s-1", params=(("x", 3),)))
    world.run()
    asks = [d.enqueued for d in world.trace if hasattr(d, "enqueued")]
    assert asks == [((("x", 1),),), ((("x", 2),),), ((("x", 3),),)]


def test_an_ask_answered_twice_counts_once(world):
    running(world, n_trials=2)
    with pytest.raises(Refused, match="answered already"):
        world.send(Proposed(at=0.0, study="s-1", index=0, trials=((),)))


def test_durable_states_are_offered_newest_first_and_only_with_the_accepted_bits(world):
    first = running(world, n_trials=1, strategy=StrategySpec("full", max_epochs=9))
    world.send(world.epoch(first, 1))
    with pytest.raises(Refused, match="not accepted with these bits"):
        world.send(Durable(at=1.0, trial="s-1-0000", epoch=1, state_hash="x", uri="u"))
    world.send(Durable(at=1.0, trial="s-1-0000", epoch=1, state_hash="s-1-0000@1", uri="u1"))
    second = world.run_segment()
    following = next(iter(world.open.values()))
    assert [p.epoch for p in following.parents] == [1]
    assert second.segment.first == 2


def test_a_trial_prefers_the_slot_where_it_is_warm(world):
    world.submit(spec(StrategySpec("halving", max_epochs=3), n_trials=6))
    world.join("cpu.a.0", "cpu.a.1")
    world.run()
    homes = {}
    for dispatch in [d for d in world.trace if isinstance(d, Dispatch)]:
        homes.setdefault(dispatch.segment.trial, []).append(dispatch.segment.members[0].device)
    promoted = [places for trial, places in homes.items() if len(places) > 1]
    assert len(promoted) == 2
    # At the rung's end both slots are free, so each promoted trial can go home.
    assert all(len(set(places)) == 1 for places in promoted)


def test_the_policy_orders_who_waits_and_is_called_more_rarely_for_many_trials(world):
    world.send(PolicyChosen(at=0.0, policy="longest_first"))
    running(world, n_trials=30, sampler="random")
    planned = world.engine.state.planned_at
    assert planned == 0.0
    world.at = planned + 30 * REPLAN_INTERVAL_PER_TRIAL / 2
    world.submit(spec(id="s-2", name="s2", n_trials=3))
    world.join("cpu.a.1")
    assert world.engine.state.planned_at == planned
    world.at = planned + MAX_REPLAN_INTERVAL
    world.join("cpu.a.2")
    assert world.engine.state.planned_at == world.at


def with_windows(snapshot, widths, epochs=0.5):
    """A plan in which all waiting trials measure these widths."""
    order = tuple(each.trial for each in snapshot.waiting)
    return Plan(order, windows=dict.fromkeys(order, WindowPlan(widths, epochs)))


@pytest.mark.parametrize(
    ("policy", "trouble"),
    [
        (lambda snapshot: 1 / 0, "division by zero"),
        (lambda snapshot: Plan(()), "out of its order"),
        (lambda snapshot: Plan(tuple(t.trial for t in snapshot.waiting) * 2), "twice in its order"),
        (lambda snapshot: with_windows(snapshot, (2,)), "does not begin with one device"),
        (lambda snapshot: with_windows(snapshot, (1,), math.inf), "never ends"),
        (lambda snapshot: with_windows(snapshot, (1, 2)), "2 devices, where 1 to 1 are allowed"),
    ],
)
def test_a_policy_that_fails_is_noted_and_the_plan_before_stands(
    world, monkeypatch, policy, trouble
):
    monkeypatch.setitem(FUNCTIONS, "plugin", policy)
    world.send(PolicyChosen(at=0.0, policy="plugin"))
    running(world, n_trials=3, sampler="random")
    assert trouble in world.engine.state.plan_error
    assert outlook(world.engine, 0.0)["trouble"] == world.engine.state.plan_error
    world.send(PolicyChosen(at=world.at, policy="fifo"))
    world.run()
    assert world.finish.status == "complete"
    assert not world.engine.state.plan_error


def test_the_end_of_a_study_releases_its_paused_trials(world):
    running(world, strategy=StrategySpec("halving", max_epochs=3), n_trials=3)
    world.run()
    assert {d.trial for d in world.trace if isinstance(d, Release)} == {
        f"s-1-000{n}" for n in range(3)
    }


def test_the_story_of_a_trial_names_events_causes_and_states(world):
    first = running(world, n_trials=1)
    world.send(world.epoch(first, 1))
    story = world.engine.story("s-1-0000")
    assert story[0].endswith("proposed enter waiting")
    assert f"EpochReported (answers {first.id}): running yield waiting" in story[2]


def test_a_wish_takes_the_place_of_the_last_trial_that_has_not_begun_and_is_next():
    """A sampler that is asked for all at once has proposed everything before the wish comes."""
    world = World()
    world.submit(spec(n_trials=4, sampler="random"))
    world.join("cpu.a.0")
    for x in (7, 8):
        world.send(TrialEnqueued(at=1.0, study="s-1", params=(("x", x),)))
    trials = world.engine.state.trials
    assert [dict(trial.params)["x"] for trial in trials.values()] == [0, 0, 8, 7]
    assert world.engine.state.ready == ["s-1-0003", "s-1-0002", "s-1-0001"]
    world.send(TrialEnqueued(at=1.0, study="s-1", params=(("x", 0),)))
    assert world.engine.state.ready == ["s-1-0003", "s-1-0002", "s-1-0001"], "it was to come"
    with pytest.raises(Refused, match="have begun"):
        world.send(TrialEnqueued(at=1.0, study="s-1", params=(("x", 9),)))
    world.run()
    order = [d.number for d in world.trace if isinstance(d, Dispatch) and d.segment.first == 1]
    assert order == [0, 3, 2, 1]


def test_a_trial_goes_on_where_its_device_came_back_with_fewer_slots():
    world = World()
    world.submit(spec(n_trials=1))
    world.join("cpu.a.0", slots=2)
    [dispatch] = world.open.values()
    trial = world.engine.state.trials[dispatch.segment.trial]
    trial.members = (Member("cpu.a.0", 1),)  # as if another trial had been in slot 0
    world.send(DeviceJoined(at=world.at, device=device("cpu.a.0", 1), incarnation="i2"))
    assert trial.members == (Member("cpu.a.0", 0),)
