"""The trials of one study as Optuna has them, kept up to date from updates.

An update is a JSON object about one trial (its number is ``n``) or about the study. It says what
holds from now on: a state, values, suggested parameters, intermediate values, attributes. So it may
be applied twice. ``app.server.optuna_bridge.updates`` makes updates from the ledger and from the
engine's events; scheduler, trainers and clients share this form.

Parameters that another process has just sampled for a running trial come ahead of the scheduler's
updates, in an update with ``sampled`` from that trial's worker. They are shown with the running
trial until an update of the scheduler has them. They are dropped when the trial stops running,
since they may never be accepted.

A trial is changed by replacing its object, so that trials returned earlier stay as they were.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping
from datetime import UTC, datetime
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from .distributions import from_text
from .objects import MARK, value_of

#: Optuna's states, by their names in updates.
STATES = {
    "running": TrialState.RUNNING,
    "waiting": TrialState.WAITING,
    "complete": TrialState.COMPLETE,
    "pruned": TrialState.PRUNED,
    "fail": TrialState.FAIL,
}


class History:
    """The trials of one study by number. Trial ``n`` has the id ``first_id + n``."""

    def __init__(self, first_id: int = 0) -> None:
        self._first_id = first_id
        self.trials: list[FrozenTrial] = []
        self.user_attrs: dict[str, Any] = {}
        self.system_attrs: dict[str, Any] = {}
        self._own: set[int] = set()
        self._accepted: dict[int, FrozenTrial] = {}
        self._sampled: dict[int, dict[str, Any]] = {}
        #: The numbers of trials with attributes that are kept as objects (``objects``).
        self.have_objects: set[int] = set()

    def apply(self, update: Mapping[str, Any]) -> None:
        """Apply one update."""
        if "n" not in update:
            self.user_attrs = self.user_attrs | _attributes(update, "user_attrs")
            self.system_attrs = self.system_attrs | _attributes(update, "system_attrs")
            return
        number = update["n"]
        if "sampled" in update:
            by_name = {name: (name, *rest) for name, *rest in update["sampled"]}
            self._sampled[number] = self._sampled.get(number, {}) | by_name
            return
        if number in self._sampled:
            self._settle(number, update)
        while len(self.trials) <= number:
            self.trials.append(self._new(len(self.trials)))
        if any(text.startswith(MARK) for _, text in update.get("user_attrs", ())):
            self.have_objects.add(number)
        if number in self._accepted:
            self._accepted[number] = _updated(self._accepted[number], update)
        if number not in self._own:
            self.trials[number] = _updated(self.trials[number], update)

    def _settle(self, number: int, update: Mapping[str, Any]) -> None:
        """Forget a trial's sampled parameters that ``update`` has, or all if it stops running."""
        names = {name for name, _, _ in update.get("suggestions", ())}
        unsettled = {
            name: each for name, each in self._sampled.pop(number).items() if name not in names
        }
        if unsettled and update.get("state", "running") == "running":
            self._sampled[number] = unsettled

    def take(self, number: int) -> FrozenTrial:
        """Return a copy of a trial that only this process writes from now on.

        Updates about the trial then only repeat this process's own writes. Writes of an earlier
        attempt in this process count only if updates have them.
        """
        accepted = self._accepted.setdefault(number, self.trials[number])
        self._own.add(number)
        return copy.copy(accepted)

    def leave(self, number: int) -> None:
        """Stop writing the trial in this process: updates about the trial count again.

        Another thread may already have applied the update with the trial's end, which does not come
        again.
        """
        self._own.discard(number)
        accepted = self._accepted.get(number)
        if accepted is not None and accepted.state.is_finished():
            self.trials[number] = accepted

    def owns(self, number: int) -> bool:
        """Return True if this process writes the trial."""
        return number in self._own

    def replace(self, trial: FrozenTrial) -> None:
        """Replace a trial that this process has changed by ``trial``."""
        self.trials[trial.number] = trial

    def select(self, states: Container[TrialState] | None) -> list[FrozenTrial]:
        """Return the trials in these states, or all trials if ``states`` is None."""
        trials = [trial for trial in self.trials if states is None or trial.state in states]
        return [self._with_sampled(trial) for trial in trials] if self._sampled else trials

    def _with_sampled(self, trial: FrozenTrial) -> FrozenTrial:
        sampled = self._sampled.get(trial.number)
        if sampled is None or trial.number in self._own or trial.state is not TrialState.RUNNING:
            return trial
        return _updated(trial, {"suggestions": sampled.values()})

    def _new(self, number: int) -> FrozenTrial:
        return FrozenTrial(
            number=number,
            trial_id=self._first_id + number,
            state=TrialState.RUNNING,
            value=None,
            datetime_start=None,
            datetime_complete=None,
            params={},
            distributions={},
            user_attrs={},
            system_attrs={},
            intermediate_values={},
        )


def _updated(trial: FrozenTrial, update: Mapping[str, Any]) -> FrozenTrial:
    changed = copy.copy(trial)
    if suggestions := update.get("suggestions"):
        dists = {name: from_text(text) for name, text, _ in suggestions}
        params = {name: dists[name].to_external_repr(float(i)) for name, _, i in suggestions}
        changed.distributions = {**trial.distributions, **dists}
        changed.params = {**trial.params, **params}
    for name in ("user_attrs", "system_attrs"):
        if name in update:
            setattr(changed, name, {**getattr(trial, name), **_attributes(update, name)})
    if "steps" in update:
        steps = {int(step): float(value) for step, value in update["steps"]}
        changed.intermediate_values = {**trial.intermediate_values, **steps}
    if "state" in update:
        changed.state = STATES[update["state"]]
        changed.values = [float(value) for value in update["values"]] or None
        changed.datetime_complete = local_time(update["ended"])
    if update.get("started") is not None:
        changed.datetime_start = local_time(update["started"])
    return changed


def _attributes(update: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value_of(text) for key, text in update.get(name, ())}


def local_time(at: float | None) -> datetime | None:
    """Return ``at`` (seconds) as local time without a zone, as Optuna has it."""
    if at is None:
        return None
    return datetime.fromtimestamp(at, tz=UTC).astimezone().replace(tzinfo=None)
