"""Limits of a study: what counts against them, and what happens when one is reached."""

from __future__ import annotations

import pytest
from penstock.app.extensions import PLUGS
from penstock.app.ledger.codec import decode, encode, state_to_json
from penstock.extensions.limits.limits import limits_of
from penstock.extensions.limits.times import MARGIN
from penstock.profiling.devices.device import Device
from penstock.scheduler.engine.engine import Engine
from penstock.scheduler.model.decisions import Ask, Cut, Dispatch
from penstock.scheduler.model.events import (
    AttemptLost,
    DeviceJoined,
    EpochReported,
    PricesChosen,
    StudyCancelled,
    StudyExtended,
    StudyPaused,
    StudyResumed,
    Tick,
)
from penstock.scheduler.model.finished import FinishedStudy, PastTrial
from penstock.scheduler.model.segment_length import LengthReason
from penstock.scheduler.model.study import (
    HOUR,
    KWH,
    POINT_IN_TIME,
    Spent,
    StrategySpec,
    deadline_of,
)
from penstock.scheduler.model.trial import TrialState
from worlds.drive_world import World, check_invariants, spec

LONG = StrategySpec("full", max_epochs=40)
ENDED = (TrialState.STOPPED, TrialState.CANCELLED)


class Limited(World):
    """A world whose segments end where they are cut, an epoch each half a second."""

    #: True if the scheduler's messages reach a running segment.
    hears = True

    def __init__(self, *devices: str, slots: int = 1, **fields) -> None:
        super().__init__()
        self.join(*devices or ("cpu.a.0",), slots=slots)
        self.submit(spec(fields.pop("strategy", LONG), **fields))

    @property
    def state(self):
        return self.engine.state

    @property
    def study(self):
        return self.state.studies["s-1"]

    def one(self, fence: int | None = None, **changes) -> None:
        """The next epoch of the oldest open segment, or of the one named."""
        fence = min(self.open) if fence is None else fence
        dispatch, attempt = self.open[fence], self.state.attempts[fence]
        epoch = self.state.trials[dispatch.segment.trial].epoch + 1
        self.at += 0.5
        closes = (self.hears and attempt.cut) or epoch == dispatch.segment.last
        closes = closes or (dispatch.until is not None and self.at >= dispatch.until)
        self.send(self.epoch(dispatch, epoch, closes=closes, **changes))
        check_invariants(self.engine)

    def round(self) -> None:
        """An epoch of each trial that is at work."""
        for fence in sorted(self.open):
            if fence in self.open:
                self.one(fence)

    def rounds(self, most: int = 100) -> None:
        """Until the study is over or nothing of it runs."""
        while self.open and most:
            self.round()
            most -= 1
        assert not self.open

    def states(self):
        return [self.engine.state.trials[name].state for name in self.study.trials]


def epochs_after(world, at):
    """Epochs by trial that were accepted after ``at``."""
    late = [e.trial for e in world.journal if isinstance(e, EpochReported) and e.at > at]
    return {trial: late.count(trial) for trial in late}


# -- what is counted ------------------------------------------------------------------------------


def test_device_time_is_the_time_for_which_trials_hold_devices():
    world = Limited()
    world.at += 1.0
    world.one()  # a second of start-up, and its epoch
    assert world.study.spent.device_seconds == pytest.approx(1.5)
    fence = min(world.open)
    world.at += 0.25
    lost = AttemptLost(at=world.at, trial="s-1-0000", fence=fence, reason="test")
    world.send(lost)
    assert world.study.spent.device_seconds == pytest.approx(1.75), "lost work counts"


def test_trials_that_share_a_device_have_equal_parts_of_it():
    world = Limited("cpu.a.0", slots=2)
    world.one()
    while len(world.state.attempts) < 2:
        world.one()
    begun, at = world.study.spent.device_seconds, world.at
    for _ in range(4):
        world.round()
    assert world.study.spent.device_seconds - begun == pytest.approx(world.at - at, rel=0.2)


def test_a_gang_holds_all_its_devices():
    world = Limited("cpu.a.0", "cpu.a.1", max_width=2, shards=8, n_trials=1, max_segment=1)
    for _ in range(2):
        world.at += 9.5
        world.send(Tick(at=world.at))
        world.one(seconds=5.0)
    [attempt] = world.state.attempts.values()
    assert len(attempt.segment.members) == 2
    before = world.study.spent.device_seconds
    world.at += 2.5
    world.one(seconds=2.5)
    assert world.study.spent.device_seconds - before == pytest.approx(2 * 3.0)


def test_money_is_device_time_by_the_price_of_its_kind_at_the_time():
    world = Limited()
    world.one()
    assert world.study.spent.money == 0.0
    world.send(PricesChosen(at=world.at, prices=(("cpu", 7.2),)))
    world.one()
    assert world.study.spent.money == pytest.approx(7.2 * 0.5 / HOUR)
    world.send(PricesChosen(at=world.at, prices=(("cpu", 3.6), ("cuda", 9.0))))
    world.one()
    assert world.study.spent.money == pytest.approx((7.2 + 3.6) * 0.5 / HOUR)


def test_joules_are_those_that_epochs_report():
    world = Limited()
    world.one(joules=3.0)
    world.one()
    world.one(joules=1.5)
    assert world.study.spent.joules == 4.5


def test_readers_have_what_was_spent_when_a_study_is_over_and_while_one_has_limits():
    world = Limited(device_hours=1.0)
    world.engine.take_changes()
    world.one()
    [record] = world.engine.take_changes().studies.values()
    assert record.spent == world.study.spent != Spent()
    free = Limited()
    free.engine.take_changes()
    free.one()
    assert not free.engine.take_changes().studies, "a row more for each epoch, for nobody"
    free.send(StudyCancelled(at=free.at, study="s-1"))
    [record] = free.engine.take_changes().studies.values()
    assert record.spent.device_seconds == pytest.approx(0.5)


def test_a_deadline_is_seconds_from_submission_or_a_point_in_time():
    assert deadline_of(spec(), 5.0) is None
    assert deadline_of(spec(deadline=60.0), 5.0) == 65.0
    point = POINT_IN_TIME + 8.0
    assert deadline_of(spec(deadline=point), 5.0) == point
    [limit] = limits_of(spec(deadline=point), Spent(), point - 10.0, point - 4.0)
    assert limit == ("deadline", 6.0, 10.0)
    assert not limit.is_reached


# -- what happens at a limit ----------------------------------------------------------------------

#: Each limit, with what is told to the study so that it is reached after some epochs.
LIMITS = {
    "device_hours": {"device_hours": 5.0 / HOUR},
    "money": {"money": 5.0 / HOUR},
    "kwh": {"kwh": 10.0 / KWH},
}


def metered(name: str) -> Device:
    return Device(name, "a", "cpu", (0,), None, unmetered="")


def with_limit(n_devices: int = 1, **fields) -> Limited:
    world = Limited.__new__(Limited)
    World.__init__(world)
    world.send(PricesChosen(at=0.0, prices=(("cpu", 1.0),)))
    for number in range(n_devices):
        joined = DeviceJoined(at=0.0, device=metered(f"cpu.a.{number}"), incarnation="i1")
        world.send(joined)
    world.submit(spec(fields.pop("strategy", LONG), **fields))
    return world


def to_limit(world: Limited) -> float:
    """Until a limit is reached; returns when."""
    for _ in range(200):
        for fence in sorted(world.open):
            if fence in world.open:
                world.one(fence, joules=1.0)
            study = world.state.studies.get("s-1")
            if study is None or study.spent.reached:
                return world.at
    raise AssertionError("no limit was reached")


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("n_devices", [1, 3])
def test_at_a_limit_what_runs_ends_its_epoch_and_the_study_is_over(limit, n_devices):
    world = with_limit(n_devices, **LIMITS[limit])
    at = to_limit(world)
    running = {a.segment.trial for a in world.state.attempts.values()}
    cut = {each.fence for each in world.trace if isinstance(each, Cut)}
    longer = {
        fence
        for fence, each in world.state.attempts.items()
        if each.segment.last > world.state.trials[each.segment.trial].epoch + 1
    }
    assert longer <= cut
    world.rounds()
    late = epochs_after(world, at)
    assert all(n == 1 for n in late.values())
    assert set(late) == running
    assert world.finish.status == "complete"
    changes = world.engine.take_changes()
    record, trials = changes.studies["s-1"], changes.trials
    assert record.spent.reached == (limit,)
    assert record.message.startswith("it has reached its limit: ")
    assert {t.state for t in trials.values()} == set(ENDED)
    assert all((t.state is TrialState.STOPPED) == (t.epoch > 0) for t in trials.values())


def test_a_deadline_is_reached_by_time_alone():
    world = Limited(deadline=2.0)
    world.one()
    assert world.engine.wake_at() == 2.0
    world.at = 2.0
    world.send(Tick(at=world.at))
    assert world.study.ending
    assert world.engine.wake_at() is None or world.engine.wake_at() > world.at
    world.one()
    assert world.finish.status == "complete"


def test_a_deadline_before_the_first_epoch_cancels_the_study():
    world = Limited.__new__(Limited)
    World.__init__(world)
    world.submit(spec(LONG, deadline=2.0))
    world.at = 2.5
    world.send(Tick(at=world.at))
    assert world.finish.status == "cancelled"
    record = world.engine.take_changes().studies["s-1"]
    assert record.message == "it has reached its limit: its deadline"


def test_a_study_that_ends_asks_its_sampler_for_nothing_more():
    short = StrategySpec("full", max_epochs=1)
    world = with_limit(2, sampler="tpe", n_trials=50, strategy=short, device_hours=5.0 / HOUR)
    to_limit(world)
    asked = sum(isinstance(each, Ask) for each in world.trace)
    world.rounds()
    assert sum(isinstance(each, Ask) for each in world.trace) == asked < 50
    assert not world.state.studies


def test_with_pause_the_study_waits_for_its_user_and_then_goes_on_beyond_that_limit():
    world = with_limit(2, at_limit="pause", device_hours=5.0 / HOUR, deadline=60.0)
    to_limit(world)
    assert world.study.status == "paused"
    world.rounds()
    assert world.study.status == "paused"
    assert not world.state.attempts
    epochs = sum(t.epoch for t in world.state.trials.values())
    world.send(StudyResumed(at=world.at, study="s-1"))
    world.round()
    assert sum(t.epoch for t in world.state.trials.values()) == epochs + 2
    assert world.study.status == "running", "a limit acts once"
    world.at = 61.0
    world.send(Tick(at=world.at))
    assert world.study.status == "paused", "its other limits hold"
    assert world.study.spent.reached == ("device_hours", "deadline")


def test_a_paused_study_reaches_its_deadline_all_the_same():
    world = with_limit(1, deadline=3.0)
    world.one()
    world.send(StudyPaused(at=world.at, study="s-1"))
    world.rounds()
    world.at = 3.0
    world.send(Tick(at=world.at))
    assert world.finish.status == "complete"


def test_with_finish_best_only_the_best_trial_goes_on_to_its_target():
    # Trial 2 is the best of three that run; its score is its number.
    world = with_limit(3, at_limit="finish_best", device_hours=5.0 / HOUR)
    at = to_limit(world)
    assert world.study.finishes == "s-1-0002"
    world.rounds()
    late = epochs_after(world, at)
    assert all(n <= 1 for trial, n in late.items() if trial != "s-1-0002")
    trials = world.engine.take_changes().trials
    assert trials["s-1-0002"].epoch == LONG.max_epochs
    assert trials["s-1-0002"].state is TrialState.COMPLETED
    assert {t.state for name, t in trials.items() if name != "s-1-0002"} <= set(ENDED)
    assert world.finish.status == "complete"


def test_with_finish_best_nothing_goes_on_where_the_best_has_reached_its_target():
    plan = StrategySpec("full", max_epochs=4)
    world = with_limit(
        1, strategy=plan, at_limit="finish_best", device_hours=3.0 / HOUR, direction="minimize"
    )
    to_limit(world)  # trial 0, the best, is complete; trial 1 is at work
    world.rounds()
    trials = world.engine.take_changes().trials
    assert trials["s-1-0000"].state is TrialState.COMPLETED
    assert trials["s-1-0001"].state is TrialState.STOPPED
    assert world.finish.status == "complete"


@pytest.mark.parametrize(
    "plan",
    [
        StrategySpec("asha", max_epochs=9),
        StrategySpec("halving", max_epochs=4, eta=2),
        StrategySpec("hyperband", max_epochs=9),
        StrategySpec("pbt", max_epochs=8, min_epochs=2, quantile=0.5),
        StrategySpec("median", max_epochs=9),
    ],
    ids=lambda plan: plan.name,
)
@pytest.mark.parametrize("at_limit", ["stop", "finish_best"])
@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_every_strategy_comes_to_its_end_at_a_limit(plan, at_limit, sampler):
    for seconds in (0.5, 2.0, 3.5, 6.0):
        world = with_limit(
            3, strategy=plan, at_limit=at_limit, sampler=sampler, device_hours=seconds / HOUR
        )
        at = to_limit(world)
        best = "" if "s-1" not in world.state.studies else world.study.finishes
        world.rounds()
        assert all(n <= 1 for trial, n in epochs_after(world, at).items() if trial != best)
        assert not world.state.studies
        assert world.finish is not None


def test_a_study_that_is_extended_goes_on_beyond_the_limit_that_ended_it():
    world = with_limit(1, n_trials=2, device_hours=2.0 / HOUR)
    to_limit(world)
    changes = world.engine.take_changes()
    record = changes.studies["s-1"]
    past = FinishedStudy(0.0, tuple(map(PastTrial.of, changes.trials.values())), record.spent)
    more = spec(LONG, n_trials=3, device_hours=2.0 / HOUR)
    world.send(StudyExtended(at=world.at, study=more, past=past))
    assert world.study.spent == record.spent
    for _ in range(10):
        world.one()
    assert not world.study.ending


# -- what a segment carries -----------------------------------------------------------------------


def sent(world) -> Dispatch:
    """The newest segment."""
    return world.open[max(world.open)]


def test_a_segment_carries_when_its_study_could_reach_a_limit_at_the_earliest():
    assert sent(Limited()).until is None
    assert sent(Limited(deadline=60.0)).until == 60.0 - MARGIN
    # Three devices at once, though one segment was sent only.
    world = with_limit(3, n_trials=1, device_hours=90.0 / HOUR)
    assert sent(world).until == pytest.approx(90.0 / 3 - MARGIN)
    world.at += 9.5
    world.one()
    assert sent(world).until == pytest.approx(10.0 + (90.0 - 10.0) / 3 - MARGIN)
    world = with_limit(3, n_trials=1, money=90.0 / HOUR, deadline=20.0)
    assert sent(world).until == 20.0 - MARGIN, "whatever comes first"


def test_time_that_open_segments_have_had_is_not_left_for_others():
    world = with_limit(2, n_trials=2, device_hours=60.0 / HOUR)
    world.at = 10.0
    first, second = sorted(world.open)
    lost = AttemptLost(at=world.at, trial="s-1-0001", fence=second, reason="test")
    world.send(lost)
    assert first in world.open
    assert sent(world).until == pytest.approx(10.0 + (60.0 - 20.0) / 2 - MARGIN)


def test_energy_lasts_as_long_as_all_devices_draw_the_most_that_one_has():
    world = with_limit(2, n_trials=2, kwh=1000.0 / KWH)
    assert {d.until for d in world.open.values()} == {-MARGIN}, "it is not known what they draw"
    first, second = sorted(world.open)
    world.one(first, joules=20.0)  # 40 W
    # The other trial's epoch has taken half a second as well.
    assert sent(world).until == pytest.approx(0.5 + (1000 - 20 - 20) / 80 - MARGIN)
    world.one(second, joules=5.0)
    assert world.engine.state.ext["limits"]["watts"] == {world.study.spec.id: 40.0}
    free = Limited()
    free.one(joules=20.0)
    assert not free.engine.state.ext, "nobody asks"


def test_near_a_limit_segments_are_shorter_and_then_have_one_epoch():
    world = Limited(deadline=20.0, n_trials=1)
    world.at = 10.0
    lengths = {}
    while world.open:
        found = world.state.attempts[sent(world).segment.fence].length
        lengths[world.at] = found.epochs, found.reason
        world.one()
        while world.open and not world.journal[-1].closes:
            world.one()
    at = {at: found for at, found in lengths.items() if at >= 20.0 - MARGIN}
    assert set(at.values()) == {(1, LengthReason.LIMIT)}
    before = [found for at, (found, _) in lengths.items() if 10.5 < at < 20.0 - MARGIN]
    assert max(before) > 1
    assert all(at + 0.5 * n <= 20.0 - MARGIN for at, (n, _) in lengths.items() if n > 1)


def test_what_goes_on_beyond_a_limit_is_not_held_up_by_it():
    world = with_limit(2, at_limit="pause", device_hours=5.0 / HOUR, deadline=600.0)
    to_limit(world)
    world.rounds()
    world.send(StudyResumed(at=world.at, study="s-1"))
    assert sent(world).until == 600.0 - MARGIN, "its other limit is still to come"
    world = with_limit(2, at_limit="finish_best", device_hours=5.0 / HOUR, deadline=600.0)
    to_limit(world)
    while sent(world).until is not None:
        world.round()
    assert sent(world).segment.trial == world.study.finishes


@pytest.mark.parametrize("limit", [*LIMITS, "deadline"])
@pytest.mark.parametrize("at_limit", ["stop", "pause", "finish_best"])
@pytest.mark.parametrize("n_devices", [1, 3])
def test_a_limit_holds_though_no_word_of_it_reaches_what_runs(limit, at_limit, n_devices):
    # Epochs of half a second: a segment has up to four.
    for more in range(4):
        given = {**LIMITS, "deadline": {"deadline": 6.0}}[limit]
        most = {name: value * (1 + 0.7 * more) for name, value in given.items()}
        world = with_limit(n_devices, at_limit=at_limit, **most)
        world.hears = False
        at = to_limit(world) if limit != "deadline" else most["deadline"]
        while world.at < at:
            world.round()
        study = world.state.studies.get("s-1")
        best = study.finishes if study else ""
        world.rounds()
        late = epochs_after(world, at)
        assert all(n <= 1 for trial, n in late.items() if trial != best), (more, late)


# -- where a limit could not hold -----------------------------------------------------------------


def test_a_limit_of_money_keeps_a_study_off_devices_without_a_price():
    world = World()
    world.join("cpu.a.0")
    world.submit(spec(LONG, money=1.0))
    assert not world.open
    [why] = world.engine.state.studies["s-1"].refused.values()
    assert "no price" in why
    world.send(PricesChosen(at=1.0, prices=(("cpu", 1.0),)))
    assert world.open


def test_a_limit_of_energy_keeps_a_study_off_devices_without_a_meter():
    world = World()
    world.join("cpu.a.0")  # nobody has looked for meters
    world.submit(spec(LONG, kwh=1.0))
    assert not world.open
    world.send(DeviceJoined(at=1.0, device=metered("cpu.a.1"), incarnation="i1"))
    assert {m.device for d in world.open.values() for m in d.segment.members} == {"cpu.a.1"}


def test_a_replay_comes_to_the_same_money_and_the_same_end():
    world = with_limit(3, at_limit="finish_best", money=5.0 / HOUR, deadline=30.0)
    to_limit(world)
    world.round()
    engine = Engine(plugs=PLUGS)
    for event in world.journal:
        engine.handle(decode(*encode(event)))
    assert state_to_json(engine.state) == state_to_json(world.state)
    world.rounds()
    assert world.finish.status == "complete"
