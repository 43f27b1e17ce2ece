"""Which trainer process a slot has for whom, and until when. Real processes, without work."""

from __future__ import annotations

import pytest
from penstock.app.trainers import LINGER, STUDIES_KEPT, Slot
from penstock.profiling.devices import Device
from penstock.tasks.messages import CodeRef, SegmentTask


@pytest.fixture
def slot(tmp_path):
    slot = Slot(Device("cpu.n.0", "n", "cpu", (), None, 1), 0, tmp_path, "127.0.0.1")
    yield slot
    for trainer in slot.trainers():
        trainer.close()


def task(study, contract="objective"):
    return SegmentTask(
        id="1", study=study, trial=f"{study}-0000", number=0, contract=contract,
        code=CodeRef(target="m:f", path="", digest=""), params={}, metric="loss", seed=0,
        first=1, n=1, fence=1, queues=("cpu.n.0.s0",), lease_ms=1000,
    )  # fmt: skip


def test_torch_trials_share_one_trainer_and_objectives_one_a_study(slot):
    shared = slot.warm()
    assert slot.trainer_for(task("a", "torch")) is slot.trainer_for(task("b", "torch")) is shared
    first = slot.trainer_for(task("a"))
    assert first is slot.trainer_for(task("a"))
    assert len({first, shared, slot.trainer_for(task("b"))}) == 3
    first.kill()
    assert slot.trainer_for(task("a")) is not first
    first.close()


def test_the_study_that_was_used_least_recently_makes_room(slot):
    slot.warm()
    names = [f"s{n}" for n in range(STUDIES_KEPT)]
    known = {name: slot.trainer_for(task(name)) for name in names}
    slot.trainer_for(task("s0"))
    assert slot.unneeded() == []
    slot.trainer_for(task("another"))
    (closed,) = slot.unneeded()
    assert closed is known["s1"]
    closed.close()


def test_a_trainer_of_which_no_trial_is_known_lingers_and_is_closed(slot):
    slot.warm().idle_since -= LINGER
    trainer = slot.trainer_for(task("a"))
    trainer.causes["a-0000"] = "1"
    trainer.idle_since -= LINGER
    assert slot.unneeded() == [], "a trial may come back to it"
    slot.release("a-0000")
    trainer.idle_since += LINGER
    assert slot.unneeded() == [], "the next trial may be on its way"
    trainer.idle_since -= LINGER
    assert slot.unneeded() == [trainer]
    trainer.close()
