"""The memory of a lane's residents, and the trials that take a seat next to them."""

from __future__ import annotations

import io

import pytest
from penstock.app.show.views.plan import plan_view
from penstock.extensions.memory.fit import RESERVE
from penstock.extensions.memory.known import known_trial
from penstock.extensions.memory.lanes import lane_need
from penstock.scheduler.model.events import AttemptFailed
from penstock.scheduler.outlook.outlook import outlook
from rich.console import Console
from worlds.laned_world import GIB, Laned

pytestmark = pytest.mark.extension("lanes")


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
            at.state,
            at.fused_groups,
            at.state.devices["d0"].device,
            [at.trial(name) for name in "abcde"],
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
        assert known_trial(at.state, at.trial("a")).peaks == {"cuda": 3 * GIB}
        at.study("b")
        at.told("b", 1.0, 1.0)
        assert set(at.places()) == {"a", "b"}
        at.end_epoch("a", 1.0, memory=30 * GIB)
        assert known_trial(at.state, at.trial("a")).peaks == {"cuda": 3 * GIB}

    def test_the_process_beside_the_tensors_counts_once(self):
        at = Laned(memory=100.0)
        at.study("a")
        at.told("a", 1.0, 1.0)
        at.end_epoch("a", 1.0, memory=5 * GIB)
        at.study("b")
        at.told("b", 2.0, 1.0)
        found = lane_need(
            at.state,
            at.fused_groups,
            at.state.devices["d0"].device,
            [at.trial("a"), at.trial("b")],
        )
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

    @pytest.mark.extension("fusion")
    def test_their_steps_do_not_need_memory_at_once(self):
        at = Laned(memory=10.0 / (1.0 - RESERVE))
        at.study("a", n_trials=8, fuse="auto")
        at.told("a", 1.0, 2.0)
        trials = [at.state.trials[f"a-000{n}"] for n in range(2)]
        device = at.state.devices["d0"].device
        at.at += 1.0
        at.end_epoch("a", 1.0, together=0, readers=2, alone=2.0)
        need = lane_need(at.state, at.fused_groups, device, trials)
        assert need is not None
        assert need.ephemeral < 2.5 * GIB, "that of one step"

    @pytest.mark.extension("fusion")
    def test_their_steps_need_memory_at_once_and_a_copy_of_what_they_keep(self):
        at = Laned(memory=10.0 / (1.0 - RESERVE))
        at.study("a", n_trials=8, fuse="auto")
        at.at += 1.0
        at.end_epoch("a", 1.0, company=((2, 0.6), (8, 0.3)))
        assert len(at.state.attempts) == 4, "a seat's part each"
        at.told("a", 1.0, 2.0)
        trials = [at.state.trials[f"a-000{n}"] for n in range(2)]
        need = lane_need(at.state, at.fused_groups, at.state.devices["d0"].device, trials)
        assert need is not None
        assert 2 * GIB < need.persistent < 2.2 * GIB, "the other one as large, with a margin"
        assert need.ephemeral == pytest.approx(3 * need.persistent)


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
    assert f"turns: long/0 none, because {why}, short/0 100%" in shown
    assert "d0 is shared by 2 trials: it has one lane" in shown
