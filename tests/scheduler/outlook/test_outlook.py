"""The scheduler's outlook: what is said of who runs, who waits, and when a slot is free."""

import io
import json
from collections import Counter

import pytest
from penstock.app.show.views.plan import detail_words, plan_rows, plan_view
from penstock.scheduler.model.events import DevicesTakenOut, PolicyChosen, StudyPaused
from penstock.scheduler.model.study import StrategySpec
from penstock.scheduler.outlook.drain_choice import choose_devices
from penstock.scheduler.outlook.outlook import outlook
from penstock.scheduler.strategies.base import UNBOUNDED
from rich.console import Console
from worlds.drive_world import World, spec


@pytest.fixture
def world():
    """Three trials of 9 epochs on one device; the first has reported one, of 0.5 s, at 0.5."""
    world = World()
    world.submit(spec(StrategySpec("full", max_epochs=9), n_trials=3))
    world.join("cpu.a.0")
    world.run_segment()
    return world


def test_a_running_trial_is_expected_to_keep_its_slot_until_its_target(world):
    seen = outlook(world.engine, world.at + 0.2)
    [row] = seen["running"]
    assert (row["study"], row["trial"], row["slots"]) == ("s", 0, ["cpu.a.0/0"])
    assert (row["epoch"], row["target"], row["why"]) == (2, 9, "until its target")
    assert row["epoch_ends"] == pytest.approx(0.3)
    assert row["ends"] == seen["next_free"] == pytest.approx(0.3 + 7 * 0.5)
    assert [(w["trial"], w["why"]) for w in seen["waiting"]] == [
        (1, "place 1 in line for a slot"),
        (2, "place 2 in line for a slot"),
    ]
    assert seen["free"] == []
    assert json.loads(json.dumps(seen)) == seen


@pytest.mark.parametrize("width", [60, 200])
def test_a_trial_without_a_target_is_shown_with_none(width):
    world = World()
    world.submit(spec(StrategySpec("full", max_epochs=None), n_trials=1))
    world.join("cpu.a.0")
    for _ in range(2):  # also once it is known how long an epoch takes
        seen = outlook(world.engine, world.at)
        assert (seen["running"][0]["ends"], seen["next_free"]) == (None, None)
        console = Console(file=io.StringIO(), width=width)
        console.print(plan_view(seen))
        shown = " ".join(console.file.getvalue().split())
        assert str(UNBOUNDED) not in shown
        assert "the next slot is free when an objective returns" in shown
        assert "until its objective returns" in shown
        assert "about" not in shown
        [dispatch] = world.open.values()
        world.at += 0.5
        world.send(world.epoch(dispatch, dispatch.segment.first))
    world.send(StudyPaused(at=world.at, study="s-1"))
    [row] = outlook(world.engine, world.at)["running"]
    assert row["ends"] == row["epoch_ends"] == pytest.approx(0.5)


def test_of_many_trials_that_wait_the_first_ten_of_a_study_are_listed_and_the_rest_counted():
    world = World()
    for name, n_trials in (("s", 93), ("b", 11), ("c", 3)):
        plan = StrategySpec("full", max_epochs=9)
        world.submit(spec(plan, id=f"{name}-1", name=name, n_trials=n_trials))
    world.join("cpu.a.0")
    seen = outlook(world.engine, world.at)
    waiting = Counter(row["study"] for row in seen["waiting"])
    assert waiting == {"s": 93, "b": 11, "c": 2}, "--json has all"
    listed = [row[0] for row in plan_rows(seen) if row[1] == "waits"]
    assert Counter(name.partition("/")[0] for name in listed) == {"s": 10, "b": 10, "c": 2}
    assert [name for name in listed if name.startswith("s/")] == [f"s/{n}" for n in range(10)]
    s, b, c = detail_words(seen)
    assert "83 more trials wait (penstock plan --json has all)" in s
    assert "1 more trial waits" in b
    assert "more" not in c


def test_what_is_cut_ends_with_its_epoch_and_says_why(world):
    world.send(StudyPaused(at=world.at, study="s-1"))
    seen = outlook(world.engine, world.at)
    [row] = seen["running"]
    assert row["why"] == "until this epoch's end: its study is paused"
    assert row["ends"] == row["epoch_ends"] == pytest.approx(0.5)
    assert {w["why"] for w in seen["waiting"]} == {"its study is paused"}
    [row] = seen["studies"]
    of_core = {
        "study": "s",
        "status": "paused",
        "to_propose": 0,
        "paused_trials": 0,
        "weight": 1.0,
        "priority": 0,
        "share": None,
        "ends": None,
        "deadline": None,
        "misses": None,
    }
    assert row.items() >= of_core.items()


def test_who_waits_for_a_device_that_may_be_used_is_told_so(world):
    world.send(DevicesTakenOut(at=world.at, devices=("cpu.a.0",)))
    seen = outlook(world.engine, world.at)
    assert seen["running"][0]["why"] == "until this epoch's end: its device is taken out"
    assert {w["why"] for w in seen["waiting"]} == {"no device may be used now"}


def test_without_a_measured_epoch_nothing_is_foretold():
    world = World()
    world.submit(spec(n_trials=1))
    world.join("cpu.a.0", "cpu.b.0")
    seen = outlook(world.engine, 1.0)
    assert (seen["running"][0]["ends"], seen["next_free"]) == (None, None)
    assert seen["free"] == ["cpu.b.0/0"]


def test_who_waits_stands_in_the_order_in_which_slots_are_given():
    world = World()
    world.join("cpu.a.0")
    world.submit(spec(n_trials=4, max_segment=1))
    world.submit(spec(id="s-2", name="t", n_trials=3, max_segment=1, priority=1))
    world.run_segment()
    line = world.engine.queue()
    assert [name.rpartition("-")[0] for name in line] == ["s-2"] * 2 + ["s-1"] * 4
    seen = outlook(world.engine, world.at)
    assert [(w["study"], w["why"][:7]) for w in seen["waiting"]][:3] == [
        ("t", "place 1"),
        ("t", "place 2"),
        ("s", "place 3"),
    ]
    begun = []
    for _ in range(3):
        [attempt] = world.engine.state.attempts.values()
        begun.append(attempt.study)
        world.run_segment()
    assert begun == ["s-2"] * 3


def test_studies_take_turns_in_line_by_their_weights():
    world = World()
    world.submit(spec(n_trials=3))
    world.submit(spec(id="s-2", name="t", n_trials=8, weight=2.0))
    world.join("cpu.a.0", "cpu.b.0")
    line = [name.rpartition("-")[0] for name in world.engine.queue()]
    assert line[:6] == ["s-2", "s-1", "s-2", "s-2", "s-1", "s-2"]


def test_another_policy_has_planned_nothing_yet(world):
    assert outlook(world.engine, world.at)["planned"] is not None
    world.send(PolicyChosen(at=world.at, policy="longest_first"))
    assert outlook(world.engine, world.at)["planned"] is None


def test_who_only_looks_changes_nothing_of_the_state(world):
    """A study's expected costs are worked out when they are asked for; a replay does not ask."""
    world.run_segment()
    before = repr(world.engine.state)
    outlook(world.engine, world.at)
    choose_devices(world.engine, 1, at=world.at, within=0.1)
    assert repr(world.engine.state) == before
