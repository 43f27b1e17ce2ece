"""Why a study does not get on: one sentence for each thing that can be in its way."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest
from ledgers.study_ledger import SomeFail, make_study, study_spec
from penstock.app.broker import protocol, server
from penstock.app.host.settings import load
from penstock.app.ledger.rows import Work
from penstock.app.show.status.stall_monitor import CHECK_INTERVAL, REPORT_AFTER, StallMonitor
from penstock.app.show.status.waiting import Services, Setback, why_waiting
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.events import AttemptFailed, AttemptLost
from penstock.scheduler.state.state import DeviceRecord

MINE = Work("digits", "digits-1a2b-0001", 1, 3, None)
OTHERS = Work("other", "other-0007-0001", 1, 3, None)
MISSING = Setback("this node has no /x/model.py, where the study's code should be", 1, refused=True)
UNSTARTED = Setback("its trainer did not start: exit code 1", 1, log="ImportError: no libcudnn")


def device(name, state="joined", at=0.0, reason=""):
    return DeviceRecord(Device(name, "n", "cpu", (0,), None), "i1", state, at, reason)


A, B = device("cpu.n.0"), device("cpu.n.1")


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    reader = make_study(tmp_path_factory.mktemp("home"), study_spec(), turns=2)
    return reader.study("digits")


def at_work(*works):
    return {(f"cpu.n.{n}", 0): work for n, work in enumerate(works)}


#: Devices, what runs, setbacks, services, and what is to be said.
CAUSES = {
    "broker away": ([A], {}, [], Services(broker="the broker does not answer"), "not answer"),
    "broker refuses": ([A], {}, [], Services(broker="it refuses (OOM)"), "OOM"),
    "scheduler kept": (
        *([A], {}, []),
        Services(scheduler=True, trouble="the ledger's disk is full"),
        "the scheduler cannot serve: the ledger's disk is full",
    ),
    "no scheduler": ([A], {}, [], Services(scheduler=False), "no scheduler is running"),
    "never a device": ([], {}, [], Services(), "no device has joined yet: start workers"),
    "no agent": (
        *([], {}, []),
        Services(agent="the node agent exits as soon as it is started: no such GPU"),
        "no device serves: the node agent exits",
    ),
    "devices gone": (
        [device("cpu.n.0", "left", 1.0, "old"), device("cpu.n.1", "left", 2.0, "it was stopped")],
        *({}, [], Services()),
        "cpu.n.1 left (it was stopped)",
    ),
    "drained": (
        [device("cpu.n.0", "drained"), device("cpu.n.1", "draining")],
        *({}, [], Services()),
        "every device is drained",
    ),
    "leaving": (
        [device("cpu.n.0", "draining")],
        *(at_work(OTHERS), [], Services(leaving=["cpu.n.0"])),
        "services are stopping, which takes up to 30 s",
    ),
    "refused": ([A, B], {}, [MISSING], Services(), "no device accepts it: this node has no /x"),
    "unstarted": (
        *([A], at_work(MINE), [UNSTARTED] * 2, Services()),
        "exit code 1 (its log ends: ImportError: no libcudnn)",
    ),
    "several": (
        *([A], at_work(MINE), [UNSTARTED, replace(UNSTARTED, trial=4)], Services()),
        "the last attempts of several trials failed and are tried again: its trainer did not start",
    ),
    "rests": (
        *([device("cpu.n.0", "resting")], {}, [Setback("its lease ran out", 3)] * 2, Services()),
        "the last attempts of trial 3 failed and are tried again: its lease ran out",
    ),
    "in use": ([A, B], at_work(OTHERS, OTHERS), [], Services(), "all are busy with other;"),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_is_said(study, cause):
    devices, running, setbacks, seen, words = CAUSES[cause]
    said = why_waiting(study, devices, running, setbacks, seen)
    assert said is not None
    assert words in said
    assert why_waiting(replace(study, finished_at=1.0), devices, running, setbacks, seen) is None


@pytest.mark.extension("environments")
def test_devices_that_cannot_start_its_environment_are_named(study):
    in_root = replace(study, environment="rootfs:/r")
    lacks = "bwrap is not installed on its node"
    unable = [replace(each.device, no_rootfs=lacks) for each in (A, B)]
    able = replace(unable[1], no_rootfs="")

    def said(*announced, of=in_root):
        return why_waiting(of, [A, B], {}, [], Services(announced=announced))

    words = f"no device accepts it: it cannot start rootfs:/r: {lacks}. Fix that, and restart"
    assert said(*unable).startswith(words)
    assert said(unable[0], able) is None
    assert said(*unable, of=study) is None
    gone = replace(able, name="cpu.n.2")
    assert said(*unable, gone).startswith(words), "it is not there any more"


def test_what_a_paused_or_an_asked_study_waits_for_is_its_users_to_do(study):
    paused, asked = replace(study, status="paused"), replace(study, contract="ask")
    assert "penstock resume" in why_waiting(paused, [], {}, [], Services(scheduler=False))
    assert "study.close() ends it" in why_waiting(asked, [], {}, [], Services(scheduler=False))


@pytest.mark.parametrize(
    ("devices", "running", "setbacks"),
    [
        ([A], at_work(MINE), []),
        ([A, B], at_work(MINE, OTHERS), []),
        ([A, B], at_work(OTHERS), []),  # a device is free: its trial is on its way
        ([A], at_work(MINE), [UNSTARTED]),  # once is an accident
        ([A, B], at_work(MINE), [MISSING]),  # another device took it
    ],
)
def test_what_gets_on_or_is_about_to_is_not_spoken_of(study, devices, running, setbacks):
    assert why_waiting(study, devices, running, setbacks, Services()) is None


def test_who_has_the_devices_is_said_alike_however_many_they_are_and_in_any_order(study):
    studies = [replace(OTHERS, study=name) for name in "abcde"]
    devices = [device(f"cpu.n.{n}") for n in range(5)]

    def said(*works):
        return why_waiting(study, devices[: len(works)], at_work(*works), [], Services())

    assert "all are busy with a, b, c and others;" in said(*studies)
    assert said(*studies) == said(*studies[:4]) == said(*reversed(studies))


# -- gathered from a real ledger, a real lock ----------------------------------------------------


class Losing(SomeFail):
    """Every attempt is lost, or dies, as soon as it is sent."""

    kind = "lost"
    said = MappingProxyType({"reason": "its trainer did not start: exit code 1"})

    def _dispatch(self, dispatch, spec):
        super()._dispatch(dispatch, spec)
        fence = dispatch.segment.fence
        [entry] = [entry for entry in self._heap if entry[2] == fence][:1]
        body = {
            "trial": dispatch.segment.trial,
            "fence": fence,
            "cause": dispatch.id,
            "kind": self.kind,
            **self.said,
        }
        self._heap = [each for each in self._heap if each[2] != fence]
        self._heap.append((entry[0], next(self._count), fence, body))


class Dying(Losing):
    kind = "failed"
    said = MappingProxyType({"failure": "died", "message": "signal 11 (SIGSEGV)"})


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A state folder whose scheduler is at work, for all that its lock says."""
    settings = load(home=tmp_path / "home")
    settings.ensure_home()
    monkeypatch.setattr(StallMonitor, "_services", lambda self: Services())
    return settings


@pytest.mark.parametrize(
    ("devices", "words"), [(Losing, "its trainer did not start"), (Dying, "signal 11 (SIGSEGV)")]
)
def test_attempts_that_come_to_nothing_are_found_in_the_ledger(settings, devices, words):
    reader = make_study(settings.home, study_spec(), turns=6, devices=devices)
    (settings.logs / "trainer-x.log").write_text("Traceback\nImportError: no libcudnn\n")
    (settings.logs / "trainer-y.log").symlink_to("trainer-y.log")  # user code can do that
    stall_monitor = StallMonitor(settings, reader)
    first, again = (
        stall_monitor.now(reader.study("digits")),
        stall_monitor.now(reader.study("digits")),
    )
    assert f" failed and are tried again: {words}" in first.replace("its trainer died: ", "")
    assert first.startswith("the last attempts of ")
    assert "ImportError: no libcudnn" in first or devices is Dying
    assert again == first


def test_what_was_accepted_since_ends_that(settings):
    reader = make_study(settings.home, study_spec(), turns=6)
    kinds = {type(e) for e in reader.last_attempts("digits-1a2b", 0, 4)}
    assert kinds == {type(None)}
    assert StallMonitor(settings, reader).now(reader.study("digits")) is None


def test_a_reason_is_told_when_it_has_held_for_a_while_and_no_longer(settings, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("penstock.app.show.status.stall_monitor.time.monotonic", lambda: clock[0])
    reader = make_study(settings.home, study_spec(), turns=3)
    study, stall_monitor = reader.study("digits"), StallMonitor(settings, reader)
    seen = Services(scheduler=False)
    monkeypatch.setattr(StallMonitor, "_services", lambda self: seen)
    for _ in range(2):  # nothing is looked at yet; then it is, and has not held for long
        assert stall_monitor.reason(study) == ""
        assert not stall_monitor.still()
        clock[0] += CHECK_INTERVAL
    clock[0] += REPORT_AFTER
    assert stall_monitor.reason(study).startswith("no scheduler is running")
    assert stall_monitor.still()
    seen = Services()
    clock[0] += CHECK_INTERVAL
    assert stall_monitor.reason(study) == ""
    assert not stall_monitor.still()


def test_services_that_do_not_run_are_seen_by_their_locks_and_logs(tmp_path):
    settings = load(home=tmp_path / "home", broker="redis://127.0.0.1:1/0")
    settings.ensure_home()
    reader = make_study(settings.home, study_spec(), turns=3)
    study = reader.study("digits")
    assert "does not answer" in StallMonitor(settings, reader).now(study)
    private = settings.model_copy(update={"broker": None})
    assert "no scheduler is running" in StallMonitor(private, reader).now(study)
    (settings.logs / "scheduler.log").write_text("Traceback\nMemoryError\n")
    revived = StallMonitor(private, reader, lambda: "scheduler was started 3 times and ended")
    assert "exits every time it is started: MemoryError" in revived.now(study)


def test_a_setback_is_the_event_that_the_ledger_has():
    stall_monitor = StallMonitor(load(home="/nowhere"), None)
    lost = AttemptLost(at=0.0, trial="t-0003", fence=1, reason="its lease ran out", refused=True)
    died = AttemptFailed(at=0.0, trial="t-0004", fence=1, kind="died", message="signal 9")
    assert stall_monitor._setback(lost) == Setback("its lease ran out", 3, refused=True)
    assert stall_monitor._setback(died) == Setback("its trainer died: signal 9", 4)


@pytest.mark.parametrize("garbage", ["[" * 100_000, b"\xff", "{}", "[]", '{"draining": true}'])
def test_what_is_no_record_of_a_device_says_nothing(tmp_path, garbage):
    """Anybody may write to the broker: who looks at it goes on."""
    settings = load(home=tmp_path / "home")
    settings.ensure_home()
    server.start(settings)
    try:
        with server.connect(settings) as client:
            client.hset(protocol.DEVICES, "node-cpu-0", garbage)
            assert not StallMonitor(settings, None)._asked().leaving
    finally:
        server.stop(settings)
