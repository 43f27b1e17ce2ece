"""Run users' policies (``module:function``) in a process that can be killed.

Theory of operation. A policy is unknown code: it may raise, hang, or print. So it runs in a child
process (``LineProcess``). Each question and each answer is one line of JSON. The child limits
itself to ``BUDGET`` seconds of CPU time for a plan: a timer of the kernel sends a signal that ends
the child. If the policy sleeps, the caller waits for at most ``PLAN_TIMEOUT`` seconds. A child that
was killed is started again for the next question. A child is also started again if its policy has
failed and the policy's file has changed since. Errors of the child are reported as text, and the
engine decides what follows.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ....base.errors import UsageError
from ....scheduler.model.snapshot import Plan, Policy, Snapshot, find_fault
from ....scheduler.policies.names import CROSS_STUDY, check_name, is_plugin
from ...host.line_process import LineProcess, parsed
from ...ledger.codec import plan_from_json, plan_to_json, snapshot_from_json, snapshot_to_json

#: The largest number of CPU seconds for one plan.
BUDGET = 0.5
#: Seconds to wait for one plan. The time is several times the budget, because the machine may be
#: busy.
PLAN_TIMEOUT = 3.0
#: Seconds in which the child must import the user's module.
START_WITHIN = 60.0


def check_policy(policy: str) -> bool:
    """Return True if ``policy`` orders the trials of all studies together.

    Under such a policy, studies have no shares of the slots. A user's function is such a policy if
    its attribute ``cross_study`` is true. Raises UsageError if no policy has this name, or if the
    user's function cannot be imported.
    """
    if not is_plugin(policy):
        check_name(policy)
        return policy in CROSS_STUDY
    host = PluginHost()
    try:
        return host.load(policy)
    finally:
        host.close()


class PluginHost:
    """The host of users' policies, which asks a policy for plans.

    One policy is loaded at a time.
    """

    def __init__(self) -> None:
        self._child: LineProcess | None = None
        self._name = ""
        self._file: Path | None = None
        self._read_at = 0
        self._failed = False
        self._cross_study = False

    def load(self, policy: str) -> bool:
        """Import ``policy``. Return True if it orders the trials of all studies together.

        Raises UsageError with the reason if ``policy`` cannot be imported.
        """
        if why := self._start(policy):
            allowed = f"module:function that can be imported ({why})"
            raise UsageError.refuse("policy", policy, allowed)
        return self._cross_study

    def _start(self, policy: str) -> str:
        """Load ``policy`` unless it is loaded already.

        Returns the reason if ``policy`` cannot be loaded, otherwise an empty text.
        """
        alive = self._child is not None and self._child.alive
        if (
            alive
            and self._name == policy
            and not (self._failed and self._written_at() != self._read_at)
        ):
            return ""
        self.close()
        self._name = policy
        self._child = LineProcess([sys.executable, "-m", __name__, policy], os.environ)
        answer = self._read(self._child, START_WITHIN)
        if answer is None or "error" in answer:
            self.close()
            return str(answer["error"]) if answer else "its import exited or did not finish"
        self._file = Path(answer["ready"]) if answer["ready"] else None
        self._cross_study = answer["cross_study"] is True
        self._read_at = self._written_at()
        return ""

    def _written_at(self) -> int:
        """Return the time (ns) at which the policy's file was last written, or 0 without a file."""
        if self._file is None:
            return 0
        with suppress(OSError):
            return self._file.stat().st_mtime_ns
        return 0

    def plan(self, policy: str, snapshots: Sequence[Snapshot]) -> tuple[Plan, ...]:
        """Return a plan for each snapshot.

        Raises UsageError with the reason if the policy fails.
        """
        why = self._start(policy)
        self._failed = True
        if why:
            raise UsageError(f"cannot be imported: {why}")
        plans = tuple(self._plan(snapshot) for snapshot in snapshots)
        self._failed = False
        return plans

    def _plan(self, snapshot: Snapshot) -> Plan:
        child = self._child
        assert child is not None
        child.send(snapshot_to_json(snapshot).encode())
        answer = self._read(child, PLAN_TIMEOUT)
        if answer is None:
            status = child.end()
            self._child = None
            raise UsageError(_silence(status if child.silent else None))
        if "error" in answer:
            raise UsageError(answer["error"])
        plan = plan_from_json(json.dumps(answer["plan"]))
        if wrong := find_fault(snapshot, plan):
            raise UsageError(wrong)
        return plan

    @staticmethod
    def _read(child: LineProcess, seconds: float) -> dict[str, Any] | None:
        """Return the next line of the child.

        Returns None if the child ends, or sends no line for ``seconds`` seconds.
        """
        until = time.monotonic() + seconds
        while (line := child.read()) is None:
            remaining = until - time.monotonic()
            if child.silent or remaining <= 0 or not child.wait(remaining):
                return None
        return parsed(line)

    def close(self) -> None:
        """End the child, if there is one, with all processes that it started."""
        if self._child is not None:
            self._child.end()
        self._child = None


def _silence(status: int | None) -> str:
    """Return the reason why a child gave no answer.

    ``status`` is the child's exit status, or None if the child still runs.
    """
    if status is None:
        return f"gave no plan within {PLAN_TIMEOUT:g} s"
    if status == -signal.SIGPROF:
        return f"took more than {BUDGET:g} s of CPU time for a plan"
    if status < 0:
        return f"was ended by {signal.Signals(-status).name}"
    return f"ended its process, with exit status {status}"


def main() -> None:
    """Run the child process: import the policy, then answer each line until the caller is gone."""
    # When the budget is exceeded, the log shows where the policy was.
    faulthandler.register(signal.SIGPROF, chain=True)
    # What the policy prints goes to the log; answers have a pipe of their own.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**answer: Any) -> None:
        out.write(json.dumps(answer) + "\n")
        out.flush()

    try:
        policy = _imported(sys.argv[1])
    except UsageError as error:
        say(error=str(error))
        return
    except Exception as error:
        traceback.print_exc()
        say(error=repr(error))
        return
    module = sys.modules[sys.argv[1].partition(":")[0]]
    file = module.__file__ or ""
    say(ready=file, cross_study=bool(getattr(policy, "cross_study", False)))
    reported = set()
    for line in sys.stdin:
        try:
            plan = _limited(policy, snapshot_from_json(line))
        except Exception as error:
            if (trace := traceback.format_exc()) not in reported:
                reported.add(trace)
                sys.stderr.write(trace)
            say(error=f"raised {type(error).__name__}: {error}{_where(error, file)}")
            continue
        if not isinstance(plan, Plan):
            say(error=f"returned a value of type {type(plan).__name__}, where a Plan is expected")
            continue
        try:
            text = plan_to_json(plan)
        except (TypeError, ValueError) as error:
            say(error=f"gave a malformed plan: {error}")
        else:
            say(plan=json.loads(text))


def _where(error: Exception, file: str) -> str:
    """Return the place that raised, for a message.

    The place is the traceback's last line in the user's file, or the traceback's last line if the
    traceback does not enter that file.
    """
    frames = traceback.extract_tb(error.__traceback__)
    last = next((each for each in reversed(frames) if each.filename == file), frames[-1])
    return f" ({last.filename}, line {last.lineno}, in {last.name})"


def _imported(policy: str) -> Policy:
    module, _, name = policy.partition(":")
    try:
        function: Policy | None = getattr(importlib.import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise UsageError(f"there is no module {error.name} in PYTHONPATH") from None
    if not callable(function):
        raise UsageError(f"{module} has no function {name}")
    return function


def _limited(policy: Policy, snapshot: Snapshot) -> object:
    """Return the policy's result. If the policy exceeds its CPU time, this process ends."""
    signal.setitimer(signal.ITIMER_PROF, BUDGET)
    try:
        return policy(snapshot)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main()
