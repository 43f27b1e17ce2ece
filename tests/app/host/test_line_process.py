"""A process that is asked by lines, and ends with all that it started. No mocks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest
from patience import PATIENCE, until
from penstock.app.host.launcher import end_strays
from penstock.app.host.line_process import LineProcess

#: Code that leaves a daemon, which has a session of its own, holds all pipes and says its number.
DAEMON = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        print(os.getpid(), flush=True)
        time.sleep(3600)
"""


def started(code):
    """The process of ``code``, and the number of its daemon."""
    process = LineProcess([sys.executable, "-c", textwrap.dedent(code)], os.environ)
    return process, int(until(process.read))


def runs(pid):
    """Return True if it runs. This process may have adopted it, and does not reap it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(
    ("then", "status"), [("time.sleep(3600)", -signal.SIGKILL), ("os.closerange(0, 3)", 0)]
)
def test_its_end_does_not_wait_for_a_daemon_that_holds_its_pipes_but_ends_it(then, status):
    process, daemon = started(f"{DAEMON}    {then}\n")
    if status == 0:
        until(lambda: psutil.Process(process._popen.pid).status() == psutil.STATUS_ZOMBIE)
    began = time.monotonic()
    assert process.end() == status
    assert time.monotonic() - began < PATIENCE
    until(lambda: not runs(daemon))


#: A scheduler, say, that is killed while a process of its waits for no line.
KILLED = """
    import os, sys, time
    from penstock.app.host.line_process import LineProcess
    LineProcess([sys.executable, "-c", "import time; time.sleep(3600)"], os.environ)
    print("started", flush=True)
    time.sleep(3600)
"""


def test_what_a_starter_that_was_killed_left_is_ended_by_who_looks_after_its_state_folder(tmp_path):
    variables = {**os.environ, "PENSTOCK_HOME": str(tmp_path)}
    command = [sys.executable, "-c", textwrap.dedent(KILLED)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=variables) as starter:
        assert starter.stdout.readline() == b"started\n"
        [asked] = psutil.Process(starter.pid).children()
        assert end_strays(str(tmp_path)) == [], "its starter lives"
        starter.kill()
    assert len(end_strays(str(tmp_path))) == 1
    until(lambda: not runs(asked.pid))
