"""A service is alive exactly while its lock is held, however its starter and itself end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from patience import PATIENCE, until
from penstock.app.host import locks, logs
from penstock.base.errors import UsageError

SLEEPER = [sys.executable, "-c", "import time; time.sleep(3600)"]


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    yield folder
    for lock in folder.glob("*.lock"):
        locks.stop(folder, lock.stem, grace=1)


@pytest.fixture
def spawn(run):
    def spawn(name="service", argv=SLEEPER):
        return locks.spawn_service(
            run, name, argv, env=dict(os.environ), log=run / f"{name}.log"
        )  # fmt: skip

    return spawn


def test_a_service_runs_once(run, spawn):
    first = spawn()
    assert spawn() is None
    assert locks.is_running(run, "service")
    assert not locks.is_running(run, "another")
    assert os.getsid(first.pid) == first.pid, "detached: a session of its own"


def test_a_service_has_run_since_it_was_started(run, spawn):
    assert locks.age(run, "service") is None
    spawn()
    pid = locks.pid_of(run, "service")
    assert 0.0 <= locks.age(run, "service") < PATIENCE
    begun = time.time() - 3600
    os.utime(run / "service.lock", (begun, begun))
    assert locks.pid_of(run, "service") == pid
    assert locks.age(run, "service") >= 3600


def test_the_lock_is_free_as_soon_as_its_holder_was_killed(run, spawn):
    child = spawn()
    child.kill()
    assert locks.wait_gone(run, "service", PATIENCE)
    assert locks.pid_of(run, "service") is None
    assert spawn() is not None


def test_a_service_outlives_its_killed_starter(run):
    program = (
        "import os, sys, pathlib; from penstock.app.host import locks\n"
        "run = pathlib.Path(sys.argv[1])\n"
        f"locks.spawn_service(run, 'service', {SLEEPER!r}, env=dict(os.environ), log=run / 'log')\n"
        "os.kill(os.getpid(), 9)"
    )
    starter = subprocess.run([sys.executable, "-c", program, run], check=False)
    assert starter.returncode == -signal.SIGKILL
    assert locks.is_running(run, "service")


def test_the_file_names_the_process_that_became_the_service(run, spawn):
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(3600)"
    child = spawn(argv=[sys.executable, "-c", program])
    said = until((run / "service.log").read_text)
    assert int(said) == child.pid == locks.pid_of(run, "service")


def test_a_child_of_a_service_does_not_keep_its_lock(run, spawn):
    """The service adopts the lock; a grandchild that lives on does not hold it."""
    program = (
        "import pathlib, subprocess, sys, os; from penstock.app.host import locks\n"
        "with locks.hold(pathlib.Path(sys.argv[1]), 'service'):\n"
        "    os.system('sleep 60 & echo $!')\n"
    )
    child = spawn(argv=[sys.executable, "-c", program, str(run)])
    child.wait()
    grandchild = int((run / "service.log").read_text())
    assert locks.wait_gone(run, "service", 1)
    os.kill(grandchild, signal.SIGTERM)


def test_a_process_started_by_hand_holds_the_lock_and_a_second_is_refused(run):
    with locks.hold(run, "scheduler"):
        assert locks.pid_of(run, "scheduler") == os.getpid()
        with (
            pytest.raises(UsageError, match=f"process {os.getpid()}"),
            locks.hold(run, "scheduler"),
        ):
            pass
    assert not locks.is_running(run, "scheduler")


def test_a_second_scheduler_waits_until_the_first_is_gone(run, spawn):
    first = spawn("scheduler")
    got = threading.Event()

    def second():
        with locks.hold(run, "scheduler", wait=True):
            got.set()

    waiting = threading.Thread(target=second)
    waiting.start()
    assert not got.wait(0.1)
    first.kill()
    assert got.wait(PATIENCE)
    waiting.join()


def test_looking_at_a_lock_never_keeps_anyone_from_taking_it(run):
    """Many look while one takes and leaves again: taking always succeeds."""
    done = threading.Event()

    def look():
        while not done.is_set():
            locks.is_running(run, "service")

    watchers = [threading.Thread(target=look) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(100):
            with locks.hold(run, "service"):
                pass
    finally:
        done.set()
        for watcher in watchers:
            watcher.join()


def test_no_signal_reaches_a_process_that_only_has_a_dead_services_id(run):
    """The file of a dead service names this very process: nothing is sent."""
    run.mkdir()
    (run / "service.lock").write_text(f"{os.getpid()}\n")
    assert not locks.send_signal(run, "service", signal.SIGKILL)


def test_a_service_that_ignores_the_polite_request_is_killed(run, spawn):
    program = (
        "import signal, time; signal.signal(15, signal.SIG_IGN)\n"
        "print(1, flush=True); time.sleep(3600)"
    )
    child = spawn(argv=[sys.executable, "-c", program])
    until((run / "service.log").read_text)
    assert locks.stop(run, "service", grace=0.1)
    assert child.wait(PATIENCE) == -signal.SIGKILL
    assert not locks.stop(run, "service", grace=0.1)


def test_last_words_come_from_the_end_of_the_log(run, spawn):
    child = spawn(argv=[sys.executable, "-c", "for i in range(9999): print(i)"])
    child.wait()
    assert logs.tail(run / "service.log", lines=2) == "9997\n9998"


def test_two_holders_of_a_lock_whose_file_was_put_aside_are_never_both_at_work(tmp_path):
    run = tmp_path / "run"
    with (
        locks.hold(run, "service") as first,
        locks.alone_in(tmp_path, first, lambda: False) as alone,
    ):
        assert alone
        (run / "service.lock").rename(run / "aside")
        assert not first.is_current()
        with locks.hold(run, "service") as second:
            with locks.alone_in(tmp_path, second, lambda: True) as told:
                assert not told
            (run / "aside").replace(run / "service.lock")
            with locks.alone_in(tmp_path, second, bool) as both:
                assert not both
        assert first.is_current()
