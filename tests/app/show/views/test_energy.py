"""Joules in sums and words: a part is never passed off as all, and what lacks has a reason."""

from __future__ import annotations

import socket
import threading

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock import UsageError
from penstock.app.common.versioned_file import to_text
from penstock.app.ledger.codec import decode, encode
from penstock.app.ledger.rows import EpochRow
from penstock.app.server.runner.reports import to_events
from penstock.app.show.views.spending import energy_words, joules_of
from penstock.profiling.counters.energy import Energy
from penstock.profiling.devices.device import Device
from penstock.scheduler.state.state import DeviceRecord
from penstock.tasks.process.energy import Metering
from penstock.tasks.process.pipe import Pipe


def epoch(joules, device="d", seconds=2.0):
    return EpochRow(
        0, "s-0000", 1, 0.0, {}, "h", "s", seconds, device, 0, 1, 0.0, ((device, 0),), joules
    )


def device(name, unmetered):
    made = Device(name, "node", "cpu", (0,), None, unmetered=unmetered)
    return DeviceRecord(made, "i", "joined", 0.0, "")


DEVICES = [device("d", ""), device("bare", "RAPL: it has no zones")]


def test_a_sum_lacks_nothing_or_is_none():
    assert joules_of([epoch(1.5), epoch(2.0)]) == 3.5
    assert joules_of([epoch(1.5), epoch(None)]) is None
    assert joules_of([]) is None


@pytest.mark.parametrize(
    ("epochs", "words"),
    [
        ([epoch(1000.0), epoch(0.5)], "1,000.5 J, shared by use of the device; 4.0 s of device"),
        ([epoch(None, "bare")], "energy not measured (RAPL: it has no zones); 2.0 s of device"),
        (
            [epoch(9.0), epoch(None), epoch(None, "bare")],
            "9.0 J; the energy of 2 epochs was not measured (RAPL: it has no zones; a",
        ),
        ([], "energy not measured; 0.00 s of device"),
        ([epoch(None, "long gone")], "energy not measured; 2.0 s of device"),
    ],
)
def test_words_say_what_was_measured_and_why_the_rest_was_not(epochs, words):
    assert energy_words(epochs, DEVICES).startswith(words)


REPORT = {
    "kind": "epoch",
    "cause": "c",
    "trial": "s-0000",
    "fence": 1,
    "epoch": 1,
    "metrics": {"loss": 0.5},
    "state_hash": "h",
    "signature": "s",
    "seconds": 1.0,
    "closes": True,
}


@pytest.mark.parametrize(
    ("said", "kept"), [({}, None), ({"joules": None}, None), ({"joules": 3}, 3)]
)
def test_a_report_has_joules_or_none_and_so_has_its_event_in_the_ledger(said, kept):
    [event] = to_events(REPORT | said, 5.0)
    assert event.joules == kept
    assert decode(*encode(event)) == event


@pytest.mark.parametrize("joules", [-1.0, "nan", float("inf"), "many"])
def test_a_report_with_impossible_joules_is_dropped(joules):
    with pytest.raises(UsageError, match="malformed report"):
        to_events(REPORT | {"joules": joules}, 5.0)


@pytest.mark.extension("system_tuning")
def test_a_window_has_a_ratio_of_joules_or_none():
    body = {"kind": "windows", "cause": "c", "trial": "s-0000", "fence": 1, "failed": []}
    windows = [[[["threads", 1]], 0.5, 0.1, None], [[["threads", 1]], 0.5, 0.1, 0.8]]
    [event] = to_events(body | {"windows": windows}, 5.0)
    assert [window.joules for window in event.windows] == [None, 0.8]
    with pytest.raises(UsageError, match="malformed report"):
        to_events(body | {"windows": [[[["threads", 1]], 0.5, 0.1, 0.0]]}, 5.0)


@pytest.mark.extension("exports")
def test_an_export_takes_joules_along_and_one_from_before_them_can_be_read(tmp_path):
    from penstock.extensions.exports.archive import Epoch, archive_of, to_event
    from penstock.extensions.exports.tables import epoch_table, trial_table

    archive = archive_of(make_study(tmp_path, study_spec()), "digits-1a2b")
    first = archive.trials[0]
    first.epochs[:] = [each.model_copy(update={"joules": 2.5}) for each in first.epochs]
    brought = to_event(type(archive).model_validate_json(to_text(archive))).trials
    assert {each.joules for each in brought[0].epochs} == {2.5}
    assert {each.joules for each in brought[1].epochs} == {None}
    table = trial_table(archive)
    assert table["energy_j"][:2] == [2.5 * len(first.epochs), None]
    assert epoch_table(archive)["energy_j"][0] == 2.5
    old = first.epochs[0].model_dump()
    del old["joules"]
    assert Epoch(**old).joules is None


class Counter:
    """100 J a reading."""

    name = "counter"

    def read(self, now):
        return 100.0


def test_a_trainer_that_is_told_of_another_has_half_of_a_gpu_from_then_on():
    ours, theirs = socket.socketpair()
    metering = Metering(Energy([Counter()], None))
    pipe = Pipe(theirs, metering)
    reader = threading.Thread(
        target=pipe._take, args=([b'{"op":"share","trials":2}\n'],), daemon=True
    )
    begin = metering.now()
    reader.start()
    reader.join()
    assert metering.since(begin) == 100.0 + 50.0
    ours.close()
    theirs.close()
