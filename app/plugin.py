"""Policies of the user's, ``module:function``, in a process of their own that can be cut off.

Theory of operation. A policy is code that nobody here has read: it may raise, hang, or print. So it
runs in a child process, one line of JSON for each question and each answer. The child limits itself
to ``BUDGET`` seconds of CPU time a plan by a timer of the kernel's, whose signal ends it; for one
that sleeps the caller waits no longer than ``PATIENCE``. What was cut off is started anew when it
is asked again. Errors of the child are told in words; the engine decides what follows from them.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ..profiling.errors import UsageError
from ..scheduler.policies import find_policy, is_plugin
from ..scheduler.snapshot import Plan, Policy, Snapshot
from .codec import plan_from_json, plan_to_json, snapshot_from_json, snapshot_to_json

#: CPU seconds that one plan may take.
BUDGET = 0.5
#: Seconds that are waited for one plan: several times its budget, for the machine may be busy.
PATIENCE = 3.0
#: Seconds in which the child has to import the user's module.
START_WITHIN = 60.0


def check_policy(policy: str) -> None:
    """Raise UsageError where there is no policy of that name, or the user's cannot be imported."""
    if not is_plugin(policy):
        find_policy(policy)
        return
    host = PluginHost()
    try:
        host.load(policy)
    finally:
        host.close()


class PluginHost:
    """Asks policies of the user's. One at a time is loaded."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._name = ""
        self._rest = b""

    def load(self, policy: str) -> None:
        """Import ``policy``. UsageError says why it cannot be had."""
        if self._child is not None and self._name == policy and self._child.poll() is None:
            return
        self.close()
        self._name = policy
        self._child = subprocess.Popen(
            [sys.executable, "-m", __name__, policy],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        answer = self._read(START_WITHIN) or {"error": "its import ended or did not end"}
        if "error" in answer:
            self.close()
            allowed = f"module:function that can be imported ({answer['error']})"
            raise UsageError.refuse("policy", policy, allowed)

    def plan(self, policy: str, snapshots: Sequence[Snapshot]) -> tuple[Plan, ...]:
        """A plan for each snapshot. UsageError says what the policy did instead."""
        self.load(policy)
        return tuple(self._plan(snapshot) for snapshot in snapshots)

    def _plan(self, snapshot: Snapshot) -> Plan:
        assert self._child is not None
        assert self._child.stdin is not None
        with suppress(BrokenPipeError):
            self._child.stdin.write(snapshot_to_json(snapshot).encode() + b"\n")
            self._child.stdin.flush()
        answer = self._read(PATIENCE)
        if answer is None:
            overdrawn = self._child.poll() == -signal.SIGPROF
            self.close()
            took = f"{BUDGET:g} s of CPU time" if overdrawn else f"{PATIENCE:g} s"
            raise UsageError(f"took more than {took}, or ended its process")
        if "error" in answer:
            raise UsageError(f"failed: {answer['error']}")
        return plan_from_json(json.dumps(answer["plan"]))

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """The child's next line; None where it ends, or says nothing within ``seconds``."""
        assert self._child is not None
        assert self._child.stdout is not None
        pipe = self._child.stdout.fileno()
        while b"\n" not in self._rest:
            if not select.select([pipe], [], [], seconds)[0]:
                return None
            more = os.read(pipe, 1 << 16)
            if not more:
                self._child.wait()
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the child, if there is one."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
        self._child, self._rest = None, b""


def main() -> None:
    """The child: import, then answer line by line until the caller is gone."""
    # What the policy prints goes to the log; answers have a pipe of their own.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**answer: Any) -> None:
        out.write(json.dumps(answer) + "\n")
        out.flush()

    try:
        policy = _imported(sys.argv[1])
    except Exception as error:
        traceback.print_exc()
        say(error=repr(error))
        return
    say(ready=True)
    for line in sys.stdin:
        try:
            text = plan_to_json(_limited(policy, snapshot_from_json(line)))
        except Exception as error:
            traceback.print_exc()
            say(error=f"{error!r}{_where(error)}")
        else:
            say(plan=json.loads(text))


def _where(error: Exception) -> str:
    """The line of the user's code that raised, where it was that."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f" in {last.filename}, line {last.lineno}" if last.filename != __file__ else ""


def _imported(policy: str) -> Policy:
    module, _, name = policy.partition(":")
    found: Policy = getattr(importlib.import_module(module), name)
    if not callable(found):
        raise TypeError(f"{name} is no function")
    return found


def _limited(policy: Policy, snapshot: Snapshot) -> Plan:
    """The policy's plan, if it is one; beyond its budget of CPU time this process ends."""
    signal.setitimer(signal.ITIMER_PROF, BUDGET)
    try:
        plan = policy(snapshot)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if not isinstance(plan, Plan):
        raise TypeError(f"a Plan is wanted, not {type(plan).__name__}")
    return plan


if __name__ == "__main__":
    main()
