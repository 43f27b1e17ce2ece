"""Stopped processes go on or are replaced. Real processes, real signals, real tracers."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from itertools import count

import psutil
import pytest
from ledgers.study_ledger import make_study, study_spec
from machines.tracing import traced
from patience import PATIENCE, until
from penstock.app.broker import server
from penstock.app.host import locks, stopped
from penstock.app.host.settings import load
from penstock.app.host.stopped import StoppedServices, stop_of
from penstock.app.server.services import services
from penstock.app.server.services.services import (
    Service,
    desired_state,
    ensure_up,
    stop_if_idle,
    take_down,
)
from penstock.app.server.services.supervisor import Supervisor
from penstock.app.show.status.stall_monitor import StallMonitor
from penstock.tasks.process.lifeline import MARK_VARIABLE

SLEEP = (sys.executable, "-c", "import time; time.sleep(3600)")
STAND_INS = (Service("scheduler", SLEEP), Service("agent", SLEEP))
NAMES = ("broker", "scheduler", "agent")


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Those of services that are dealt with soon after they were stopped."""
    for name, seconds in (("INTERVAL", 0.05), ("LIMIT", 0.1), ("GRACE", 0.2)):
        monkeypatch.setattr(stopped, name, seconds)
    settings = load(home=tmp_path / "home", devices="cpu:1x1")
    yield settings
    take_down(settings, grace=1)


def start(settings):
    """Start all services; return their process ids, by name."""
    ensure_up(settings, services=STAND_INS)
    return {name: until(lambda name=name: running(settings, name)) for name in NAMES}


def running(settings, name):
    """Return the process id of a service that has become what it runs."""
    pid = locks.pid_of(settings.run, name)
    with_lock = pid is not None and psutil.Process(pid).name() != "sh"
    return pid if with_lock else None


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    until(lambda: stop_of(pid))


@pytest.mark.parametrize("name", NAMES)
def test_a_service_that_a_signal_stops_is_continued_and_keeps_what_it_has(settings, name, caplog):
    before = start(settings)
    stop(before[name])
    with Supervisor(settings):
        until(lambda: "it is continued" in caplog.text)
        until(lambda: stop_of(before[name]) is None)
    assert {each: running(settings, each) for each in NAMES} == before
    assert f"{name} (process {before[name]}) was stopped by a signal" in caplog.text
    server.connect(settings).close()


@pytest.mark.parametrize("name", NAMES)
def test_a_service_that_a_tracer_holds_is_killed_and_started_again(settings, name, caplog):
    before = start(settings)
    with traced(before[name]) as tracer, Supervisor(settings):
        after = until(lambda: (pid := running(settings, name)) != before[name] and pid)
        assert after not in before.values()
        assert tracer.poll() is None
    assert f"({before[name]}) is held by its tracer" in caplog.text.replace("process ", "")
    assert "does not go on: killed" in caplog.text


def test_a_trainer_that_traces_a_service_is_killed_and_the_service_goes_on(settings, caplog):
    before = start(settings)
    with Supervisor(settings), traced(before["agent"], **{MARK_VARIABLE: "1:1:000000"}) as tracer:
        assert tracer.wait(PATIENCE) == -signal.SIGKILL
        until(lambda: stop_of(before["agent"]) is None)
    assert {each: running(settings, each) for each in NAMES} == before
    assert "a trainer's: that is killed" in caplog.text
    assert "was stopped by a signal" not in caplog.text


def test_a_single_thread_that_a_tracer_holds_counts(settings):
    """The main thread goes on, so the process itself does not look stopped."""
    program = "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()"
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        (thread,) = until(lambda: [int(t.id) for t in psutil.Process(process.pid).threads()][1:])
        with traced(thread):
            found = stop_of(process.pid)
            assert found.thread == thread
            assert found.tracer
            assert psutil.Process(process.pid).status() != psutil.STATUS_TRACING_STOP
        process.kill()


def test_one_that_goes_on_between_two_looks_is_left_alone(settings, caplog):
    """As under strace, which stops a process at each of its calls."""
    pid = start(settings)["agent"]
    look = StoppedServices(settings.run, count(0.0, stopped.INTERVAL).__next__).look
    for _ in range(20):
        stop(pid)
        before = stop_of(pid).switches
        look()
        os.kill(pid, signal.SIGCONT)
        until(lambda: stop_of(pid) is None)
        os.kill(pid, signal.SIGSTOP)
        until(lambda before=before: (now := stop_of(pid)) and now.switches > before)
    assert caplog.text == ""
    os.kill(pid, signal.SIGCONT)


def test_a_watcher_that_did_not_run_itself_has_seen_nothing_meanwhile(settings, monkeypatch):
    """It was stopped along with all others, say, and so cannot say who of them stands still."""
    monkeypatch.setattr(stopped, "LIMIT", 1.0)
    pid = start(settings)["agent"]
    look = StoppedServices(settings.run, count(0.0, 3600.0).__next__).look
    stop(pid)
    for _ in range(3):
        look()
    assert stop_of(pid) is not None


@pytest.mark.extension("doctor")
def test_what_its_user_stops_in_a_terminal_is_left_alone_and_said(settings, caplog):
    from penstock.extensions.doctor.doctor import diagnose

    settings.ensure_home()
    hold = (
        "import time; from penstock.app.host import locks, settings\n"
        "with locks.hold(settings.load().run, 'agent'): time.sleep(3600)"
    )
    pid, terminal = pty.fork()
    if pid == 0:
        variables = {**os.environ, **settings.environment()}
        os.execve(sys.executable, [sys.executable, "-c", hold], variables)
    try:
        until(lambda: locks.pid_of(settings.run, "agent") == pid)
        stop(pid)
        look = StoppedServices(settings.run, count(0.0, stopped.INTERVAL).__next__).look
        for _ in range(20):
            look()
        stopped.continue_stopped(settings.run)
        assert stop_of(pid)
        assert caplog.text == ""
        (found,) = [each for each in diagnose(settings) if each.name == "agent"]
        assert found.grade == "fail"
        assert found.what.endswith(f"in its terminal with `fg`, or with `kill -CONT {pid}`")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def test_who_asks_for_services_has_the_stopped_ones_continued(settings):
    before = start(settings)
    for pid in before.values():
        stop(pid)
    ensure_up(settings, services=STAND_INS)
    assert {each: running(settings, each) for each in NAMES} == before
    assert not any(map(stop_of, before.values()))


@pytest.mark.extension("doctor")
@pytest.mark.parametrize("name", NAMES)
def test_doctor_and_status_say_which_service_is_stopped(settings, name):
    from penstock.extensions.doctor.doctor import diagnose

    reader = make_study(settings.home, study_spec(), turns=2)
    pid = start(settings)[name]
    monitor = StallMonitor(settings, reader)
    stop(pid)
    said = f"{name} (process {pid}) was stopped by a signal"
    (found,) = [each for each in diagnose(settings) if each.name == name]
    assert found.grade == "fail"
    assert found.what.startswith(said)
    assert monitor.now(reader.study("digits")).startswith(f"it stands still: {said}")
    os.kill(pid, signal.SIGCONT)


def test_an_idle_scheduler_does_not_wait_for_a_client_that_is_stopped(tmp_path):
    """It would serve nobody meanwhile. The doctor names the client."""
    settings = load(home=tmp_path / "home", devices="cpu:1x1", idle_stop=0.5)
    try:
        ensure_up(settings, services=STAND_INS)
        until(lambda: time.time() - desired_state(settings).at > settings.idle_stop)
        with locks.hold(settings.run, services.CHANGE):
            assert not stop_if_idle(settings, idle_since=0.0)
        assert stop_if_idle(settings, idle_since=0.0)
    finally:
        take_down(settings, grace=1)


@pytest.mark.extension("doctor")
def test_the_doctor_names_a_stopped_process_that_keeps_services_from_being_restarted(settings):
    from penstock.extensions.doctor.doctor import diagnose

    settings.ensure_home()
    hold = (
        "import time; from penstock.app.host import locks, settings\n"
        "with locks.hold(settings.load().run, 'services'): time.sleep(3600)"
    )
    variables = {**os.environ, **settings.environment()}
    with subprocess.Popen([sys.executable, "-c", hold], env=variables) as client:
        until(lambda: locks.pid_of(settings.run, services.CHANGE) == client.pid)
        stop(client.pid)
        (found,) = [each for each in diagnose(settings) if each.name == "services"]
        client.kill()
    assert found.grade == "fail"
    assert f"process {client.pid}, which was starting or stopping them" in found.what
    assert f"kill -CONT {client.pid}" in found.advice
