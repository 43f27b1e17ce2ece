"""SIGTERM does not end a trainer, but what it forks or starts, as ever."""

from __future__ import annotations

import subprocess
import sys

import pytest
from patience import PATIENCE

TRAINER = """
import os, signal, subprocess, sys
from penstock.tasks.process.termination import leave_to_agent

leave_to_agent()
leave_to_agent()
"""


def said(code):
    command = [sys.executable, "-P", "-c", TRAINER + code]
    return subprocess.check_output(command, text=True, timeout=PATIENCE)


def test_it_goes_on():
    assert said("os.kill(os.getpid(), signal.SIGTERM); print('goes on')") == "goes on\n"


FORK = """
def fork():
    global pid
    there, here = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(here, b"x")
        signal.pause()
    os.read(there, 1)
"""
FORKED = f"{FORK}\nfork()\n"
FORKED_BY_A_THREAD = f"""{FORK}
import threading

thread = threading.Thread(target=fork)
thread.start()
thread.join()
"""
STARTED = """
pid = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]).pid
"""


@pytest.mark.parametrize("child", [FORKED, FORKED_BY_A_THREAD, STARTED])
def test_a_child_ends(child):
    ends = "os.kill(pid, signal.SIGTERM); print(-os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    assert said(child + ends) == "15\n"


def test_a_handler_of_user_code_stays_in_what_it_forks():
    own = "signal.signal(signal.SIGTERM, lambda *_: os._exit(7))\n"
    ends = """
if (pid := os.fork()) == 0:
    os.kill(os.getpid(), signal.SIGTERM)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert said(own + ends) == "7\n"
