"""Services keep each other up; real processes, a real broker, stand-ins for scheduler and agent."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace

import psutil
import pytest
from patience import until
from penstock.app.broker import server
from penstock.app.host import locks, logs
from penstock.app.host.settings import load
from penstock.app.server.services import services
from penstock.app.server.services.ahead import end_unasked
from penstock.app.server.services.services import (
    Service,
    desired_state,
    ensure_up,
    stop_if_idle,
    take_down,
)
from penstock.app.server.services.supervisor import POLL, Supervisor
from penstock.base.errors import BackendError, UsageError

SLEEP = (sys.executable, "-c", "import time; time.sleep(3600)")
STAND_INS = (Service("scheduler", SLEEP), Service("agent", SLEEP))
NAMES = ("broker", "scheduler", "agent")


@pytest.fixture
def settings(tmp_path):
    settings = load(home=tmp_path / "home", devices="cpu:1x1")
    yield settings
    take_down(settings, grace=1)


def pids(settings):
    found = [locks.pid_of(settings.run, name) for name in NAMES]
    return found if all(found) else None


def test_everything_is_up_after_one_call_and_a_second_call_changes_nothing(settings):
    ensure_up(settings, services=STAND_INS)
    first = until(lambda: pids(settings))
    server.connect(settings).close()
    ensure_up(settings, services=STAND_INS)
    assert pids(settings) == first
    assert [status.pid for status in services.statuses(settings)] == first


def test_down_stops_agent_scheduler_and_broker_in_this_order(settings):
    ensure_up(settings, services=STAND_INS)
    assert take_down(settings) == ["agent", "scheduler", "broker"]
    assert not any(locks.is_running(settings.run, name) for name in NAMES)
    assert desired_state(settings) is None
    assert take_down(settings) == []


@pytest.mark.parametrize("name", NAMES)
def test_whichever_is_killed_any_survivor_revives_it(settings, name):
    ensure_up(settings, services=STAND_INS)
    before = until(lambda: pids(settings))
    with Supervisor(settings) as supervisor, Supervisor(settings):
        locks.send_signal(settings.run, name, signal.SIGKILL)
        after = until(lambda: (now := pids(settings)) and now != before and now)
        assert supervisor.trouble() is None
    changed = [n for n, a, b in zip(NAMES, before, after, strict=True) if a != b]
    assert changed == [name]


def test_a_supervisor_in_a_service_restarts_its_sibling(settings):
    """As in real life: the supervisor lives in the scheduler, and no client is there any more."""
    program = (
        "import time; from penstock.app.host import settings\n"
        "from penstock.app.server.services import supervisor\n"
        "supervisor.Supervisor(settings.load()).start(); time.sleep(3600)"
    )
    keeping = Service("scheduler", (sys.executable, "-c", program))
    ensure_up(settings, services=(keeping, STAND_INS[1]))
    before = until(lambda: pids(settings))
    os.kill(before[2], signal.SIGKILL)
    os.kill(before[0], signal.SIGKILL)
    after = until(lambda: (n := pids(settings)) and n[0] != before[0] and n[2] != before[2] and n)
    assert after[1] == before[1]


def test_what_was_taken_down_stays_down(settings):
    ensure_up(settings, services=STAND_INS)
    with Supervisor(settings):
        take_down(settings, grace=1)
        time.sleep(3 * POLL)  # nothing may happen in it
        assert not any(locks.is_running(settings.run, name) for name in NAMES)


def test_a_service_that_keeps_ending_is_revived_ever_more_slowly_and_said(settings):
    failing = (Service("agent", (sys.executable, "-c", "print('no luck')")),)
    ensure_up(settings, services=failing)
    with Supervisor(settings) as supervisor:
        said = until(supervisor.trouble)
    assert "agent was started 3 times" in said
    assert "no luck" in said
    assert (settings.logs / "agent.log").read_text().count("no luck") <= 5


def test_a_service_whose_log_cannot_be_opened_is_started_once_it_can(settings, caplog):
    ensure_up(settings, services=STAND_INS)
    until(lambda: pids(settings))
    log = settings.logs / "agent.log"
    log.unlink()
    log.mkdir()
    with Supervisor(settings):
        locks.send_signal(settings.run, "agent", signal.SIGKILL)
        until(lambda: f"could not be restarted: [Errno 21] Is a directory: '{log}'" in caplog.text)
        log.rmdir()
        until(lambda: pids(settings))


def test_idle_services_stop_unless_someone_asked_again_or_wants_them_to_stay(tmp_path):
    settings = load(home=tmp_path, devices="cpu:1x1", idle_stop=0.5)
    try:
        ensure_up(settings, services=STAND_INS)
        assert not stop_if_idle(settings, idle_since=0), "just asked for"
        until(lambda: time.time() - desired_state(settings).at > settings.idle_stop)
        assert not stop_if_idle(settings, idle_since=time.time()), "just at work"
        assert stop_if_idle(settings, idle_since=0)
        assert [s.name for s in services.statuses(settings) if s.pid] == ["scheduler"]

        ensure_up(settings, services=STAND_INS, stays=True)
        ensure_up(settings, services=STAND_INS)
        until(lambda: time.time() - desired_state(settings).at > settings.idle_stop)
        assert not stop_if_idle(settings, idle_since=0), "penstock up"
    finally:
        take_down(settings, grace=1)


def test_an_agent_that_others_have_started_is_left_to_them(settings, monkeypatch):
    monkeypatch.setattr(services, "roster", lambda _: STAND_INS)
    settings.ensure_home()
    theirs = locks.spawn_service(
        settings.run, "agent", SLEEP, env=os.environ, log=settings.logs / "agent.log"
    )
    assert [each.name for each in ensure_up(settings).services] == ["scheduler"]
    assert [each.name for each in ensure_up(settings).services] == ["scheduler"]
    assert locks.pid_of(settings.run, "agent") == theirs.pid
    idle = settings.model_copy(update={"idle_stop": 0.0})
    assert stop_if_idle(idle, idle_since=0)
    assert theirs.poll() is None
    ensure_up(settings)
    theirs.kill()
    theirs.wait()
    until(lambda: not locks.is_running(settings.run, "agent"))
    assert [each.name for each in ensure_up(settings).services] == ["scheduler", "agent"]
    assert [each.name for each in ensure_up(settings).services] == ["scheduler", "agent"]


@pytest.mark.parametrize("was_private", [True, False])
def test_services_that_run_on_another_broker_are_said_and_left(settings, tmp_path, was_private):
    settings.ensure_home()
    server.start(settings)
    url = server.broker_url(settings)
    sides = [
        load(home=tmp_path / "other", broker=broker, devices="cpu:1x1") for broker in (None, url)
    ]
    first, second = sides if was_private else sides[::-1]
    scheduler = replace(STAND_INS[0], argv=("env", *_broker_of(first), *SLEEP))
    ensure_up(first, services=(scheduler,))
    pid = until(lambda: locks.pid_of(first.run, "scheduler"))
    with pytest.raises(UsageError, match=r"have another broker, .* `penstock down`") as refused:
        ensure_up(second, services=(scheduler,))
    assert "a private one" in str(refused.value)
    assert url in str(refused.value)
    assert locks.pid_of(first.run, "scheduler") == pid
    ensure_up(first, services=(scheduler,))
    take_down(first, grace=1)


def _broker_of(settings):
    """Return the variables that a real scheduler of these settings has."""
    return [f"{name}={value}" for name, value in settings.environment().items() if "BROKER" in name]


def test_an_external_broker_is_never_started_nor_stopped(settings, tmp_path):
    settings.ensure_home()
    server.start(settings)
    other = load(home=tmp_path / "other", broker=server.broker_url(settings), devices="cpu:1x1")
    ensure_up(other, services=STAND_INS)
    assert not locks.is_running(other.run, server.NAME)
    assert take_down(other, grace=1) == ["agent", "scheduler"]
    server.connect(settings).close()


def test_nothing_is_started_when_the_broker_does_not_answer(tmp_path):
    settings = load(home=tmp_path, broker="redis://:s3cret@127.0.0.1:1", devices="cpu:1x1")
    with pytest.raises(BackendError) as refused:
        ensure_up(settings, services=STAND_INS)
    assert "s3cret" not in str(refused.value)
    assert desired_state(settings) is None
    assert not any(locks.is_running(settings.run, name) for name in NAMES)


def test_nothing_is_started_for_a_store_of_no_known_kind_and_its_password_is_not_said(tmp_path):
    settings = load(home=tmp_path / "home", store="nosuchfs://me:s3cret@host/x")
    with pytest.raises(BackendError, match=r"nosuchfs://\*\*\*@host/x cannot be used") as refused:
        ensure_up(settings, services=STAND_INS)
    assert "s3cret" not in str(refused.value)
    assert desired_state(settings) is None


def test_nothing_is_started_for_a_store_that_takes_no_data(tmp_path):
    (tmp_path / "file").write_text("")
    settings = load(home=tmp_path / "home", store=f"{tmp_path}/file/x", devices="cpu:1x1")
    with pytest.raises(BackendError, match=f"file://{tmp_path}/file/x cannot be used"):
        ensure_up(settings, services=STAND_INS)
    assert desired_state(settings) is None
    assert not any(locks.is_running(settings.run, name) for name in NAMES)


def test_nothing_is_started_for_devices_that_are_not_there(settings):
    with pytest.raises(UsageError, match=r"cpu:999x1.*this machine has"):
        ensure_up(settings, "cpu:999x1", services=STAND_INS)
    assert not any(locks.is_running(settings.run, name) for name in NAMES)


def test_other_devices_than_those_that_are_up_are_refused(settings):
    ensure_up(settings, services=STAND_INS)
    with pytest.raises(
        UsageError, match=r"cpu:1x1, as the running services have it.*penstock down"
    ):
        ensure_up(settings, "cpu:1x1*2", services=STAND_INS)
    take_down(settings, grace=1)
    assert ensure_up(settings, "cpu:1x1*2", services=STAND_INS).devices == "cpu:1x1*2"


def test_a_service_sees_the_settings_and_runs_in_the_state_folder(settings, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    program = (
        "import json, os; from penstock.app.host.settings import load\n"
        "print(json.dumps([str(load().home), load().devices, os.getcwd()]), flush=True)"
    )
    ensure_up(settings, services=(Service("scheduler", (sys.executable, "-c", program)),))
    said = until(lambda: logs.tail(settings.logs / "scheduler.log"))
    assert json.loads(said) == [str(settings.home), "cpu:1x1", str(settings.home)]


def test_a_setting_that_running_services_would_not_hear_of_is_refused(settings, tmp_path):
    ensure_up(settings, services=STAND_INS)
    same = load(home=settings.home, devices="cpu:1x1", policy="waterfill", idle_stop=3.0)
    ensure_up(same, services=STAND_INS)
    other = load(home=settings.home, devices="cpu:1x1", policy="fifo")
    with pytest.raises(
        UsageError, match="PENSTOCK_POLICY = 'fifo' is refused: allowed is waterfill"
    ):
        ensure_up(other, services=STAND_INS)
    take_down(settings, grace=1)
    ensure_up(other, services=STAND_INS)
    take_down(other, grace=1)


def test_a_store_that_services_know_by_its_path_is_the_one_of_its_url(settings, tmp_path):
    known_by_path = ("env", f"PENSTOCK_STORE={tmp_path}", *SLEEP)
    ensure_up(settings, services=(Service("scheduler", known_by_path),))
    scheduler = psutil.Process(until(lambda: locks.pid_of(settings.run, "scheduler")))
    until(lambda: "PENSTOCK_STORE" in scheduler.environ())  # env has become what it runs
    ensure_up(load(home=settings.home, devices="cpu:1x1", store=f"file://{tmp_path}"), services=())
    with pytest.raises(UsageError, match="PENSTOCK_STORE"):
        ensure_up(load(home=settings.home, devices="cpu:1x1", store=f"file://{tmp_path}/other"))


def test_services_started_ahead_end_unasked_but_not_under_who_asks_just_then(settings, monkeypatch):
    ensure_up(settings, services=STAND_INS)
    asked = desired_state(settings)
    services.write_desired_state(settings, replace(asked, ahead=settings.environment()))
    hold, waited = locks.hold, []

    def hold_after_another(folder, name, **options):
        if name == services.CHANGE and not waited:
            waited.append(name)
            services.write_desired_state(settings, asked)  # as a client that had the lock
        return hold(folder, name, **options)

    with monkeypatch.context() as patch:
        patch.setattr(locks, "hold", hold_after_another)
        end_unasked(settings)
    assert waited
    assert desired_state(settings) == asked
    assert pids(settings)
    services.write_desired_state(settings, replace(asked, ahead=settings.environment()))
    end_unasked(settings)
    assert desired_state(settings) is None
    assert not any(locks.is_running(settings.run, name) for name in NAMES)


def test_a_damaged_wish_counts_as_none(settings, caplog):
    settings.ensure_home()
    (settings.run / "up.json").write_text("{")
    assert desired_state(settings) is None
    assert "up.json" in caplog.text


@pytest.mark.parametrize("spec", ["tpu:1", "cpu:1x1*2"])
def test_devices_in_the_settings_are_checked_also_while_services_run(settings, spec):
    ensure_up(settings, services=STAND_INS)
    with pytest.raises(UsageError, match="devices"):
        ensure_up(load(home=settings.home, devices=spec), services=STAND_INS)


def test_who_waits_for_services_that_are_taken_down_is_told_so(settings, monkeypatch, capsys):
    monkeypatch.setattr(services, "CHANGE_NOTICE_AFTER", 0.05)
    services._report_change(settings)
    assert capsys.readouterr().err == ""
    with locks.hold(settings.run, services.CHANGE):
        services._report_change(settings)
    told = capsys.readouterr().err
    assert "another process is starting or stopping the services, which takes up to 30 s" in told
