"""Width windows in the engine: when one is opened, what it costs, and what is done with it."""

from __future__ import annotations

import pytest
from penstock.app.ledger.codec import state_from_json, state_to_json
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.decisions import Cut, Dispatch, Release, Revoke
from penstock.scheduler.model.events import (
    AttemptFailed,
    DeviceDraining,
    DeviceLeft,
    PolicyChosen,
    Tick,
    TrialReturned,
)
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.model.trial import TrialState
from penstock.scheduler.planning.snapshots import MAX_VAIN_WINDOWS
from worlds.drive_world import World, check_invariants, spec

#: Seconds a step of a trial to which more devices are of no use.
FLAT = ((1, 0.1), (2, 0.099), (4, 0.12), (3, 0.11))


def elastic(**fields):
    plan = StrategySpec("full", max_epochs=fields.pop("epochs", 20))
    return spec(plan, **{"max_width": 4, "shards": 8, "n_trials": 1, "max_segment": 1, **fields})


def world(devices: int, policy: str = "waterfill", *, keep_widths: bool = False, **fields) -> World:
    found = World()
    if policy != found.engine.state.policy:
        found.send(PolicyChosen(at=0.0, policy=policy, keep_widths=keep_widths))
    found.join(*[f"d{number}" for number in range(devices)])
    found.submit(elastic(**fields))
    return found


def windows(at: World) -> list[tuple[int, ...]]:
    """The widths of all windows that were opened."""
    return [d.segment.widths for d in at.trace if isinstance(d, Dispatch) and d.segment.widths]


def window(at: World) -> Dispatch:
    """The open window."""
    [found] = [dispatch for dispatch in at.open.values() if dispatch.segment.widths]
    return found


def answer(at: World, **changes):
    """The open window's answer, a second later; what the engine decides."""
    at.at += 1.0
    return at.send(at.widths(window(at), **changes))


def run_epoch(at: World, after: float = 10.0, **changes):
    """The oldest training segment's next epoch, when it is over, and a moment for the next plan."""
    fence = min(fence for fence, each in at.open.items() if not each.segment.widths)
    dispatch = at.open[fence]
    at.at += after
    epoch = at.engine.state.trials[dispatch.segment.trial].epoch + 1
    decided = at.send(at.epoch(dispatch, epoch, **{"seconds": after, **changes}))
    at.at += 1.0
    at.send(Tick(at=at.at))
    return decided


def run_until_window(at: World):
    for _ in range(9):
        if not any(dispatch.segment.widths for dispatch in at.open.values()):
            run_epoch(at)


def lose(at: World, **changes):
    return at.send(at.lost(window(at), "its lease ran out", **changes))


def test_a_trial_alone_measures_before_its_first_epoch_and_then_trains_at_the_best_width():
    at = world(6)
    opened = window(at)
    assert opened.segment.widths == (1, 2, 4, 3)
    assert [member.device for member in opened.segment.members] == ["d0", "d1", "d2", "d3"]
    assert (opened.ext, opened.width_epochs) == ({}, 2.0)  # a tenth of 20 epochs
    assert not opened.durable
    check_invariants(at.engine)
    answer(at, seconds=((1, 0.1), (2, 0.06), (4, 0.05), (3, 0.04)))
    [trains] = at.open.values()
    assert (trains.segment.first, trains.segment.widths) == (1, ())
    assert [member.device for member in trains.segment.members] == ["d0", "d1", "d2"]
    assert at.engine.state.trials["s-1-0000"].epoch == 0
    for _ in range(20):
        run_epoch(at, after=4.0)
        check_invariants(at.engine)
    assert at.finish.status == "complete"
    assert len(windows(at)) == 1
    epochs = [d.segment for d in at.trace if isinstance(d, Dispatch) and not d.segment.widths]
    assert {len(segment.members) for segment in epochs} == {3}
    assert [segment.first for segment in epochs] == list(range(1, 21))


def test_a_flat_curve_keeps_a_trial_at_one_device_for_all_epochs():
    at = world(4)
    answer(at, seconds=FLAT)
    for _ in range(20):
        [dispatch] = at.open.values()
        assert len(dispatch.segment.members) == 1
        run_epoch(at)
    assert at.finish.status == "complete"
    assert len(windows(at)) == 1


def test_a_window_that_measured_nothing_leaves_the_trial_as_it_was():
    """An epoch is too short, or the members did not meet: a resize may then take twice as long."""
    for seconds, meeting in (((), 0.0), (((1, 0.1),), 7.0)):
        at = world(4)
        answer(at, seconds=seconds, meeting=meeting, met=False)
        [trains] = at.open.values()
        assert (len(trains.segment.members), trains.segment.first) == (1, 1)
        assert at.engine.state.windows_of("s-1").vain == 1
        assert at.engine.state.costs.resize == max(2 * meeting, 0.06)


@pytest.mark.parametrize(("seconds", "meeting"), [((), 0.0), (((1, 0.1),), 0.001)])
def test_a_wide_trial_stays_wide_after_a_window_that_measured_no_second_width(seconds, meeting):
    """The next plan is due only when its epoch has begun. Before ``keep_widths`` it was narrow."""
    for keep_widths, devices in ((True, 2), (False, 1)):
        at = world(2, keep_widths=keep_widths)
        answer(at, seconds=((1, 0.1), (2, 0.05)))
        at.join("d2", "d3")
        run_epoch(at, after=5.0)
        run_until_window(at)
        assert len(window(at).segment.members) == 4
        at.join("d4")  # a plan is made, so that the next one is not due at once
        at.send(at.widths(window(at), seconds=seconds, meeting=meeting, met=False))
        [trains] = at.open.values()
        assert (len(trains.segment.members), trains.segment.widths) == (devices, ())
        check_invariants(at.engine)


def test_a_trial_at_work_is_cut_for_its_window_and_keeps_its_state_where_it_is():
    at = world(1, epochs=400, max_segment=64)
    for _ in range(3):
        run_epoch(at, after=0.6, seconds=0.25, closes=True)
    assert not windows(at)
    at.join("d1", "d2")
    [dispatch] = at.open.values()
    assert dispatch.segment.n > 1
    assert any(isinstance(d, Cut) for d in at.trace), "its segment was not cut"
    run_epoch(at, after=0.3, closes=True)
    assert window(at).segment.widths == (1, 2, 3)
    assert window(at).segment.members[0].device == "d0"
    assert [member.device for member in at.engine.state.trials["s-1-0000"].members] == ["d0"]
    answer(at, seconds=FLAT[:2])
    [dispatch] = at.open.values()
    assert [member.device for member in dispatch.segment.members] == ["d0"]
    assert dispatch.holder == "h"
    assert not [d for d in at.trace if isinstance(d, Release | Revoke)]


def test_no_window_is_opened_while_trials_wait_for_devices():
    """Of a study of which something is known; at its end there are devices for windows."""
    at = world(1, n_trials=6, epochs=6)
    run_epoch(at)
    at.join("d1", "d2", "d3")
    seen = 0
    while at.open:
        before = len(at.trace)
        at.run_segment() if at.open[min(at.open)].segment.widths else run_epoch(at)
        opened = [d for d in at.trace[before:] if isinstance(d, Dispatch) and d.segment.widths]
        assert not (opened and at.engine.state.ready)
        assert not (opened and len(at.engine.state.studies["s-1"].trials) < 6)
        seen += len(opened)
    assert seen, "none was opened at the end, either"
    assert at.finish.status == "complete"


@pytest.mark.parametrize(("left", "widths"), [(3, (1, 2, 3)), (2, (1, 2)), (1, ())])
def test_a_window_takes_what_is_empty_when_it_opens_and_is_dropped_for_want_of_two(left, widths):
    at = world(4, policy="fifo")
    at.at += 1.0
    at.send(PolicyChosen(at=at.at, policy="waterfill"))
    at.send(Tick(at=at.at))
    assert at.engine.state.windows["s-1-0000"].widths == (1, 2, 4, 3)
    for number in range(left, 4):  # at the same moment, so that no plan is made of it
        at.send(DeviceDraining(at=at.at, device=f"d{number}"))
    at.send(at.epoch(at.open[min(at.open)], 1, seconds=10.0))
    [dispatch] = at.open.values()
    assert dispatch.segment.widths == widths
    assert len(dispatch.segment.members) == left
    assert not at.engine.state.windows, "it is due once"
    check_invariants(at.engine)


def test_a_window_that_fails_is_no_failure_of_its_trial_and_the_last_of_its_study():
    at = world(6, n_trials=3, retries=0, epochs=3, max_width=2)
    dispatch = next(each for each in at.open.values() if each.segment.widths)
    trial = at.engine.state.trials[dispatch.segment.trial]
    where = {"trial": trial.id, "fence": dispatch.segment.fence}
    opened = len(windows(at))
    fails = AttemptFailed(at=at.at, kind="exception", message="no memory for two", **where)
    [trains] = at.send(fails)
    assert trains.segment.trial == trial.id
    assert (trains.segment.widths, len(trains.segment.members)) == ((), 1)
    assert (trial.failures, trial.failure, trial.state) == (0, None, TrialState.RUNNING)
    assert at.engine.state.windows_of("s-1").vain == MAX_VAIN_WINDOWS
    assert "no memory for two" in at.engine.state.studies["s-1"].message
    at.run()
    assert at.finish.status == "complete"
    assert len(windows(at)) == opened, "those that were open already"


def test_a_trial_whose_window_is_lost_is_first_in_line_and_trains():
    at = world(3, n_trials=2, max_width=2)
    first = window(at).segment.trial
    [second] = {d.segment.trial for d in at.open.values()} - {first}
    [alone] = {d.segment.members[0].device for d in at.open.values() if not d.segment.widths}
    at.send(DeviceLeft(at=at.at, device=alone, reason="its worker is gone"))
    assert at.engine.state.ready == [second]
    trial = at.engine.state.trials[first]
    sent = [decision.segment for decision in lose(at, ranks=(1,)) if isinstance(decision, Dispatch)]
    assert [segment.trial for segment in sent] == [first, second]
    assert [(s.first, len(s.members), s.widths) for s in sent] == [(1, 1, ())] * 2
    assert (trial.losses, trial.failures, trial.failure) == (1, 0, None)
    assert at.engine.state.windows_of("s-1").vain == 1
    check_invariants(at.engine)


def test_what_a_window_says_when_it_is_over_is_refused():
    at = world(4)
    dispatch = window(at)
    lose(at)
    with pytest.raises(Refused, match="not the open one"):
        at.engine.handle(at.widths(dispatch))
    assert at.engine.state.costs.own("s-1", "s-1-0000") is None
    again = world(4)
    dispatch = window(again)
    answer(again)
    with pytest.raises(Refused, match="not the open one"):
        again.engine.handle(again.widths(dispatch))


def test_what_only_training_can_say_is_refused_of_an_attempt_that_was_to_measure():
    at = world(4)
    before = state_to_json(at.engine.state)
    where = {"at": at.at, "trial": "s-1-0000", "fence": window(at).segment.fence}
    for event in (
        at.epoch(window(at), 1),
        TrialReturned(**where, value=0.5),
    ):
        with pytest.raises(Refused, match="to train no epoch"):
            at.engine.handle(event)
    assert state_to_json(at.engine.state) == before
    answer(at)


def had(at, trial="s-1-0000"):
    """The widest width of a trial's last window, and how many of its windows were cut."""
    known = at.engine.state.windows_of("s-1")
    return known.widest.get(trial, 0), known.cut.get(trial, 0)


def test_a_window_ends_where_trials_wait_and_what_it_measured_until_then_counts():
    at = world(2)
    at.submit(elastic(id="s-2", name="t"))
    [cut] = [decision for decision in at.trace if isinstance(decision, Cut)]
    assert (cut.trial, cut.fence) == ("s-1-0000", window(at).segment.fence)
    at.send(Tick(at=at.at))
    assert len([decision for decision in at.trace if isinstance(decision, Cut)]) == 1
    answer(at, seconds=((1, 0.1),), meeting=0.0, met=False)
    assert {d.segment.trial for d in at.open.values()} == {"s-1-0000", "s-2-0000"}
    assert not any(dispatch.segment.widths for dispatch in at.open.values())
    assert at.engine.state.costs.seconds_at("s-1", "s-1-0000", 1) == pytest.approx(10.0)
    assert at.engine.state.windows_of("s-1").vain == 0, "it was not over"
    assert had(at) == (0, 1), "it may measure again, for half the time"
    check_invariants(at.engine)


@pytest.mark.parametrize(("arrive", "ended"), [(1, 1), (3, 1), (4, 2)])
def test_no_more_windows_end_than_leave_a_device_for_each_trial_and_the_newest_first(arrive, ended):
    at = world(8, n_trials=2)
    assert windows(at) == [(1, 2, 4, 3)] * 2
    at.submit(elastic(id="s-2", name="t", n_trials=arrive, max_width=1))
    cuts = [decision.fence for decision in at.trace if isinstance(decision, Cut)]
    assert cuts == sorted(at.open, reverse=True)[:ended]


def test_where_studies_share_devices_a_window_is_not_opened_to_be_cut_again_and_again():
    """The first study has idle devices by its own share, and the other's trials wait for them."""
    at = world(8, epochs=400)
    at.submit(elastic(id="s-2", name="t", n_trials=12, max_width=1, epochs=400))
    answer(at, seconds=(), meeting=0.0, met=False)
    assert not any(dispatch.segment.widths for dispatch in at.open.values())
    assert len(at.open) == 8
    for _ in range(8):
        run_epoch(at)
    assert len(windows(at)) == 1


def test_a_window_that_is_cut_forgets_nothing_and_may_take_half_the_next_time():
    at = world(2, max_width=8, epochs=400)
    answer(at, seconds=((1, 0.1), (2, 0.05)))
    at.join("d2", "d3")
    run_until_window(at)
    whole = window(at).width_epochs
    at.submit(elastic(id="s-2", name="t", max_width=1, epochs=1))
    answer(at, seconds=((1, 0.1),), meeting=0.0, met=False)
    assert had(at) == (2, 1)
    run_until_window(at)
    assert window(at).width_epochs == pytest.approx(whole / 2, rel=0.05)
    answer(at, seconds=((1, 0.1), (4, 0.03), (3, 0.05)))
    assert had(at) == (4, 1)


@pytest.mark.parametrize("measured", [(1, 2, 5), (5,), (2,), (2, 4)])
def test_widths_that_were_not_asked_for_and_ratios_to_nothing_are_refused(measured):
    at = world(6)
    before = state_to_json(at.engine.state)
    with pytest.raises(Refused, match="measured widths"):
        at.engine.handle(at.widths(window(at), seconds=tuple((width, 0.1) for width in measured)))
    assert state_to_json(at.engine.state) == before


@pytest.mark.parametrize("seconds", [(), ((1, 0.1),), FLAT])
def test_an_attempt_that_is_to_train_cannot_be_ended_by_widths(seconds):
    at = world(1)
    [dispatch] = at.open.values()
    with pytest.raises(Refused, match="not asked for"):
        at.engine.handle(at.widths(dispatch, seconds=seconds))
    assert dispatch.segment.fence in at.engine.state.attempts


def test_a_trial_has_a_second_window_only_for_at_least_twice_as_many_devices():
    at = world(2, max_width=8, epochs=60)
    assert windows(at) == [(1, 2)]
    answer(at)
    run_epoch(at)
    at.join("d2")
    run_epoch(at)
    run_epoch(at)
    assert len(windows(at)) == 1
    at.join("d3")
    run_epoch(at)
    assert windows(at) == [(1, 2), (1, 4, 3)], "what it was measured at is not measured again"
    assert len(window(at).segment.members) == 4
    assert window(at).width_epochs < 60 * 0.1 / 2, "it may take less than the first"


def test_where_no_gain_is_in_sight_a_window_takes_less_but_looks_beyond_one_bad_width():
    at = world(2, max_width=8, epochs=400)
    answer(at, seconds=((1, 0.1), (2, 2.0)))
    run_epoch(at)
    at.join("d2", "d3")
    run_epoch(at)
    run_epoch(at)
    assert windows(at) == [(1, 2), (1, 4, 3)]
    assert window(at).width_epochs == pytest.approx(0.01 * 397)
    answer(at, seconds=((1, 0.1), (4, 0.03), (3, 0.05)))
    [dispatch] = at.open.values()
    assert len(dispatch.segment.members) == 4


@pytest.mark.parametrize(("gains", "opened"), [((), 4), ((4,), 5)])
def test_after_four_windows_in_a_row_without_a_gain_a_study_opens_no_more(gains, opened):
    """The devices double five times. After a gain in the fourth window there is a fifth."""
    at = world(1, epochs=900, max_width=64, shards=64)
    for doubled in range(5):
        at.join(*[f"d{number}" for number in range(2**doubled, 2 ** (doubled + 1))])
        for _ in range(2):
            [dispatch] = at.open.values()
            if not dispatch.segment.widths:
                run_epoch(at, after=10.0 if len(dispatch.segment.members) == 1 else 5.0)
        if any(each.segment.widths for each in at.open.values()):
            scales = len(windows(at)) in gains
            answer(at, seconds=((1, 0.1), (2 ** (doubled + 1), 0.05 if scales else 0.0955)))
    assert [max(widths) for widths in windows(at)] == [2, 4, 8, 16, 32][:opened]
    assert at.engine.state.windows_of("s-1").vain == (1 if gains == (4,) else 4)


def test_an_open_window_outlives_a_restart_with_the_same_decisions():
    at = world(4, n_trials=2)
    again = Engine(state_from_json(state_to_json(at.engine.state)))
    assert state_to_json(again.state) == state_to_json(at.engine.state)
    began = len(at.journal)
    while at.open and len(at.journal) < began + 40:
        before = len(at.journal)
        run_epoch(at) if not at.open[min(at.open)].segment.widths else at.run_segment()
        assert len(at.journal) > before
    decided = [decision for event in at.journal[began:] for decision in again.handle(event)]
    assert decided == at.trace[-len(decided) :]
    assert any(isinstance(d, Dispatch) and len(d.segment.members) > 1 for d in decided)
    assert state_to_json(again.state) == state_to_json(at.engine.state)
