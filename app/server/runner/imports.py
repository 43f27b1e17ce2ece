"""Check that an imported study could be a study that Penstock ran itself.

An export is a text file that anybody can edit. An inconsistent file would be shown as a study's
result forever. So an import with an inconsistency is refused before anything is written, with the
name of the field.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any

from ....base.errors import UsageError
from ....scheduler.model.events import StudyImported
from ....scheduler.model.finished import FinishedTrial
from ....scheduler.model.study import OVER, StudySpec, number_of, study_of_trial, trial_id
from ....scheduler.model.trial import FINAL, TrialState
from ....tasks.objectives.distributions import from_text
from ....tasks.objectives.history import History
from ...spec.space import check_params

#: The form of a study's id. The names of the study's reports and logs contain the id.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
#: The contracts under which a trial can have a final value that is not the value of an epoch.
_OWN_VALUES = ("objective", "ask")
#: The states that a trial of a local study may have, besides the final states, when its study is
#: over. Such a trial was enqueued or asked for and never got a result.
_LEFT = frozenset({TrialState.PROPOSED, TrialState.RUNNING})


def check_imported(event: StudyImported) -> None:
    """Check every field of an imported study against the other fields.

    Raises UsageError for the first field that does not agree with the others.
    """
    record, trials = event.record, event.trials
    spec = record.spec
    if not _ID.fullmatch(spec.id):
        raise UsageError.refuse("spec.id", spec.id, "letters, digits and . _ -")
    if record.status not in OVER or record.finished_at is None:
        raise UsageError.refuse("status", record.status, f"{', '.join(OVER)}: a study that is over")
    numbers = [trial.number for trial in trials]
    if sorted(numbers) != list(range(len(numbers))):
        allowed = f"each number from 0 to {len(numbers) - 1} once"
        raise UsageError.refuse("trials.number", sorted(numbers), allowed)
    for trial in trials:
        _check_trial(spec, trial, len(trials))
    _check_taken_over(spec, trials)
    for name in ("user_attrs", "system_attrs"):
        try:
            History().apply({name: getattr(event, name)})
        except Exception as error:  # a stranger's text may lead to any error
            words = f"{name} are refused: they are no JSON texts ({error})"
            raise UsageError(words, name) from error


def _check_trial(spec: StudySpec, trial: FinishedTrial, n_trials: int) -> None:
    def refuse(field: str, value: object, allowed: str) -> UsageError:
        return UsageError.refuse(f"{field} of trial {trial.number}", value, allowed)

    states = FINAL | _LEFT if spec.local else FINAL
    if trial.state not in states:
        raise refuse("state", str(trial.state), ", ".join(sorted(states)))
    begin = 0
    if trial.origin is not None:
        begin = trial.origin.epoch
        for name in filter(None, (trial.origin.trial, trial.origin.replaces)):
            if not 0 <= number_of(name) < n_trials:
                raise refuse("origin", number_of(name), "a trial that is in the file")
    epochs = [each.epoch for each in trial.epochs]
    # The number is compared first, because a list up to a huge epoch would fill the memory.
    if len(epochs) != max(0, trial.epoch - begin) or epochs != [*range(begin + 1, trial.epoch + 1)]:
        raise refuse("epochs", epochs, f"{begin + 1} to its epoch, {trial.epoch}, each once")
    for each in trial.epochs:
        if each.trial != trial_id(spec.id, trial.number):
            raise refuse("epochs", each.trial, "its own")
        if not _same(dict(each.metrics).get(spec.metric), each.value):
            allowed = f"its {spec.metric} among its metrics"
            raise refuse(f"value after epoch {each.epoch}", each.value, allowed)
    _check_value(spec, trial, refuse)
    if (trial.failure is None) == (trial.state is TrialState.FAILED):
        raise refuse("failure", trial.failure, "one of a trial that failed, and of no other")
    _check_params(spec, trial, refuse)


def _check_taken_over(spec: StudySpec, trials: Sequence[FinishedTrial]) -> None:
    """Check that every epoch taken over from a trial was trained by that trial to the same bits.

    If the study has a data token, an epoch from a trial of another study, which is not in the
    import, is not checked. Raises UsageError for the first epoch whose source does not fit.
    """
    trained = {
        (each.trial, each.epoch): each.state_hash
        for trial in trials
        for each in trial.epochs
        if not each.taken_from
    }
    for trial in trials:
        for each in trial.epochs:
            source_hash = trained.get((each.taken_from, each.epoch))
            if spec.data_token and each.taken_from and study_of_trial(each.taken_from) != spec.id:
                continue
            if each.taken_from and (source_hash != each.state_hash or spec.seeding != "shared"):
                field = f"taken_from of epoch {each.epoch} of trial {trial.number}"
                allowed = "a trial of a study with shared seeding that trained it to the same bits"
                raise UsageError.refuse(field, each.taken_from, allowed)


def _check_value(spec: StudySpec, trial: FinishedTrial, refuse: Any) -> None:
    if trial.value is None and trial.state is TrialState.COMPLETED:
        raise refuse("value", None, "a number: it is completed")
    if spec.contract not in _OWN_VALUES and trial.epochs:
        last = trial.epochs[-1].value
        if not _same(trial.value, last):
            raise refuse("value", trial.value, f"that of its last epoch, {last}")
    count = 0 if trial.value is None else len(spec.further)
    if len(trial.further) != count:
        raise refuse("further", list(trial.further), f"{count} numbers")


def _check_params(spec: StudySpec, trial: FinishedTrial, refuse: Any) -> None:
    params = dict(trial.params)
    try:
        configuration = check_params(spec.space, params, spec.conditions)
    except UsageError as error:
        raise UsageError(f"trial {trial.number}: {error}", error.field) from error
    if spec.space is not None and not spec.conditions and len(configuration) < len(spec.space):
        lacking = [name for name, _ in spec.space if name not in params]
        raise refuse("params", sorted(params), f"those of the space: {', '.join(lacking)} too")
    for name, text in trial.drawn:
        try:
            from_text(text)
        except Exception as error:  # anything Optuna may raise
            raise refuse(f"drawn[{name!r}]", text, "a distribution of Optuna's") from error
    try:
        History().apply({"n": trial.number} | json.loads(trial.written or "{}"))
    except Exception as error:  # a stranger's text may lead to any error
        raise refuse("written", trial.written[:80], "what Penstock exports") from error


def _same(one: float | None, other: float | None) -> bool:
    """Return True if the two numbers are equal, or both are None, or both are NaN."""
    if one is None or other is None:
        return one is other
    return one == other or (math.isnan(one) and math.isnan(other))
