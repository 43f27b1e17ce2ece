"""The scheduler reads a device's record on the broker, and refuses what no worker writes."""

import json
from dataclasses import asdict

import pytest
from penstock.app.broker.device_records import parse_device_record
from penstock.app.host.devices import devices_of
from penstock.app.host.settings import load
from penstock.base.errors import UsageError
from penstock.profiling.devices.device import Device
from penstock.wire.messages import Forged

DEVICE = Device("cpu.a.0", "a", "cpu", (0,), 1 << 30, 8, seats=4)


def record(**changes):
    device = asdict(DEVICE) | changes
    return json.dumps({"device": device, "incarnation": "i", "draining": False})


@pytest.mark.extension("lanes")
def test_a_device_with_lanes_is_read_as_it_was_written():
    assert parse_device_record("cpu.a.0", record()).device == DEVICE


def test_a_record_of_an_older_worker_has_one_seat_a_lane():
    older = json.loads(record())
    del older["device"]["seats"]
    assert parse_device_record("cpu.a.0", json.dumps(older)).device.lanes == 8


@pytest.mark.parametrize("seats", [0, -1, 3, 16, 2**70])
def test_slots_that_are_no_whole_number_of_lanes_are_refused(seats):
    with pytest.raises(Forged, match=r"no whole number of lanes|Input should be"):
        parse_device_record("cpu.a.0", record(seats=seats))


@pytest.mark.usefixtures("nothing_there")
def test_without_their_extension_seats_are_refused_by_name_where_they_are_and_at_the_broker(
    tmp_path,
):
    words = (
        r"\*{}x4 in devices needs the extension lanes, .* the folder extensions/lanes is missing"
    )
    with pytest.raises(Forged, match=words.format(2)):
        parse_device_record("cpu.a.0", record())
    with pytest.raises(UsageError, match=words.format(1)):
        devices_of(load(home=tmp_path, devices="cpu:1x1*1x4"))
    assert parse_device_record("cpu.a.0", record(seats=1)).device.lanes == 8
    assert devices_of(load(home=tmp_path, devices="cpu:1x1*4"))[0].slots == 4
