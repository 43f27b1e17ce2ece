"""``SystemTuning``: what it refuses, and what a study's specification has of it."""

from __future__ import annotations

import json

import pytest
from ledgers.study_ledger import study_spec
from penstock import SystemTuning, UsageError
from penstock.app.ledger.codec import spec_to_json
from penstock.app.server.runner import commands
from penstock.app.spec.build import make_plan, make_spec
from penstock.app.spec.plan import StudyPlan
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.events import DeviceJoined
from worlds.desk import command
from worlds.drive_world import World


def objective(trial):
    return trial.suggest_float("x", 0, 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SystemTuning("fast"), "system.mode = 'fast' is refused: allowed is off, reu"),
        (
            lambda: SystemTuning(knobs=["threads"]),
            'allowed is no threads where nothing is tried: SystemTuning("tune")',
        ),
        (lambda: SystemTuning(energy_weight="energy"), "is a weight of energy, 0"),
        (lambda: SystemTuning(energy_weight=1.5), "system.energy_weight = 1.5 is refused"),
        (lambda: SystemTuning(energy_weight=True), "system.energy_weight = True is refused"),
        (
            lambda: SystemTuning("tune", energy_weight=0.3, probing="grid"),
            'system.energy_weight = 0.3 is refused: allowed is 0, because probing="grid"',
        ),
        (
            lambda: SystemTuning(probing="grid"),
            "system.probing = 'grid' is refused: allowed is race with mode=\"reuse\"",
        ),
        (lambda: SystemTuning("off", knobs=["threads"]), 'allowed is None with mode="off"'),
        (lambda: SystemTuning("tune", knobs={"threads": 2}), "knobs = {'threads': 2} is ref"),
        (lambda: SystemTuning(knobs=2), "system.knobs = 2 is refused: allowed is one or a"),
        (
            lambda: SystemTuning("off", energy_weight=1),
            'system.energy_weight = 1 is refused: allowed is 0, because mode="off"',
        ),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_made(make, words):
    with pytest.raises(UsageError) as refusal:
        make()
    assert words in str(refusal.value)
    assert str(refusal.value).startswith(f"{refusal.value.field} = ")


@pytest.mark.parametrize(
    ("system", "words"),
    [
        ("fast", "system = 'fast' is refused: allowed is off, reuse, tune or penstock.Sy"),
        (None, "system = None is refused: allowed is off, reuse, tune or penstock.Sy"),
        (
            SystemTuning("tune", knobs=["autocast"]),
            "system.knobs = ('autocast',) is refused: allowed is no autocast in a bitwise study",
        ),
    ],
)
def test_a_study_refuses_it_by_its_place(system, words):
    with pytest.raises(UsageError) as refusal:
        make_plan(system=system)
    assert words in str(refusal.value)
    assert str(refusal.value).startswith(f"{refusal.value.field} = ")


def test_it_keeps_what_its_checks_made_of_it():
    tuning = SystemTuning("tune", knobs=(name for name in ["threads", "threads"]), energy_weight=1)
    assert (tuning.knobs, repr(tuning.energy_weight)) == (("threads",), "1.0")
    for _ in range(2):
        assert make_plan(metric="loss", system=tuning).system == tuning


def test_a_stored_study_is_read_whatever_is_refused_today():
    plan = make_plan(metric="loss", system=SystemTuning(knobs="loader_workers"))
    made = make_spec(plan, "s-1", "s", objective, None, 9)
    assert (made.system, made.knobs) == ("off", ("loader_workers",))
    system = StudyPlan.of(made).system
    assert (system.mode, system.knobs) == ("off", ("loader_workers",))
    with pytest.raises(UsageError, match=r"system\.knobs"):
        SystemTuning(system.mode, system.knobs)


@pytest.mark.parametrize(
    ("unmetered", "refused"),
    [((), False), (("no zones", ""), False), (("no zones", "only root"), True)],
)
def test_the_scheduler_refuses_least_energy_where_no_device_measures_it(unmetered, refused):
    world = World()
    for n, why in enumerate(unmetered):
        device = Device(f"cpu.a.{n}", "a", "cpu", (n,), None, unmetered=why)
        world.send(DeviceJoined(at=0.0, device=device, incarnation="i"))
    made = study_spec(energy_weight=1.0)
    body = command(1, "submit", study=json.loads(spec_to_json(made)), enqueued=[]).body
    if refused:
        with pytest.raises(UsageError, match=r"\(cpu\.a\.0: no zones; cpu\.a\.1: only root\)"):
            commands.to_event(body, world.engine, 1.0, past=None)
    else:
        assert commands.to_event(body, world.engine, 1.0, past=None).study == made
