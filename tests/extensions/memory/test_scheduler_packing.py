"""Several trials on one device: tried, kept where it gains, undone where it hurts."""

from __future__ import annotations

import pytest
from penstock.extensions.memory.known import known_trial
from penstock.scheduler.model.events import AttemptFailed
from worlds.timed_world import Timed, study


def test_one_trial_runs_alone_until_its_epochs_are_known_and_a_second_is_tried_then():
    at = Timed({1: 1.0, 2: 1.2})
    at.world.submit(study())
    at.join()
    assert at.at_work() == 1
    at.run(2)  # the first one does not count
    assert at.at_work() == 1
    assert "too few epochs alone" in at.why()
    at.run(1)
    assert at.at_work() == 2
    assert "being found out" in at.why()


def test_what_gains_is_kept():
    at = Timed({1: 1.0, 2: 1.2})
    at.world.submit(study())
    at.join()
    at.run(60)
    assert at.at_work() == 2
    assert "2 at once have 1.6" in at.why()
    at.run()
    assert at.world.finish.status == "complete"


def test_what_hurts_is_undone_and_the_trial_that_leaves_goes_on_later():
    at = Timed({1: 1.0, 2: 2.1})
    at.world.submit(study())
    at.join()
    at.run(30)
    assert at.at_work() == 1
    assert at.most["d0"] == 2
    assert "2 at once have 0.9" in at.why()
    left = [t for t in at.world.engine.state.trials.values() if t.epoch and not t.fence]
    assert len(left) == 1 and left[0].id == at.world.engine.state.ready[0]
    at.run()
    assert at.world.epochs_by_trial() == {f"s-1-{n:04d}": 40 for n in range(6)}


def test_two_gain_and_a_third_does_not():
    at = Timed({1: 1.0, 2: 1.1, 3: 1.7})
    at.world.submit(study(n_trials=9))
    at.join(slots=3)
    at.run(150)
    assert (at.at_work(), at.most["d0"]) == (2, 3)


def test_a_number_is_tried_on_one_device_only():
    at = Timed({1: 1.0, 2: 2.0})
    at.world.submit(study(n_trials=9))
    for name in ("d0", "d1", "d2"):
        at.join(name)
    at.run(400)
    assert sorted(at.most.values()) == [1, 1, 2]


def test_epochs_that_take_no_time_use_every_slot():
    at = Timed(dict.fromkeys(range(1, 5), 0.0))
    at.world.submit(study(n_trials=9))
    at.join(slots=4)
    at.run(20)
    assert at.at_work() == 4


def test_a_device_with_one_slot_never_shares():
    at = Timed({1: 1.0})
    at.world.submit(study())
    at.join(slots=1)
    at.run()
    assert at.most == {"d0": 1}


def test_who_shares_leaves_for_a_device_that_stands_empty():
    at = Timed({1: 1.0, 2: 1.1})
    at.world.submit(study(n_trials=2))
    at.join("d0")
    at.run(20)
    assert at.at_work("d0") == 2
    at.join("d1")
    at.run(4)
    assert (at.at_work("d0"), at.at_work("d1")) == (1, 1)


@pytest.mark.parametrize(
    ("memory", "each", "shared"), [(1000, 400, 2), (1000, 430, 1), (1000, 0, 1), (None, 0, 2)]
)
def test_a_second_trial_needs_its_memory_with_a_reserve(memory, each, shared):
    at = Timed({1: 1.0, 2: 1.1}, memory=each)
    at.world.submit(study())
    at.join(memory=memory)
    at.run(40)
    assert at.most["d0"] == shared


def test_a_trial_that_ran_out_of_memory_beside_others_goes_on_alone():
    at = Timed({1: 1.0, 2: 1.1})
    at.world.submit(study(n_trials=4))
    at.join()
    at.run(20)
    newest = at.world.open[max(at.world.open)]
    name = newest.segment.trial
    fields = {"trial": name, "fence": newest.segment.fence, "kind": "memory"}
    at.world.send(AttemptFailed(at=at.world.at, message="CUDA out of memory", **fields))
    trial = at.world.engine.state.trials[name]
    assert known_trial(at.world.engine.state, trial).alone and not trial.failures
    beside = set()
    while at.world.open:
        at.run(1)
        on = [each.segment.trial for each in at.world.engine.state.attempts_on("d0")]
        if name in on:
            beside |= set(on)
    assert beside == {name}
    assert at.world.epochs_by_trial()[name] == 40
