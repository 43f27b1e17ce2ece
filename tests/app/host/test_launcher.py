"""Processes that run users' code end with all that they started, whatever that was. No mocks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading

import psutil
import pytest
from patience import PATIENCE, until
from penstock.app.host.launcher import Launcher, count_children, end_strays
from penstock.tasks.process.lifeline import MARK_VARIABLE

#: A daemon forgets its parent, its session and its environment, as a user's code may.
HEAD = """
    import os, signal, subprocess, sys, time

    def say(pid):
        print(pid, flush=True)

    def child(then=lambda: time.sleep(3600)):
        pid = os.fork()
        if pid == 0:
            then()
            os._exit(0)
        return pid

    def daemon(env=os.environ):
        sleep = [sys.executable, "-c", "import time; time.sleep(3600)"]
        subprocess.Popen(sleep, start_new_session=True, env=env)

    def orphan(env=os.environ):
        os.waitpid(child(lambda: daemon(env)), 0)
"""


@pytest.fixture(scope="module")
def launcher():
    return Launcher()


@pytest.fixture
def start(launcher, tmp_path):
    """Start Python on some code; the process, and what it has said once it has said something."""
    started = []

    def start(code, words=1):
        path = tmp_path / f"{len(started)}.log"
        command = [sys.executable, "-c", textwrap.dedent(HEAD) + textwrap.dedent(code)]
        with path.open("wb") as output:
            process = launcher.start(
                command,
                variables={**os.environ, "PENSTOCK_HOME": str(tmp_path)},
                descriptors=(),
                output=output.fileno(),
            )
        started.append(process)
        said = until(lambda: len(found := path.read_text().split()) >= words and found)
        return process, said

    yield start
    for process in started:
        process.close()


@pytest.fixture(autouse=True)
def others():
    """Note the processes that other tests started, such as a database server with its children."""
    _others[:] = psutil.Process().children()


_others: list[psutil.Process] = []


def below() -> list[psutil.Process]:
    """The processes below this one that run, but for those of other tests."""
    ours = [child for child in psutil.Process().children() if child not in _others]
    found = [*ours]
    for child in ours:
        with contextlib.suppress(psutil.NoSuchProcess):
            found += child.children(recursive=True)
    return [p for p in found if _runs(p)]


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("say(child())", 1),
        ("child(); child(); say(0)", 2),
        ("child(lambda: (child(), time.sleep(3600))); time.sleep(0.2); say(0)", 2),
        ("child(lambda: (os.setpgid(0, 0), time.sleep(3600))); time.sleep(0.2); say(0)", 1),
        ("daemon(); say(0)", 1),
        ("daemon({}); say(0)", 1),
        ("orphan(); say(0)", 1),
        ("orphan({}); say(0)", 1),
        ("os.kill(child(), signal.SIGSTOP); say(0)", 1),
        ("say(0)", 0),
    ],
)
@pytest.mark.parametrize("dies", ["time.sleep(3600)", "os.abort()", "os._exit(0)"])
def test_the_end_of_a_process_ends_all_that_it_started_and_names_it(start, code, names, dies):
    process, _ = start(f"{code}; {dies}")
    if "sleep" not in dies:
        assert process.wait(PATIENCE), "its end is known though children of it live"
    assert len(process.end()) == names
    until(lambda: not below(), "the end of those that were killed")


def test_the_daemon_of_one_that_lives_outlasts_the_end_of_another(start):
    lives, _ = start("orphan(); orphan(); say(0); time.sleep(3600)")
    ends, _ = start("orphan(); say(0); time.sleep(3600)")
    assert len(below()) == 5
    assert len(ends.end()) == 1
    assert len(below()) == 3
    assert len(lives.end()) == 2


def test_a_process_that_was_adopted_and_ends_is_reaped(launcher, start):
    lives, (pid,) = start("orphan(); say(os.getpid()); time.sleep(3600)")
    (adopted,) = [p for p in below() if p.pid != int(pid)]
    adopted.send_signal(signal.SIGKILL)
    until(lambda: adopted.status() == psutil.STATUS_ZOMBIE)
    launcher.reap()
    assert not adopted.is_running()
    assert lives.alive


def test_a_helper_of_our_own_is_no_orphan(start):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as helper:
        process, _ = start("say(0)")
        assert process.end() == []
        assert helper.poll() is None
        helper.communicate(b"\n")
        assert helper.returncode == 0, "its status is its starter's to read"


def test_how_it_ended_is_known_after_its_end(start):
    for code, status in (("os._exit(3)", 3), ("os.abort()", -signal.SIGABRT)):
        process, _ = start(f"say(0); {code}")
        assert process.wait(PATIENCE)
        assert process.status is None
        process.end()
        assert process.status == status


def test_its_status_is_not_lost_to_who_reaps_orphans(launcher, start):
    over = threading.Event()

    def reap():
        while not over.is_set():
            launcher.reap()

    reaper = threading.Thread(target=reap)
    reaper.start()
    try:
        for _ in range(10):
            process, _ = start("say(0); os._exit(3)")
            assert process.wait(PATIENCE)
            process.end()
            assert process.status == 3
    finally:
        over.set()
        reaper.join()


def test_it_counts_the_children_that_run(start):
    process, _ = start("child(); child(); say(0); time.sleep(3600)")
    assert count_children(process.pid) == 2


def test_a_child_that_has_ended_is_not_counted_though_nobody_waited_for_it(start):
    ended = "pid = child(lambda: None); os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)"
    process, _ = start(f"{ended}; say(0); time.sleep(3600)")
    assert count_children(process.pid) == 0


#: A launcher that is killed with two processes below: one in its process's group, one not.
KILLED = """
    import os, sys, time
    from pathlib import Path
    from penstock.app.host.launcher import Launcher
    code = "import subprocess, sys, time;" \\
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)']," \\
        " start_new_session=True); print(1, flush=True); time.sleep(3600)"
    with open(sys.argv[1], "wb") as output:
        Launcher().start(
            [sys.executable, "-c", code], variables=os.environ, descriptors=(),
            output=output.fileno(),
        )
    time.sleep(3600)
"""


def test_what_a_launcher_that_was_killed_left_is_found_by_its_mark(tmp_path, monkeypatch):
    said = tmp_path / "said"
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    starter = subprocess.Popen([sys.executable, "-c", textwrap.dedent(KILLED), str(said)])
    until(lambda: said.exists() and said.read_text())
    assert end_strays(str(tmp_path)) == [], "its worker lives"
    starter.kill()
    os.waitid(os.P_PID, starter.pid, os.WEXITED | os.WNOWAIT)  # dead, and nobody has reaped it
    assert end_strays("/another/home") == []
    assert len(end_strays(str(tmp_path))) == 2
    until(lambda: end_strays(str(tmp_path)) == [])
    starter.wait()


def test_a_mark_of_a_process_id_that_is_somebody_elses_now_is_a_dead_ones(tmp_path, monkeypatch):
    monkeypatch.setenv("PENSTOCK_HOME", str(tmp_path))
    monkeypatch.setenv(MARK_VARIABLE, f"{os.getpid()}:1:0")
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as stray:
        until(lambda: "sleep" in str(psutil.Process(stray.pid).cmdline()))
        assert len(end_strays(str(tmp_path))) == 1
