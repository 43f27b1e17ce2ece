"""Features plug into the engine, are called for studies that need them, and keep what they know."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from penstock.app.ledger.codec import decode, encode, state_from_json, state_to_json
from penstock.base.errors import BackendError, BrokenExtension
from penstock.base.values import value_class
from penstock.scheduler.engine.engine import Engine, Refused
from penstock.scheduler.model.decisions import Ask
from penstock.scheduler.model.events import (
    AttemptFailed,
    DeviceLeft,
    Event,
    PolicyChosen,
    PricesChosen,
    StudyCancelled,
    StudyPaused,
    Tick,
)
from penstock.scheduler.model.retry import LOSS_LIMIT
from penstock.scheduler.model.segment_length import LengthReason
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.state.extensions import Extension, SegmentValues
from penstock.scheduler.state.fused_groups import NO_FUSED_GROUPS, FusedGroups
from penstock.scheduler.state.seats import NO_SEATS, Seats
from worlds.drive_world import World, spec


@value_class(frozen=True, slots=True, kw_only=True)
class Painted(Event):
    """An event of an extension, about an attempt or about nothing that is known."""

    trial: str = ""
    fence: int = 0


def raising(*_):
    raise ZeroDivisionError("oh")


PLAIN = SegmentValues()
SHORT = StrategySpec("full", max_epochs=2)


def watching(heard, **points):
    """An extension that studies named *watched* need, and that notes what it hears."""

    def note(name, answer=None):
        def call(*args):
            heard.append(name)
            return answer

        return call

    return Extension(
        name="watching",
        needed_by=lambda study: study.name == "watched",
        refusal=points.get("refusal", note("refusal", "")),
        on_charged=note("charged"),
        on_accepted=note("accepted"),
        on_over=note("over"),
        until=points.get("until", note("until")),
        handlers=points.get("handlers", {}),
        deadlines=points.get("deadlines"),
    )


@pytest.fixture
def heard():
    return []


def world_with(extension):
    world = World()
    world.engine = Engine(plugs=[lambda seat: extension])
    world.send(PolicyChosen(at=0.0, policy="fifo", fill_at_end=True))
    return world


def test_an_extension_hears_of_the_studies_that_need_it_and_of_no_other(heard):
    world = world_with(watching(heard))
    world.join("cpu.a.0")
    world.submit(spec(SHORT, n_trials=1))
    world.run()
    assert heard == []
    world.submit(spec(SHORT, id="s-2", name="watched", n_trials=1))
    world.run()
    assert heard.count("accepted") == 2
    assert heard[-1] == "over"
    assert {"refusal", "charged", "until"} < set(heard)


def test_an_extension_keeps_a_study_off_a_device_and_says_why(heard):
    world = world_with(watching(heard, refusal=lambda study, device: "it is too old"))
    world.join("cpu.a.0")
    world.submit(spec(SHORT, name="watched"))
    assert not world.open
    assert world.engine.state.studies["s-1"].refused == {"cpu.a.0": "it is too old"}


def test_the_earliest_moment_of_an_extension_travels_with_the_segment(heard):
    world = world_with(watching(heard, until=lambda study: 7.0))
    world.join("cpu.a.0")
    world.submit(spec(SHORT, name="watched"))
    [dispatch] = world.open.values()
    assert dispatch.until == 7.0


def test_an_extension_hears_of_an_event_before_the_core(heard):
    hear = {PricesChosen: lambda event: heard.append(dict(world.engine.state.prices))}
    world = world_with(watching(heard, handlers=hear))
    world.send(PricesChosen(at=0.0, prices=(("cpu", 2.0),)))
    assert (heard, world.engine.state.prices) == ([{}], {"cpu": 2.0})


def test_an_extension_gets_the_tick_that_it_wants(heard):
    extension = watching(
        heard, handlers={Tick: lambda event: heard.append(event.at)}, deadlines=lambda: iter([9.0])
    )
    world = world_with(extension)
    assert world.engine.wake_at() == 9.0
    world.send(Tick(at=9.0))
    assert heard == [9.0]


def test_extensions_hear_of_an_event_in_the_order_in_which_they_were_plugged_in(heard):
    def hearing(name):
        hear = {Tick: lambda event: heard.append(name)}
        return lambda seat: Extension(name=name, needed_by=lambda study: False, handlers=hear)

    Engine(plugs=[hearing("first"), hearing("second")]).handle(Tick(at=1.0))
    assert heard == ["first", "second"]


def test_an_extension_hears_no_event_that_the_core_may_refuse(heard):
    extension = watching(heard, handlers={StudyPaused: heard.append})
    with pytest.raises(ValueError, match="StudyPaused, which the core may refuse"):
        world_with(extension)


def test_prices_are_known_where_no_extension_is():
    engine = Engine()
    engine.handle(PricesChosen(at=0.0, prices=(("cpu", 2.0),)))
    assert engine.state.prices == {"cpu": 2.0}


@pytest.mark.extension("limits")
def test_the_power_that_a_snapshot_of_0_2_has_of_a_study_is_where_the_extension_keeps_it():
    world = World()
    world.submit(spec(SHORT, kwh=1.0))
    world.submit(spec(SHORT, id="s-2", name="other"))
    body = json.loads(state_to_json(world.engine.state))
    del body["ext"]
    for name, power in (("s-1", 12.5), ("s-2", 0.0)):
        body["studies"][name]["power"] = power
    state = state_from_json(json.dumps(body))
    assert state.ext == {"limits": {"watts": {"s-1": 12.5}}}
    for malformed in ("[]", '{"seq": "x"}', '{"studies": [1]}'):
        with pytest.raises(BackendError, match="a snapshot cannot be read"):
            state_from_json(malformed)
    body["studies"]["s-1"]["unheard_of"] = 1
    with pytest.raises(BackendError, match="unheard_of"):
        state_from_json(json.dumps(body))


@pytest.mark.parametrize(("fill_at_end", "times"), [(True, 1), (False, 2)])
def test_slots_are_given_out_once_as_an_event_ends(fill_at_end, times):
    """A device leaves, and its trial fails by that: slots were given out after the one, too."""
    world = World(fill_at_end=fill_at_end)
    world.join("cpu.a.0")
    world.submit(spec(SHORT, n_trials=5))
    for trial in world.engine.state.trials.values():
        trial.losses = LOSS_LIMIT - 1  # the next loss is its last
    filled = count_fills(world.engine)
    world.send(DeviceLeft(at=1.0, device="cpu.a.0", reason="test"))
    assert len(filled) == times


def test_an_epoch_inside_a_segment_gives_out_no_slots():
    world = World()
    world.join("cpu.a.0", "cpu.b.0")
    world.submit(spec(StrategySpec("full", max_epochs=50), n_trials=3))
    world.run_segment()  # what epochs cost is known now
    dispatch = next(each for each in world.open.values() if each.segment.n > 1)
    filled = count_fills(world.engine)
    world.send(world.epoch(dispatch, dispatch.segment.first))
    assert not filled


def count_fills(engine):
    filled, fill = [], engine._dispatcher.fill

    def counted():
        filled.append(engine.state.seq)
        fill()

    engine._dispatcher.fill = engine._core.fill = counted
    return filled


def test_events_of_0_2_are_handled_in_their_order_until_a_policy_is_chosen_anew():
    world = World(fill_at_end=False)
    world.join("cpu.a.0")
    world.submit(spec(SHORT))
    assert not world.engine.state.fill_at_end
    world.send(PolicyChosen(at=1.0, policy="fifo", fill_at_end=True))
    world.send(PolicyChosen(at=2.0, policy="srtf"))  # nobody goes back
    assert world.engine.state.fill_at_end
    world.run()
    again = Engine()
    for event in world.journal:
        again.handle(decode(*encode(event)))
    assert state_to_json(again.state) == state_to_json(world.engine.state)


def test_a_segment_is_sent_with_what_extensions_say_of_it():
    values = SegmentValues((("threads", 1),), one_epoch=True, undivided=True, ext={"watching": 1})
    world = world_with(
        replace(
            watching([]), segment=lambda study, trial, members: values if trial.number else PLAIN
        )
    )
    world.join("cpu.a.0", "cpu.a.1")
    world.submit(spec(SHORT, name="watched", n_trials=2, max_segment=2))
    first, second = world.open.values()
    assert (first.system, first.ext) == ((), {})
    assert (second.system, second.ext) == ((("threads", 1),), {"watching": 1})
    attempts = world.engine.state.attempts.values()
    assert [each.undivided for each in attempts] == [False, True]
    assert [each.length.reason is LengthReason.PROBE for each in attempts] == [False, True]
    other = SegmentValues(ext={"other": 2})
    assert values.beside(other).ext == {"watching": 1, "other": 2}
    assert other.beside(values).one_epoch


def test_a_failure_that_an_extension_excuses_is_not_the_trials_own():
    world = world_with(replace(watching([]), excuses=lambda study, trial, event: True))
    world.join("cpu.a.0")
    world.submit(spec(SHORT, name="watched", n_trials=1))
    for _ in range(9):
        [dispatch] = world.open.values()
        where = {"trial": dispatch.segment.trial, "fence": dispatch.segment.fence}
        world.send(AttemptFailed(at=1.0, kind="exception", message="", traceback="", **where))
    [trial] = world.engine.state.trials.values()
    assert trial.failures == 0


def test_seconds_of_training_are_told_before_what_follows_from_an_epoch(heard):
    told = replace(watching(heard), on_trained=lambda study, trial, seconds: heard.append(seconds))
    world = world_with(told)
    world.join("cpu.a.0")
    world.submit(spec(SHORT, name="watched", n_trials=1))
    [dispatch] = world.open.values()
    heard.clear()
    world.send(world.epoch(dispatch, 1))
    assert heard[:3] == ["charged", 0.5, "accepted"]


def test_questions_of_extensions_are_there_until_they_are_answered():
    ask = Ask(id="1.0", cause=1, study="s-1", n=1, index=0)
    world = world_with(replace(watching([]), questions=lambda: [ask]))
    assert world.engine.questions() == [ask]


def test_an_event_of_an_extension_that_is_not_there_is_refused():
    engine = Engine()
    with pytest.raises(Refused, match="no extension that is there handles Painted"):
        engine.handle(Painted(at=0.0))
    assert engine.state.seq == 0


@pytest.mark.parametrize(
    ("points", "blamed"),
    [
        ({"on_charged": raising}, ["s-2"]),
        ({"segment": raising}, ["s-2"]),
        ({"excuses": raising}, ["s-2"]),
        ({"handlers": {Painted: raising}}, ["s-2"]),
        ({"handlers": {Tick: raising}}, ["s-1", "s-2"]),
        ({"deadlines": raising}, ["s-1", "s-2"]),
    ],
)
def test_only_the_study_is_blamed_for_which_an_extension_broke_if_that_is_known(points, blamed):
    extension = Extension(name="helper", needed_by=lambda study: True, **points)
    world = World()
    world.engine = Engine(plugs=[lambda parts: extension])
    world.send(PolicyChosen(at=0.0, policy="fifo", fill_at_end=True))
    for name in ("s-1", "s-2"):
        world.submit(spec(SHORT, id=name, name=name, n_trials=1))
    with pytest.raises(BrokenExtension, match="helper is broken: ZeroDivisionError: oh") as told:
        world.join("cpu.a.0")
        [segment] = [dispatch.segment for dispatch in world.open.values()]
        where = {"at": 1.0, "trial": segment.trial, "fence": segment.fence}
        world.engine.wake_at()
        world.send(Tick(at=1.0))
        if "handlers" in points:
            world.send(Painted(**where))
        world.send(AttemptFailed(**where, kind="exception", message=""))
    assert list(told.value.studies) == blamed


class BreakingSeats(Seats):
    """Break as slots are given out, once they are told to."""

    broken = False

    def free(self):
        return raising() if self.broken else []


def test_an_extension_that_no_study_needs_yet_is_off_once_it_broke():
    seats = BreakingSeats()
    plug = Extension(name="helper", needed_by=None, seats=seats)
    world = world_with(plug)
    world.submit(spec(SHORT, id="s-1", name="s-1", n_trials=1))
    world.send(StudyPaused(at=0.0, study="s-1", why="broken", lacks=("helper",)))
    seats.broken = True
    world.submit(spec(SHORT, id="s-2", name="s-2", n_trials=1))
    world.join("cpu.a.0")
    assert [each.segment.trial[:3] for each in world.open.values()] == ["s-2"]
    world = world_with(plug)
    with pytest.raises(BrokenExtension, match="helper is broken: ZeroDivisionError: oh") as told:
        world.submit(spec(SHORT, id="s-1", name="s-1", n_trials=1))
    assert list(told.value.studies) == ["s-1"]


def test_an_extension_is_off_as_long_as_a_study_lacks_it_also_where_a_snapshot_is_restored():
    plug = Extension(name="helper", needed_by=None, seats=Seats(), fused_groups=FusedGroups())
    world = world_with(plug)
    world.submit(spec(SHORT, id="s-1", name="s-1", n_trials=1))

    def used():
        text = state_to_json(world.engine.state)
        again = Engine(state_from_json(text), plugs=[lambda parts: plug])
        found = [
            (each.seats, each.fused_groups) for each in (world.engine.extensions, again.extensions)
        ]
        assert found[0] == found[1]
        return found[0]

    assert used() == (plug.seats, plug.fused_groups)
    world.send(StudyPaused(at=0.0, study="s-1", why="broken", lacks=("helper",)))
    assert used() == (NO_SEATS, NO_FUSED_GROUPS)
    world.send(StudyCancelled(at=0.0, study="s-1"))
    assert used() == (plug.seats, plug.fused_groups)
