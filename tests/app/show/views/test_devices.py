"""The list of devices, for people and for scripts, and how an operator waits for free ones."""

import io
import time
from dataclasses import replace

import pytest
from ledgers.study_ledger import START, make_study, study_spec
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.writes import Batch
from penstock.app.show.views import devices
from penstock.app.show.views.devices import device_facts, device_table, wait_free
from penstock.base.errors import BackendError, UsageError
from penstock.profiling.devices.device import Device
from penstock.scheduler.state.state import DeviceRecord
from rich.console import Console

A = DeviceRecord(
    Device("cpu.a.0", "a", "cpu", (0, 1), 3 << 30, 2, model="M1"), "i", "joined", time.time()
)
B = replace(A, device=replace(A.device, name="cpu.b.0", node="b"))


class Site:
    """A ledger that a test writes and a reader of it."""

    def __init__(self, folder):
        self.ledger = SqlLedger.open(f"sqlite:///{folder / 'ledger.db'}")
        self.reader = Reader(f"sqlite:///{folder / 'ledger.db'}")

    def put(self, record, state="joined", reason=""):
        self.ledger.commit(Batch(devices=[replace(record, state=state, reason=reason)]))


@pytest.fixture
def site(tmp_path):
    site = Site(tmp_path)
    yield site
    site.ledger.close()


def text_of(facts, width=140):
    console = Console(file=io.StringIO(), width=width)
    console.print(device_table(facts))
    return console.file.getvalue()


def test_what_runs_is_shown_with_its_epoch_and_since_when(tmp_path):
    reader = make_study(tmp_path, study_spec(), turns=4)
    facts = device_facts(reader, served=True)
    assert [device["name"] for device in facts] == ["cpu.node.0", "cpu.node.1"]
    trials = {trial.number: trial for trial in reader.trials("digits-1a2b")}
    shown = text_of(facts)
    for device in facts:
        assert device["state"] == "joined"
        [work] = device["running"]
        trial = trials[work["trial"]]
        assert (work["study"], work["epoch"]) == ("digits", trial.epoch + 1)
        assert START <= work["since"] < START + 60
        assert trial.device == device["name"]
        assert f"digits/{trial.number} epoch {trial.epoch + 1}" in shown


def test_a_device_is_shown_with_what_it_has_and_those_that_are_gone_come_last(site):
    site.put(A, "left", "a stopped answering")
    site.put(B, "resting", "3 losses in a row")
    head, first, second = text_of(device_facts(site.reader, served=True)).splitlines()
    titles = ["device", "node", "kind", "model", "cores", "memory", "slots", "state", "runs"]
    assert head.split() == titles
    assert first.split()[:8] == ["cpu.b.0", "b", "cpu", "M1", "2", "3.0", "GiB", "2"]
    assert "resting" in first
    assert "(3 losses in a row)" in first
    assert second.startswith("cpu.a.0")
    assert "(a stopped answering)" in second


def test_a_device_with_lanes_says_how_many_seats_each_has(site):
    site.put(replace(A, device=replace(A.device, slots=8, seats=4)))
    _, line = text_of(device_facts(site.reader, served=True)).splitlines()
    assert line.split()[7:10] == ["2", "x", "4"]
    [facts] = device_facts(site.reader, served=True)
    work = {"study": "digits", "trial": 17, "epoch": 12, "since": None}
    facts["running"] = [{"slot": slot, **work} for slot in (1, 4)]
    shown = text_of([facts])
    assert "/1 in lane 0: digits/17 epoch 12" in shown
    assert "/4 in lane 1: digits/17 epoch 12" in shown


MODEL = "Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz"


def test_at_eighty_columns_each_device_is_one_line(site):
    """As a CPU is really called, and with the reasons that Penstock gives."""
    for name, state, reason in (
        ("cpu.node-7.0", "joined", ""),
        ("cpu.node-7.1", "resting", "3 losses in a row"),
        ("cpu.node-7.2", "left", "cpu.node-7.2 stopped answering"),
    ):
        device = replace(A.device, name=name, node="node-7", model=MODEL)
        site.put(replace(A, device=device), state, reason)
    facts = device_facts(site.reader, served=True)
    now = time.time()
    for device in facts:
        device["since"] = now - 7200
    work = {"slot": 0, "study": "digits-3f2a", "trial": 17, "epoch": 12, "since": now - 3600}
    facts[0]["running"] = [work]
    head, *lines = text_of(facts, width=80).splitlines()
    assert head.split() == ["device", "slots", "state", "runs"]
    assert [line.rstrip() for line in lines] == [
        "cpu.node-7.0       2   joined               digits-3f2a/17 epoch 12, 1 h 00 min",
        "cpu.node-7.1       2   resting 2 h 00 min   (3 losses in a row)",
        "cpu.node-7.2       2   left 2 h 00 min      (cpu.node-7.2 stopped answering)",
    ]
    wide = text_of(facts, width=200)
    assert MODEL in wide
    assert len(wide.splitlines()) == 4


def test_where_even_less_fits_only_the_last_column_is_broken(site):
    site.put(A, "left", "a stopped answering")
    head, line, *more = text_of(device_facts(site.reader, served=True), width=40).splitlines()
    assert head.split() == ["device", "state", "runs"]
    assert line.startswith("cpu.a.0   left ")
    assert all(part.startswith(" " * 20) for part in more)


def test_where_there_is_no_device_it_says_how_one_joins(site):
    assert device_facts(site.reader, served=True) == []
    assert "there is no device yet" in text_of([])


def test_each_device_is_told_of_when_it_is_free_also_when_it_has_left(site):
    site.put(A, "drained")
    site.put(B, "draining")
    told = []

    def tell(name):
        told.append(name)
        site.put(B, "held")

    wait_free(site.reader, ["cpu.b.0", "cpu.a.0"], 9.0, tell)
    assert told == ["cpu.a.0", "cpu.b.0"]


def test_a_device_given_back_meanwhile_ends_the_waiting(site):
    site.put(A, "joined")
    with pytest.raises(UsageError, match=r"cpu.a.0 was given back before it was free"):
        wait_free(site.reader, ["cpu.a.0"], 9.0, print)


def test_a_deadline_that_passes_in_vain_is_said(site, monkeypatch):
    monkeypatch.setattr(devices, "GRACE", 0.0)
    site.put(A, "draining")
    with pytest.raises(BackendError, match=r"cpu.a.0: not free .* `penstock doctor`"):
        wait_free(site.reader, ["cpu.a.0"], 0.0, print)


def test_devices_of_services_that_have_stopped_are_not_there(site):
    site.put(A)
    site.put(B, state="left", reason="its worker was stopped")
    facts = device_facts(site.reader, served=False)
    assert [each["state"] for each in facts] == ["left", "left"]
    assert facts[0]["since"] is None
    _, first, second = text_of(facts).splitlines()
    assert first.split()[-6:] == ["left", "(no", "scheduler", "runs:", "penstock", "up)"]
    assert "its worker was stopped" in second


def test_what_left_more_than_a_day_ago_is_only_counted(site):
    site.put(A)
    for name, hours in (("cpu.c.0", 23), ("cpu.d.0", 25)):
        device = replace(A.device, name=name)
        site.put(replace(A, device=device, at=time.time() - 3600 * hours), "left")
    facts = device_facts(site.reader, served=True)
    text = text_of(facts)
    assert "cpu.c.0" in text
    assert "cpu.d.0" not in text
    assert "and 1 that left more than a day ago" in text
    assert [each["name"] for each in facts] == ["cpu.a.0", "cpu.c.0", "cpu.d.0"]
