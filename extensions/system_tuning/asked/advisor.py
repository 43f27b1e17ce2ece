"""Ask the history about a workload, in a process of its own.

For each question, a service is fitted to the history. That takes two seconds of a core, and needs
libraries that a scheduler does not load otherwise. So it happens in a process of the lowest
priority, which uses only CPU time that trials do not need. If nothing in the history was faster
than the default, the question is answered at once.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from subprocess import SubprocessError
from time import time
from typing import NamedTuple

from ....app.ledger.history import entries_from_bodies, entries_to_bodies
from ....base.errors import UsageError
from ....profiling.knobs.knobs import OFFERED, SystemConfig
from ....profiling.similarity.history import HistoryEntry, Profile
from ....wire.messages import Forged, parse
from .decisions import Consult

log = logging.getLogger(__name__)

#: Seconds that an answer may take.
ADVICE_TIMEOUT = 600.0


class Advice(NamedTuple):
    """The answer to the ``Consult`` of this id: a configuration to try (or ()), and the reason."""

    consult: str
    workload: str
    config: SystemConfig
    why: str


class Advisor:
    """Answers questions in the background, one at a time."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._asked: list[Future[Advice]] = []

    def consult(self, question: Consult, entries: Sequence[HistoryEntry]) -> None:
        """Ask the history ``entries`` a question. ``answers`` returns the answer later."""
        if not any(_worth_having(entry) for entry in entries):
            future: Future[Advice] = Future()
            why = f"the history of {question.machine} has nothing to reuse"
            future.set_result(Advice(question.id, question.workload, (), why))
            self._asked.append(future)
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="advisor")
        self._asked.append(self._pool.submit(_ask, question, entries))

    def answers(self) -> list[Advice]:
        """Return the answers that are complete since the last call."""
        futures = [each for each in self._asked if each.done()]
        self._asked = [each for each in self._asked if not each.done()]
        return [each.result() for each in futures]


def _worth_having(entry: HistoryEntry) -> bool:
    return bool(entry.config) and not entry.infeasible and entry.speedup > 1


def _ask(question: Consult, entries: Sequence[HistoryEntry]) -> Advice:
    request = {"profile": dict(question.profile), "entries": entries_to_bodies(entries)}
    command = [sys.executable, "-P", "-m", __name__]
    try:
        process = subprocess.run(
            command,
            check=True,
            input=json.dumps(request),
            capture_output=True,
            text=True,
            timeout=ADVICE_TIMEOUT,
        )
        reply = parse(process.stdout)
        config = tuple((str(name), value) for name, value in reply["config"] if name in OFFERED)
        return Advice(question.id, question.workload, config, reply["why"])
    except (OSError, Forged, ValueError, LookupError, TypeError, SubprocessError) as error:
        log.warning("the history gave no answer: %r", error)
        why = "the similarity service gave no answer; the log says more"
        return Advice(question.id, question.workload, (), why)


def main() -> None:
    """Read a question from standard input, and write the answer to standard output."""
    os.nice(19)
    from ....profiling.similarity.service import Similarity

    request = json.load(sys.stdin)
    profile: Profile = tuple(sorted(request["profile"].items()))
    try:
        answer = Similarity.fit(entries_from_bodies(request["entries"])).ask(profile, time())
        config, why = answer.config or (), answer.why
    except UsageError as error:
        config, why = (), str(error)
    json.dump({"config": list(config), "why": why}, sys.stdout)


if __name__ == "__main__":
    main()
