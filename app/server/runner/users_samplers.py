"""Samplers of users' classes: each draws in a process of its own, and nobody waits for it.

Theory of operation. Where the scheduler samples, a sampler object of a user's class is unknown
code: it may raise, hang, or print. So it runs in a child process, one for each study
(``tasks.objectives.sampling``), with a line of JSON for each question and each answer. Meanwhile
the scheduler goes on: it looks for answers at each turn, soon after a question and then less and
less often. An answer is checked, and becomes an event, so a replay needs no sampler. A question
that was not answered when the scheduler ended is asked again by its successor.

A question carries what has changed in the study's trials since the last one. Trials are shown in
the same form as to the scheduler's own samplers (``study_view``). If a sampler raises, takes too
long or draws outside the space, the study fails; if the question was for one parameter of a running
objective, only that trial fails. A child that was killed is started again, once for each question.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from optuna.distributions import json_to_distribution
from optuna.trial import FrozenTrial

from ....base.errors import BackendError, UsageError
from ....scheduler.model.decisions import Ask
from ....scheduler.model.events import Remarked
from ....scheduler.model.study import StudySpec, trial_id
from ....scheduler.model.trial import FINAL, Trial
from ....scheduler.state.state import EngineState
from ....scheduler.strategies.base import rungs_of
from ....tasks.objectives.wire import attributes
from ....wire.messages import number_text
from ...host.line_process import LineProcess, parsed
from ..optuna_bridge.study_view import StudyView
from ..optuna_bridge.updates import STATES, Update
from . import answers
from .reports import Question

log = logging.getLogger(__name__)

#: Seconds until a question that could not be asked, due to the machine or ledger, is tried again.
RETRY_AFTER = 1.0
#: Seconds that a sampler may take for one configuration or parameter.
DRAW_TIMEOUT = 60.0
#: Seconds in which the process must have imported Optuna and loaded the sampler.
START_WITHIN = 60.0
#: The number of results at a rung from which a sampler is shown that rung.
LEAST = 10
#: The most bytes of an answer.
LONGEST = 16 << 20
#: The environment of the process: the machine usually trains as well.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_COMMAND = (sys.executable, "-P", "-m", "penstock.tasks.objectives.sampling")
_ANEW = (
    "its sampler began again, with other random numbers: the process that drew earlier trials has"
    " ended"
)

#: A function that returns what objectives have written in a study since its last call.
Follow = Callable[[], Sequence[Update]]


@dataclass(slots=True)
class _Job:
    """A question that waits for its answer: an ``Ask``, or a parameter of a running objective."""

    asked: Ask | Question
    tries: int = 0


class _Sampler:
    """The sampler of one study."""

    def __init__(self, spec: StudySpec, store: str, follow: Follow) -> None:
        self.spec = spec
        self.jobs: deque[_Job] = deque()
        #: The time at which the first job was sent, or None if it was not sent yet.
        self.since: float | None = None
        #: The time before which the sampler is not asked again, and the trouble with the machine or
        #: the ledger that is the reason.
        self.not_before = 0.0
        self._trouble = ""
        #: True if the process was restarted since a trial was drawn, and this was not reported yet.
        self.anew = False
        self._store = store
        self._follow = follow
        self._child: LineProcess | None = None
        self._loading = False
        dists = {name: json_to_distribution(text) for name, text in spec.space or ()}
        self._view = StudyView(spec, dists)
        self._writes: list[Update] = []
        self._trials_shown: dict[int, FrozenTrial] = {}
        self._numbers_told: set[int] = set()
        options = json.loads(spec.sampler_options)
        self.name = str(options.get("sampler"))
        # Whole generations, for a sampler that has generations, arrive only at the lowest rung.
        self._least = None if options.get("generations") and rungs_of(spec.strategy) else LEAST

    # -- asking ----------------------------------------------------------------------------------

    def begin(self, trials: Sequence[Trial]) -> None:
        """Send the first job; if the machine or the ledger is in trouble, try again later."""
        try:
            self._begin(trials)
            self._trouble = ""
        except (OSError, BackendError) as error:
            if str(error) != self._trouble:
                log.warning(
                    "the sampler of %s cannot be asked now, so it is tried again: %s",
                    self.spec.name,
                    error,
                )
            self._trouble = str(error)
            self.not_before = time.monotonic() + RETRY_AFTER

    def _begin(self, trials: Sequence[Trial]) -> None:
        """Send the first job. If the process is new, send the sampler before it."""
        if self._child is None:
            self._child = LineProcess(_COMMAND, {**os.environ, **_ONE_THREAD})
            self._loading = True
            self._trials_shown, self._numbers_told = {}, set()
            self.anew = bool(trials)
            self._send(self._setting())
        self._writes += self._follow()
        self.since = time.monotonic()
        if not self._loading:
            self._send(self._question(trials))

    def _setting(self) -> dict[str, Any]:
        spec, code = self.spec, self.spec.tools
        assert code is not None
        return {
            "name": spec.name,
            "directions": [each.direction for each in spec.objectives],
            "code": {"target": code.target, "path": code.path, "digest": code.digest},
            "store": self._store,
            "argv": spec.argv,
            "cwd": spec.cwd,
            "anew": self.anew,
        }

    def _question(self, trials: Sequence[Trial]) -> dict[str, Any]:
        spec, subject, first = self.spec, self.jobs[0].asked, len(self.spec.observations)
        question = {"updates": self._updates(trials), "ended": self._ended(trials)}
        if isinstance(subject, Question):
            number = next(each.number for each in trials if each.id == subject.trial)
            asked_for = {"name": subject.name, "distribution": subject.distribution}
            return {**question, "suggest": {"number": first + number, **asked_for}}
        fixed = [dict(params) for params in subject.enqueued]
        fixed += [{} for _ in range(subject.n - len(fixed))]
        numbers = range(first + len(trials), first + len(trials) + subject.n)
        return {
            **question,
            "space": spec.space,
            "conditions": [(each.name, each.parent, each.values) for each in spec.conditions],
            "draw": [{"number": n, "fixed": f} for n, f in zip(numbers, fixed, strict=True)],
        }

    def _updates(self, trials: Sequence[Trial]) -> list[Update]:
        """Return the changes of trials as samplers see them. Observations come before trial 0."""
        first, spec = len(self.spec.observations), self.spec
        self._view.show(trials, self._least, spec.observations)
        updates: list[Update] = []
        if not self._trials_shown:
            updates += [_update(n, "fail") for n in range(first)]  # but those that are shown
        for frozen in self._view.shown:
            shown_before = self._trials_shown.get(frozen.number)
            if shown_before is frozen or (frozen.number < 0 and shown_before == frozen):
                continue
            self._trials_shown[frozen.number] = frozen
            times = trials[frozen.number] if frozen.number >= 0 else None
            update = _update(first + frozen.number, frozen.state.name.lower(), frozen, times)
            texts = dict(spec.space or ())
            update["suggestions"] = [
                (name, texts[name], frozen.distributions[name].to_internal_repr(value))
                for name, value in frozen.params.items()
            ]
            updates.append(update)
        writes, self._writes = self._writes, []
        return [*updates, *({**u, "n": first + u["n"]} if "n" in u else u for u in writes)]

    def _ended(self, trials: Sequence[Trial]) -> list[tuple[int, str, list[float | str]]]:
        """Return number, state and values of each trial that has ended since the last question."""
        endings = []
        for trial in trials:
            if trial.state in FINAL and trial.number not in self._numbers_told:
                self._numbers_told.add(trial.number)
                values = () if trial.value is None else (trial.value, *trial.further)
                number = len(self.spec.observations) + trial.number
                endings.append((number, STATES[trial.state], [number_text(v) for v in values]))
        return endings

    def _send(self, body: Mapping[str, Any]) -> None:
        assert self._child is not None
        self._child.send(json.dumps(body).encode())

    # -- hearing ---------------------------------------------------------------------------------

    def hear(self, trials: Sequence[Trial]) -> dict[str, Any] | None:
        """Return the answer to the first job; None if there is none yet.

        Raises UsageError, with the sampler's failure, if there will be none.
        """
        assert self._child is not None
        assert self.since is not None
        line = self._child.read()
        if line is None:
            self._check_silence(self._child)
            return None
        answer = parsed(line)
        if "error" in answer:
            text = str(answer["error"]).removeprefix(f"{self.name} ")
            if self._loading:
                self.close()
            raise UsageError(text)
        if self._loading:
            self._loading, self.since = False, time.monotonic()
            self._send(self._question(trials))
            return None
        self.since = None
        return answer

    def _check_silence(self, child: LineProcess) -> None:
        """Raise UsageError if no answer will come; let a process that was killed start again."""
        job, waited = self.jobs[0], time.monotonic() - (self.since or 0.0)
        if child.silent:
            status = child.end()
            self._child = self.since = None
            job.tries += 1
            if status >= 0 or job.tries > 1:
                by = f"exit status {status}" if status >= 0 else signal.Signals(-status).name
                raise UsageError(f"ended its process, with {by}")
            return
        draws = job.asked.n if isinstance(job.asked, Ask) else 1
        limit = START_WITHIN if self._loading else DRAW_TIMEOUT * draws
        if waited > limit:
            self.close()
            failure = "could not be loaded" if self._loading else "drew nothing"
            raise UsageError(f"{failure} within {limit:g} s")
        if child.received > LONGEST:
            self.close()
            raise UsageError(f"gave an answer of more than {LONGEST >> 20} MiB")

    def close(self) -> None:
        """End the process, if there is one."""
        if self._child is not None:
            self._child.end()
        self._child = self.since = None


class UsersSamplers:
    """Asks samplers of users' classes, and turns their answers into events."""

    def __init__(self, store: str, follow: Callable[[str], Follow]) -> None:
        """``store`` has code by value; ``follow`` returns the reader of a study's new writes."""
        self._store = store
        self._follow = follow
        self._samplers: dict[str, _Sampler] = {}

    def ask(self, spec: StudySpec, asked: Ask | Question) -> None:
        """Ask for configurations, or for a parameter. A question that waits is not repeated."""
        sampler = self._samplers.get(spec.id)
        if sampler is None:
            sampler = _Sampler(spec, self._store, self._follow(spec.id))
            self._samplers[spec.id] = sampler
        if all(job.asked != asked for job in sampler.jobs):
            sampler.jobs.append(_Job(asked))

    def begin(self, state: EngineState) -> None:
        """Ask each sampler that has no question pending.

        Call this once the ledger has all of ``state``.
        """
        for study, sampler in list(self._samplers.items()):
            if study not in state.studies:
                sampler.close()
                del self._samplers[study]
                continue
            while sampler.jobs and _is_stale(sampler.jobs[0].asked, state):
                sampler.jobs.popleft()
            waits = sampler.jobs and sampler.since is None
            if waits and time.monotonic() >= sampler.not_before:
                sampler.begin(answers.trials_of(state, study))

    def due(self) -> float | None:
        """Return the seconds until ``answers`` is worth a call; None if no question is pending."""
        since = [each.since for each in self._samplers.values() if each.since is not None]
        if not since:
            return None
        return min(0.25, max(0.002, (time.monotonic() - max(since)) / 4))

    def answers(self, state: EngineState, at: float) -> Iterator[answers.Outcome]:
        """Yield answers. The engine must handle each one's event before the next is taken."""
        for study, sampler in list(self._samplers.items()):
            if sampler.since is None or study not in state.studies:
                continue
            job = sampler.jobs[0]
            try:
                answer = sampler.hear(answers.trials_of(state, study))
                if answer is None:
                    continue
                outcome = answers.outcome(sampler.spec, job.asked, answer, at)
            except UsageError as error:
                sampler.since = None
                why = f"the sampler {sampler.name} {error}"
                outcome = answers.no_answer(sampler.spec, job.asked, why, at)
            sampler.jobs.popleft()
            number = len(state.studies[study].trials)
            yield outcome
            trial = trial_id(study, number) if isinstance(job.asked, Ask) else job.asked.trial
            if sampler.anew and trial in state.trials:
                sampler.anew = False
                fence = state.trials[trial].fence
                yield Remarked(at=at, trial=trial, fence=fence, text=_ANEW), None

    def close(self) -> None:
        """End all processes."""
        for sampler in self._samplers.values():
            sampler.close()
        self._samplers = {}


def _is_stale(asked: Ask | Question, state: EngineState) -> bool:
    """Return True if nobody waits for the answer any more."""
    if isinstance(asked, Ask):
        return asked.index not in state.studies[asked.study].asks
    trial = state.trials.get(asked.trial)
    return trial is None or trial.fence != asked.fence


def _update(
    number: int, state: str, frozen: FrozenTrial | None = None, times: Trial | None = None
) -> dict[str, Any]:
    values = frozen.values if frozen is not None and frozen.values is not None else ()
    return {
        "n": number,
        "state": state,
        "values": [number_text(value) for value in values],
        "started": None if times is None else times.dispatched_at or times.created_at,
        "ended": None if times is None else times.finished_at,
        "system_attrs": [] if frozen is None else attributes(frozen.system_attrs),
    }
