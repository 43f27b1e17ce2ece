"""Run a user's sampler in a process next to the scheduler, which asks it questions line by line.

Theory of operation. If the scheduler samples, a sampler of a user's class runs here, cut off from
the scheduler. The scheduler writes one line of JSON for each question, with all changes of the
study's trials since the last one. The sampler sees Optuna's own ``Study`` and ``Trial`` over a
``TrainerStorage``, as it does in a trainer with an objective, and is called as Optuna calls it:
``after_trial`` for ended trials, then ``before_trial`` and a relative and an independent sample for
the trial that begins.

System attributes that a sampler sets on the trial that it draws are part of the answer, and so are
those that it sets on the study, under ``STUDY_NOTES``. The scheduler keeps both, and passes them to
a process that is started again. All other state of a sampler is lost with its process.
"""

from __future__ import annotations

import copy
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import TrialState

from ...base.errors import BackendError, PenstockError, UsageError
from ...base.wording import worded
from ..contracts.workspace import Workspace
from ..process.failure import failure_of, where
from ..process.lifeline import end_all
from .distributions import from_text, scalar_of
from .history import STATES
from .objects import StoredObject
from .pending import PendingWrite
from .storage import TrainerStorage
from .study import ObjectiveTrial, TrainerStudy
from .wire import attributes

#: The key in a trial's notes for the sampler's notes on the study.
STUDY_NOTES = "penstock:study"
#: Seconds between attempts to read the sampler from the store; 0 after the last attempt.
_WAITS = (1.0, 2.0, 4.0, 8.0, 0.0)
_Condition = tuple[str, str, Sequence[Any]]


class HostedStudy:
    """The study that the sampler sees, and the trials that it draws."""

    def __init__(self, name: str, directions: Sequence[str], sampler: Any) -> None:
        ways = [StudyDirection[each.upper()] for each in directions]
        self._storage = TrainerStorage(name, ways)
        self._storage.reads.link = self
        self._study = TrainerStudy(name, self._storage, sampler, optuna.pruners.NopPruner())
        self._sampler = sampler
        self._trials: dict[int, ObjectiveTrial] = {}
        self._numbers_seen: set[int] = set()
        self._study_notes: dict[str, Any] = {}
        #: Writes of the trial that was drawn last.
        self._pending = PendingWrite()
        self._stopped = False

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to one question.

        Raises the sampler's errors, and ``UsageError`` for a value outside of its range.
        """
        self._take_in(question["updates"])
        for number, state, values in question["ended"]:
            self._tell(number, STATES[state], [float(value) for value in values] or None)
        if "suggest" in question:
            return {"value": self._suggest(**question["suggest"])}
        dists = {name: from_text(text) for name, text in question["space"] or ()}
        trials = []
        for each in question["draw"]:
            if self._stopped:
                break
            params = self._draw(each["number"], each["fixed"], dists, question["conditions"])
            trials.append({"params": params, "notes": self._notes()})
        return {"drawn": trials, "stopped": self._stopped}

    # -- results of trials -----------------------------------------------------------------------

    def _take_in(self, updates: Sequence[Mapping[str, Any]]) -> None:
        for update in updates:
            number, notes = update.get("n"), update.get("system_attrs", ())
            # Notes with a trial that was drawn here are known, and later notes may have replaced
            # them.
            if number is not None and number not in self._numbers_seen:
                self._numbers_seen.add(number)
                of_study = json.loads(dict(notes).get(STUDY_NOTES, "{}"))
                self._storage.history.apply({"system_attrs": attributes(of_study)})
            pairs = [pair for pair in notes if pair[0] != STUDY_NOTES]
            self._storage.history.apply({**update, "system_attrs": pairs})

    def _tell(self, number: int, state: TrialState, values: list[float] | None) -> None:
        """Tell the sampler of a trial that has ended. The sampler may still write to the trial."""
        self._trials.pop(number, None)
        trial = self._storage.history.trials[number]
        running = copy.copy(trial)
        running.state, running.values = TrialState.RUNNING, None
        self._storage.history.replace(running)
        self._storage.resume(number, self)
        self._sampler.after_trial(self._study, copy.copy(running), state, values)
        told_trial = copy.copy(trial)
        told_trial.system_attrs = self._storage.history.trials[number].system_attrs
        self._storage.history.replace(told_trial)
        self._pending.take()

    # -- drawing ---------------------------------------------------------------------------------

    def _draw(
        self,
        number: int,
        fixed: Mapping[str, Any],
        dists: Mapping[str, BaseDistribution],
        conditions: Sequence[_Condition],
    ) -> dict[str, Any]:
        """Return the active parameters of a new trial, with those that the user ``fixed``."""
        trial = self._begin(number, attributes({"fixed_params": dict(fixed)} if fixed else {}))
        _ = trial.relative_params  # drawn now, so that the notes made with them are in the answer
        params: dict[str, Any] = {} if dists else dict(fixed)
        for name, dist in dists.items():
            if _is_active(name, conditions, params):
                params[name] = _value(trial, name, dist)
        return params

    def _suggest(self, number: int, name: str, distribution: str) -> Any:
        """Return the value of a parameter that a running objective asks for."""
        trial = self._trials.get(number) or self._begin(number, ())
        self._storage.resume(number, self)
        self._study.forget_cache()
        return _value(trial, name, from_text(distribution))

    def _begin(self, number: int, system_attrs: Sequence[tuple[str, str]]) -> ObjectiveTrial:
        self._pending.take()
        self._storage.begin(number, self, system_attrs)
        self._storage.end(number)  # the trial runs in another process
        self._study.forget_cache()
        self._numbers_seen.add(number)
        trial = self._trials[number] = ObjectiveTrial(self._study, number)
        return trial

    def _notes(self) -> dict[str, Any]:
        """Return the sampler's notes on the trial drawn last, and its new notes on the study."""
        notes = _plain(self._pending.take().get("system_attrs", ()))
        if self._study_notes:
            notes[STUDY_NOTES], self._study_notes = self._study_notes, {}
        return notes

    # -- requests of the storage -----------------------------------------------------------------

    def updates(self) -> Sequence[Mapping[str, Any]]:
        """Return nothing: all changes come with the question."""
        return ()

    def request(self, kind: str, **body: Any) -> dict[str, Any]:
        """Keep the sampler's notes on the study, or note that it stops the study.

        Raises ``UsageError`` for any other command.
        """
        if kind == "stop":
            self._stopped = True
        elif kind == "annotate":
            self._study_notes |= _plain(body["writing"].get("system_attrs", ()))
        else:
            raise UsageError("tried to add a trial, or to write to one that it does not draw")
        return {}

    def keep(self, value: Any) -> str:
        """Raise ``TypeError``: a sampler's notes are JSON."""
        raise TypeError("a sampler's notes are JSON")

    def open(self, stored: StoredObject) -> Any:
        """Return the placeholder itself: users' objects are opened in trainers and scripts."""
        return stored

    def write(self, writing: Mapping[str, Any]) -> None:
        """Keep the sampler's notes on the trial."""
        self._pending.add(writing)

    def told_of(self, name: str) -> bool:
        """Return False: every value that is drawn is in the answer."""
        return False

    def report(self, value: float, step: int) -> None:
        """Do nothing. Never called, since a sampler reports nothing."""

    def suggest(self, name: str, distribution: str) -> Any:
        """Do nothing. Never called, since the sampler is in this process."""

    def repeats(self) -> bool:
        """Return False: nothing is reported here."""
        return False

    def check(self) -> None:
        """Do nothing: the trial may always continue here."""


def _plain(pairs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    return {key: json.loads(text) for key, text in pairs}


def _is_active(name: str, conditions: Sequence[_Condition], params: Mapping[str, Any]) -> bool:
    """Return True if a parameter exists, given the ones before it (``app.spec.conditions``)."""
    return all(
        parent in params and params[parent] in values
        for each, parent, values in conditions
        if each == name
    )


def _value(trial: ObjectiveTrial, name: str, dist: BaseDistribution) -> Any:
    value = trial._suggest(name, dist)
    internal = dist.to_internal_repr(value)
    if not dist._contains(internal):
        raise UsageError(f"drew {name} = {worded(value)}, which is outside of {dist}")
    return scalar_of(dist.to_external_repr(internal))


def _load(given: Mapping[str, Any]) -> HostedStudy:
    sys.argv = list(given["argv"]) or sys.argv
    if given["cwd"] and os.path.isdir(given["cwd"]):  # noqa: PTH112 - it need not be on this machine
        os.chdir(given["cwd"])
    name = given["name"]
    sampler, _ = _opened(name, given["store"], **given["code"])
    if given["anew"]:
        sampler.reseed_rng()  # two samplers of one study must not draw the same
    return HostedStudy(name, given["directions"], sampler)


def _opened(study: str, store: str, *, target: str, path: str, digest: str) -> tuple[Any, Any]:
    """Return the sampler and the pruner.

    If the store does not answer, it is asked again for a while.
    """
    for wait in _WAITS:
        try:
            tools: tuple[Any, Any] = Workspace().load(study, target, path, digest, store)
        except BackendError:
            if not wait:
                raise
            time.sleep(wait)
        else:
            break
    return tools


def main() -> None:
    """Load the sampler, then answer line by line until the scheduler has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # What the sampler prints goes to the scheduler's log; answers have a pipe of their own.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    lines: SimpleQueue[str] = SimpleQueue()
    # Another thread reads, so that a process whose sampler hangs ends with its scheduler, too.
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    study: HostedStudy | None = None
    while True:
        request = json.loads(lines.get())
        try:
            if study is None:
                study, answer = _load(request), {}
            else:
                answer = study.answer(request)
            line = json.dumps(answer, allow_nan=False)
        except (Exception, SystemExit) as error:
            line = json.dumps({"error": _in_words(error)})
        out.write(f"{line}\n")
        out.flush()


def _read(lines: SimpleQueue[str]) -> None:
    for line in sys.stdin:
        lines.put(line)
    end_all()


def _in_words(error: BaseException) -> str:
    if isinstance(error, PenstockError):
        return str(error)
    traceback.print_exception(error)
    failure, line = failure_of(error), where(error)
    return f"raised {failure}" + (f" ({line})" if line else "")


if __name__ == "__main__":
    main()
