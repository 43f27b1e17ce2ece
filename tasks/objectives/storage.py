"""The storage of Optuna that an objective sees in a trainer: one study, its trials, its attributes.

Theory of operation. Reads (``read_side``) come from a ``History``, which is brought up to date over
the pipe when other trials are read. Writes about the trial that runs here are kept in its history
and sent over the pipe at once, without an answer. The scheduler accepts them under the trial's
fence, so a trainer that no longer counts writes nothing. Any other write of an objective, such as
an enqueued trial, is a request that the scheduler answers.

An objective that starts over in another attempt uploads its artifacts again, and Optuna gives each
a new id. The k-th artifact replaces the k-th one of the earlier attempt, so a trial has each of
them once.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Container, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from optuna.distributions import BaseDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from ...base.errors import UsageError
from ...wire.messages import number_text
from .history import History
from .objects import StoredObject, with_objects, with_objects_of
from .read_side import changed, with_own_dicts
from .wire import check_compatible, record_of
from .write_side import WriteSide

#: Seconds for which the other trials are assumed to be unchanged.
FRESH = 0.05
#: The same if running trials are asked for: a sampler must know the trials that run together with
#: its own.
FRESH_FOR_RUNNING = 0.001
#: Prefix of the keys of Optuna's artifacts. The attribute's value has the artifact's id.
ARTIFACT = "artifacts:"


class Uplink(Protocol):
    """The storage's interface to the trainer, for the trial that runs."""

    def updates(self) -> Sequence[Mapping[str, Any]]:
        """Return the study's updates since the last call."""

    def request(self, kind: str, **body: Any) -> dict[str, Any]:
        """Return the scheduler's answer to a command about the study.

        Raises ``UsageError`` if it is refused.
        """

    def write(self, writing: Mapping[str, Any]) -> None:
        """Take suggestions and attributes of the running trial, in the form of messages."""

    def keep(self, value: Any) -> str:
        """Store an object that is no JSON, and return the text of its placeholder."""

    def open(self, stored: StoredObject) -> Any:
        """Return the object behind a placeholder."""

    def suggest(self, name: str, distribution: str) -> Any:
        """Return the scheduler's value for a parameter.

        Raises ``UsageError`` if the study has no such parameter.
        """

    def told_of(self, name: str) -> bool:
        """Return True if the scheduler must be told of a parameter, to know its distribution.

        Raises ``UsageError`` if the study's space does not have it.
        """

    def report(self, value: float, step: int) -> None:
        """Report an intermediate value of the running trial."""

    def repeats(self) -> bool:
        """Return True if an earlier attempt had more reports accepted than this one has sent."""

    def check(self) -> None:
        """Raise ``Abandoned`` if the running trial must not continue here."""


class TrainerReads:
    """The study as objectives in a trainer read it: its history, kept up to date over the link."""

    def __init__(self, name: str, directions: Sequence[StudyDirection]) -> None:
        self.names = (name,)
        self.directions = directions
        self.history = History()
        self.link: Uplink | None = None
        self._synced_at = -FRESH

    def sync(self) -> None:
        """Bring the other trials up to date."""
        if self.link is not None:
            for update in self.link.updates():
                self.history.apply(update)
        self._synced_at = time.monotonic()

    def linked(self) -> Uplink:
        """Return the link of the running trial. Raises ``RuntimeError`` if no trial runs."""
        if self.link is None:
            raise RuntimeError("no trial runs here")
        return self.link

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The study's attributes, with objects opened."""
        self._refresh()
        return with_objects(dict(self.history.user_attrs), self._open)

    @property
    def system_attrs(self) -> dict[str, Any]:
        """The attributes that Optuna's own code writes."""
        self._refresh()
        return dict(self.history.system_attrs)

    def trials(self, states: Container[TrialState] | None) -> list[FrozenTrial]:
        """Return the trials in these states, or all trials if ``states`` is None."""
        asks_for_running = states is not None and TrialState.RUNNING in states
        self._refresh(FRESH_FOR_RUNNING if asks_for_running else FRESH)
        trials = self.history.select(states)
        return [self._opened(trial) for trial in trials] if self.history.have_objects else trials

    def trial(self, trial_id: int) -> FrozenTrial:
        """Return a copy of a trial. Raises ``KeyError`` if there is none."""
        return self._opened(with_own_dicts(self.known(trial_id)))

    def known(self, trial_id: int) -> FrozenTrial:
        """Return a trial as the history has it. Raises ``KeyError`` if there is none."""
        if not 0 <= trial_id < len(self.history.trials):
            raise KeyError(f"there is no trial {trial_id}")
        return self.history.trials[trial_id]

    def _refresh(self, fresh: float = FRESH) -> None:
        if self.link is not None:
            self.link.check()
        if time.monotonic() - self._synced_at >= fresh:
            self.sync()

    def _opened(self, trial: FrozenTrial) -> FrozenTrial:
        """Return ``trial``, or if it has objects, a copy whose objects are opened when read."""
        holds = trial.number in self.history.have_objects
        return with_objects_of(trial, self._open) if holds else trial

    def _open(self, stored: StoredObject) -> Any:
        return self.linked().open(stored)


class TrainerStorage(WriteSide):
    """One study, whose id is 0. The ids of its trials are their numbers."""

    WHERE = "inside an objective"

    def __init__(self, name: str, directions: Sequence[StudyDirection]) -> None:
        self.reads = TrainerReads(name, directions)
        super().__init__(lambda: {0: self.reads})
        self.history = self.reads.history
        self._running: int | None = None
        #: The artifacts of running trials that earlier attempts uploaded, by trial.
        self._uploaded: dict[int, list[str]] = {}

    def begin(
        self,
        number: int,
        link: Uplink,
        system_attrs: Sequence[tuple[str, str]],
        suggestions: Sequence[tuple[str, str, float]] = (),
    ) -> None:
        """Run trial ``number`` here from now on, served by ``link``.

        The trial has ``system_attrs`` and ``suggestions`` in addition to those in the history.
        """
        self.reads.link = link
        self.reads.sync()
        self.history.apply({"n": number, "system_attrs": system_attrs, "suggestions": suggestions})
        trial = self.history.take(number)
        self._uploaded[number] = [key for key in trial.system_attrs if key.startswith(ARTIFACT)]
        trial.state = TrialState.RUNNING
        trial.intermediate_values = {}  # a repeated attempt reports them again
        trial.values = None
        trial.datetime_start = trial.datetime_start or datetime.now()  # noqa: DTZ005 - as Optuna's
        self.history.replace(trial)
        self._running = number

    def resume(self, number: int, link: Uplink) -> None:
        """Continue trial ``number``, which was suspended."""
        self._running, self.reads.link = number, link

    def end(self, number: int) -> None:
        """Stop writing trial ``number`` here: the scheduler's updates about it count again."""
        self.history.leave(number)
        self._uploaded.pop(number, None)

    def _annotate(self, study_id: int, writing: Mapping[str, Any]) -> None:
        self._ask("annotate", writing=writing)
        self.history.apply(writing)

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        answer = self._ask("add", **record_of(template_trial, self._keep))
        number = int(answer["number"])
        self.reads.sync()
        self.history.apply({"n": number})
        return number

    def _check_param(
        self, trial: FrozenTrial, name: str, internal: float, distribution: BaseDistribution
    ) -> None:
        check_compatible(name, distribution, self.history.trials)
        if trial.number == self._running and name in trial.params:
            before = trial.distributions[name].to_internal_repr(trial.params[name])
            if (before, trial.distributions[name]) != (internal, distribution):
                raise UsageError(f"{name} of trial {trial.number} was drawn already")

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Set a trial's state and values; return False if the trial cannot be started.

        The scheduler learns the end of the running trial from the objective's return.
        """
        trial = self._updatable(trial_id)
        if trial_id != self._running:
            if state is TrialState.RUNNING and trial.state is not TrialState.WAITING:
                return False
            texts = [number_text(value) for value in values or ()]
            self._ask("write", number=trial_id, state=state.name.lower(), values=texts, writing={})
        trial.state = state
        trial.values = [float(value) for value in values] if values is not None else None
        self.history.replace(trial)
        return True

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> None:
        if trial_id != self._running:
            super().set_trial_intermediate_value(trial_id, step, intermediate_value)
            return
        trial = self._updatable(trial_id)
        self.history.replace(changed(trial, intermediate_values=(step, intermediate_value)))
        self.reads.linked().report(intermediate_value, step)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        before = self._uploaded.get(trial_id)
        if before and key.startswith(ARTIFACT):
            key = before.pop(0)  # uploaded again, by a repeated attempt, under another id
        super().set_trial_system_attr(trial_id, key, value)

    def _known(self, trial_id: int) -> FrozenTrial:
        if self.reads.link is not None:
            self.reads.link.check()
        return copy.copy(self.reads.known(trial_id))

    def _write(self, trial: FrozenTrial, writing: Mapping[str, Any]) -> None:
        """Send a write about the running trial, or ask the scheduler to write to another trial."""
        link = self.reads.linked()
        if trial.number != self._running:
            self._ask("write", number=trial.number, writing=writing)
        elif all(link.told_of(name) for name, *_ in writing.get("suggestions", ())):
            link.write(writing)
        self.history.replace(trial)

    def _keep(self, value: Any) -> str:
        return self.reads.linked().keep(value)

    def _ask(self, kind: str, **body: Any) -> dict[str, Any]:
        return self.reads.linked().request(kind, **body)
