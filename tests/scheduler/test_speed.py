"""The cost of ordinary events, in steps of the interpreter: clocks depend on the machine."""

from __future__ import annotations

import gc
import sys
from functools import partial

import pytest
from penstock.profiling.costs.table import CostTable
from penstock.scheduler.model.decisions import Dispatch
from penstock.scheduler.model.study import StrategySpec
from worlds.drive_world import World, spec


def steps(handle, event):
    """Byte codes that the handling of one event runs."""
    count = 0

    def trace(frame, kind, _):
        nonlocal count
        frame.f_trace_opcodes = True
        count += kind == "opcode"
        return trace

    before = sys.gettrace()
    gc.disable()  # what other tests left behind may run code when it is collected
    sys.settrace(trace)
    try:
        handle(event)
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def going_on(trials: int, devices: int) -> int:
    """Steps for the third epoch of a trial, which the next segment follows."""
    world = World()
    plan = StrategySpec("full", max_epochs=9)
    world.submit(spec(plan, n_trials=trials, max_segment=1))
    world.join(*(f"cpu.a.{number:02d}" for number in range(devices)))
    dispatch = next(iter(world.open.values()))
    for _ in range(2):
        sent = world.send(world.epoch(dispatch, dispatch.segment.first))
        [dispatch] = [each for each in sent if isinstance(each, Dispatch)]
    return steps(world.engine.handle, world.epoch(dispatch, 3))


def test_an_epoch_that_goes_on_takes_as_many_steps_beside_ten_times_the_trials_and_devices():
    few, many = going_on(8, 4), going_on(80, 40)
    assert few > 500, "nothing was counted"
    assert many <= few + 10


def test_what_is_expected_of_a_trial_that_has_not_run_is_worked_out_once():
    costs, features = CostTable(), (0.5, -0.5, 0.25)
    for number in range(9):
        known = partial(tuple, (number / 9, 0.0, -number / 9))
        costs.observe_epoch("s", f"t{number}", 1.0 + number, 1, known)
    counts = [steps(lambda _: costs.expected("s", "new", 4, features), None) for _ in range(2)]
    assert counts[1] < counts[0] / 4
    assert costs.expected("s", "new", 4, features) == costs.expected("s", "another", 4, features)


@pytest.mark.parametrize("width", [1, 2])
def test_the_table_keeps_the_features_of_a_trials_first_epoch(width):
    costs = CostTable()
    assert costs.own("s", "t") is None
    costs.observe_epoch("s", "t", 4.0, width, lambda: (1.0,))
    costs.observe_epoch("s", "t", 4.0, width, lambda: (2.0,))
    assert costs.own("s", "t").features == (1.0,)
    assert costs.own("s", "t").seconds == 4.0
    assert costs.own("s", "another") is None
