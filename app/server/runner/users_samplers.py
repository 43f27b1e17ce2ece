"""Samplers of users' classes: each draws in a child process, and the scheduler never waits for it.

Theory of operation. A sampler object of a user's class is unknown code: it may raise, hang, or
print. So it runs in a child process, one for each study (``tasks.objectives.sampling``). Each
question and each answer is one line of JSON. The scheduler's loop goes on meanwhile. The scheduler
looks for the answer at each turn, soon after the question and then less and less often. The
scheduler checks an answer and turns it into an event, so a replay needs no sampler. If the
scheduler ends before an answer comes, its successor asks the question again.

A question carries the changes of the study's trials since the last question. The child sees trials
in the form in which the scheduler's own samplers see them (``study_view``).

The study fails if its sampler raises, takes too long or draws outside the space. If the question
was for one parameter of a running objective, only that trial fails. If a child is killed by a
signal, it is started again, at most once for each question.
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

#: Seconds until a question is tried again after the machine or the ledger prevented it.
RETRY_AFTER = 1.0
#: Seconds that a sampler may take for each configuration, or for one parameter.
DRAW_TIMEOUT = 60.0
#: Seconds in which a new child process must import Optuna and load the sampler.
START_WITHIN = 60.0
#: The number of results that a rung must have before a sampler is shown results of that rung.
LEAST = 10
#: The largest size of an answer, in bytes.
LONGEST = 16 << 20
#: Environment variables that limit the child process to one thread, because the machine usually
#: trains trials at the same time.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
_COMMAND = (sys.executable, "-P", "-m", "penstock.tasks.objectives.sampling")
_ANEW = (
    "its sampler began again, with other random numbers: the process that drew earlier trials has"
    " ended"
)

#: A function that returns the writes of a study's objectives since its last call.
Follow = Callable[[], Sequence[Update]]


@dataclass(slots=True)
class _Job:
    """A question that waits for its answer: a request for configurations, or for one parameter.

    ``tries`` counts the child processes that were killed while the question waited.
    """

    asked: Ask | Question
    tries: int = 0


class _Sampler:
    """The sampler of one study, with its child process and its queue of questions."""

    def __init__(self, spec: StudySpec, store: str, follow: Follow) -> None:
        self.spec = spec
        self.jobs: deque[_Job] = deque()
        #: The time (monotonic, in seconds) at which the wait for the child's next line began. None
        #: if the first job was not sent yet.
        self.since: float | None = None
        #: The time (monotonic, in seconds) before which the sampler is not asked again. The time is
        #: set after trouble with the machine or the ledger; ``_trouble`` has the error's text.
        self.not_before = 0.0
        self._trouble = ""
        #: True if the child process was started again after trials were drawn, and the user was not
        #: told yet.
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
        """Send the first question. If the machine or ledger prevents it, retry after a pause."""
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
        """Send the first question, after the sampler itself if the child process is new.

        Raises OSError if the process cannot be started, and BackendError if the ledger cannot be
        read.
        """
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
        """Return the changes of trials since the last question, in the form that the child reads.

        The numbers of the study's observations (results from earlier studies) come before trial 0.
        """
        first, spec = len(self.spec.observations), self.spec
        self._view.show(trials, self._least, spec.observations)
        updates: list[Update] = []
        if not self._trials_shown:
            updates += [_update(n, "fail") for n in range(first)]  # updates of shown ones follow
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
        """Return the child's answer to the first question, or None if the answer has not arrived.

        Raises UsageError with the reason if the sampler has failed.
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
        """Raise UsageError if the child will not answer.

        A child that was killed by a signal for the first time is started again with the next turn.
        """
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
        """End the child process, if there is one."""
        if self._child is not None:
            self._child.end()
        self._child = self.since = None


class UsersSamplers:
    """The samplers of users' classes, of all studies, whose answers become events."""

    def __init__(self, store: str, follow: Callable[[str], Follow]) -> None:
        """Create the object without any sampler.

        A study's sampler is added with its first question. ``store`` is the URI of the store with
        code by value (sent as a pickle). ``follow`` takes a study's id and returns the function
        that reads the new writes of the study's objectives.
        """
        self._store = store
        self._follow = follow
        self._samplers: dict[str, _Sampler] = {}

    def ask(self, spec: StudySpec, asked: Ask | Question) -> None:
        """Queue a question for configurations or for a parameter.

        Nothing happens if the same question is in the queue already.
        """
        sampler = self._samplers.get(spec.id)
        if sampler is None:
            sampler = _Sampler(spec, self._store, self._follow(spec.id))
            self._samplers[spec.id] = sampler
        if all(job.asked != asked for job in sampler.jobs):
            sampler.jobs.append(_Job(asked))

    def begin(self, state: EngineState) -> None:
        """Ask each sampler that has no question pending.

        Call this after everything in ``state`` is in the ledger. Stale questions are dropped, and
        samplers of studies that are over are closed.
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
        """Return the seconds until ``answers`` should be called.

        Returns None if no question is pending.
        """
        since = [each.since for each in self._samplers.values() if each.since is not None]
        if not since:
            return None
        return min(0.25, max(0.002, (time.monotonic() - max(since)) / 4))

    def answers(self, state: EngineState, at: float) -> Iterator[answers.Outcome]:
        """Yield the outcomes of answers that have arrived.

        The caller must let the engine handle each outcome's event before it takes the next outcome.
        """
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
        """End the child processes of all samplers."""
        for sampler in self._samplers.values():
            sampler.close()
        self._samplers = {}


def _is_stale(asked: Ask | Question, state: EngineState) -> bool:
    """Return True if nobody waits for the answer to ``asked`` any more."""
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
