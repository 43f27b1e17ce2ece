"""Limits of a study as users give them and at the scheduler's door."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from penstock import Limits, UsageError
from penstock.app.ledger.codec import spec_to_json
from penstock.app.server.runner import commands
from penstock.app.spec.build import make_plan
from penstock.app.spec.options import parse_limits
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.events import DeviceJoined, PricesChosen
from penstock.scheduler.model.study import POINT_IN_TIME, StrategySpec
from worlds.desk import command
from worlds.drive_world import World, spec

REFUSED = [
    ({"device_hours": 0}, "limits.device_hours = 0 is refused: allowed is device-hours above 0"),
    ({"device_hours": -1.0}, "limits.device_hours = -1.0"),
    ({"device_hours": math.inf}, "limits.device_hours = inf"),
    ({"device_hours": "2h"}, "limits.device_hours = '2h'"),
    ({"device_hours": True}, "limits.device_hours = True"),
    ({"kwh": 0}, "limits.kwh = 0 is refused: allowed is kilowatt-hours above 0, or None"),
    ({"money": math.nan}, "limits.money = nan is refused: allowed is money above 0, or None"),
    ({"deadline": 0}, "limits.deadline = 0 is refused: allowed is seconds above 0"),
    ({"deadline": math.inf}, "limits.deadline = inf"),
    ({"deadline": "soon"}, "limits.deadline = 'soon'"),
    ({"deadline": datetime(2030, 1, 31)}, "with its time zone"),  # noqa: DTZ001 - is refused
    ({"deadline": "2030-01-31T18:00:00"}, "limits.deadline = '2030-01-31T18:00:00' is refused"),
    ({"deadline": datetime(1990, 1, 1, tzinfo=UTC)}, "limits.deadline = '1990-01-01"),
    ({"at_limit": "explode"}, "limits.at_limit = 'explode' is refused: allowed is stop, pause, f"),
    ({"devicehours": 1}, "Limits() takes no devicehours: did you mean device_hours?"),
]


@pytest.mark.parametrize(("given", "words"), REFUSED)
def test_a_limit_that_cannot_be_is_refused_where_it_is_made(given, words):
    with pytest.raises(UsageError) as refusal:
        Limits(**given)
    assert words in str(refusal.value)


def test_a_point_in_time_is_kept_as_seconds_whatever_its_time_zone():
    moment = datetime(2030, 1, 31, 18, tzinfo=timezone(timedelta(hours=1)))
    ways = (moment, moment.astimezone(UTC), moment.isoformat(), moment.timestamp())
    kept = {Limits(deadline=each).deadline for each in ways}
    assert kept == {moment.timestamp()}
    assert moment.timestamp() >= POINT_IN_TIME
    assert Limits(deadline=3600).deadline == 3600.0
    again = make_plan(metric="loss", limits=Limits(deadline=moment)).limits
    assert again == replace(again), "what was checked passes the checks"


def test_limits_may_be_given_on_the_command_line():
    assert parse_limits("device_hours=2, at_limit=pause") == Limits(
        device_hours=2.0, at_limit="pause"
    )
    assert parse_limits("deadline=2030-01-31T18:00:00+01:00,retries=2").retries == 2
    for text in ("", "2", "device_hours=2,device_hours=3", "device_hours=", "hours=2", "retries=x"):
        with pytest.raises(UsageError):
            parse_limits(text)


# -- at the scheduler's door ----------------------------------------------------------------------


def submitted(world, at=2e9, **limits):
    study = spec(StrategySpec("full", max_epochs=3), **limits)
    body = command(1, "submit", study=json.loads(spec_to_json(study)), enqueued=[]).body
    return commands.to_event(body, world.engine, at, {}.__getitem__)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"device_hours": -1.0}, "limits.device_hours = -1.0"),
        ({"deadline": 0.0}, "limits.deadline = 0.0"),
        ({"at_limit": "explode"}, "limits.at_limit = 'explode'"),
        ({"deadline": 1.9e9}, "limits.deadline = '2030-03-17T17:46:40+00:00' is refused: allowed"),
        (
            {"money": 1.0},
            "limits.money = 1.0 is refused: allowed is None, because no device has a p",
        ),
        ({"kwh": 1.0}, "limits.kwh = 1.0 is refused: allowed is None, as no device can work for"),
    ],
)
def test_the_scheduler_refuses_a_study_whose_limits_cannot_hold(limits, words):
    world = World()
    world.join("cpu.a.0")
    with pytest.raises(UsageError) as refusal:
        submitted(world, **limits)
    assert words in str(refusal.value)


def test_the_scheduler_refuses_money_where_the_devices_there_are_have_no_price():
    world = World()
    world.join("cpu.a.0")
    world.send(PricesChosen(at=0.0, prices=(("cuda", 2.5),)))
    with pytest.raises(UsageError, match=r"limits.money = 1.0 .*kind cpu have no price"):
        submitted(world, money=1.0)
    gpu = Device("cuda.a.0", "a", "cuda", (0,), None)
    world.send(DeviceJoined(at=0.0, device=gpu, incarnation="i1"))
    assert submitted(world, money=1.0).study.money == 1.0


def test_what_no_device_can_account_for_is_said_once_for_those_alike():
    world = World()
    for name in ("cpu.a.1", "cpu.a.0"):
        world.join(name)
    with pytest.raises(UsageError, match=r"for it \(cpu\.a\.0, cpu\.a\.1: [^:]* energy\)$"):
        submitted(world, kwh=1.0)
