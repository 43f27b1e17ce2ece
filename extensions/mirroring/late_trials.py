"""Late trials: trials that end after the script that keeps our study in step with a user's.

Theory of operation. Our study continues without its script, for example after Ctrl-C. Trials that
end then are only in our ledger. So the user's study notes each of our studies that follows it, and
a script holds a lock for each study that it keeps in step, as long as the script lives. The next
script that opens the user's study goes through the noted studies whose lock is free, and adds their
missing trials. A note is a system attribute named after our study. Its value says where the locks
are, or is None if nothing is missing.

The two sides have no common name for a trial, so trials are matched by state, parameters and
values. If several trials agree in all of these, only as many as are missing are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from ...app.host.locks import hold
from ...base.errors import UsageError
from .mirror import NOTE, Mirror, end_waiting

#: A function that returns the trials of our study with an id, and True if the study has ended; None
#: if the study is unknown.
Ask = Callable[[str], tuple[Sequence[FrozenTrial], bool] | None]

#: The mirror and the lock of each study that this process keeps in step until it ends.
_kept: dict[str, tuple[Mirror, ExitStack]] = {}


def keep(mirror: Mirror, study: str, folder: Path, where: str) -> None:
    """Register this process as the one that synchronises ``study`` until the process ends.

    ``folder`` is for locks. ``where`` names the machine that the folder is on, or is empty.
    """
    if study in _kept:
        return
    lock = ExitStack()
    with suppress(UsageError):  # another script that keeps the study in step is enough
        lock.enter_context(hold(folder, study))
    _kept[study] = mirror, lock
    mirror.storage.set_study_system_attr(mirror.study_id, NOTE + study, where)


def bring(mirror: Mirror, ask: Ask, folder: Path, where: str) -> tuple[int, list[str]]:
    """Write the late trials of our studies that the user's study notes and no other script follows.

    Returns the number of trials written, and the ids of the studies that still run, which will have
    more trials.
    """
    storage, study_id = mirror.storage, mirror.study_id
    before = len(storage.get_all_trials(study_id, deepcopy=False))
    running = []
    for key, value in storage.get_study_system_attrs(study_id).items():
        study = key.removeprefix(NOTE)
        if study == key or value != where:
            continue
        with ExitStack() as lock:
            try:
                if study not in _kept:
                    lock.enter_context(hold(folder, study))
            except UsageError:
                continue  # the study's script lives
            answer = ask(study)
            if answer is None:
                continue
            trials, over = answer
            if study in _kept:
                _kept[study][0].sync()
            else:
                _write(storage, study_id, trials)
            if over:
                storage.set_study_system_attr(study_id, key, None)
            else:
                running.append(study)
    return len(storage.get_all_trials(study_id, deepcopy=False)) - before, running


def _write(storage: BaseStorage, study_id: int, trials: Sequence[FrozenTrial]) -> None:
    existing = storage.get_all_trials(study_id, deepcopy=False)
    counts = Counter(_content(trial) for trial in existing if trial.state.is_finished())
    waiting = {_enqueued(t): t._trial_id for t in existing if t.state is TrialState.WAITING}
    for trial in trials:
        content = _content(trial)
        if not trial.state.is_finished():
            continue
        if counts[content]:
            counts[content] -= 1
            continue
        waits = waiting.pop(_enqueued(trial), None)
        if waits is None or not end_waiting(storage, waits, trial):
            storage.create_new_trial(study_id, trial)


def _content(trial: FrozenTrial) -> tuple[Any, ...]:
    steps = sorted(trial.intermediate_values.items())
    return trial.state, repr(sorted(trial.params.items())), repr(trial.values), repr(steps)


def _enqueued(trial: FrozenTrial) -> str:
    """Return, as text, the parameters that a user has fixed for ``trial``."""
    return repr(sorted(trial.system_attrs.get("fixed_params", {"": trial._trial_id}).items()))
