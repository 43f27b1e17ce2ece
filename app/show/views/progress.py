"""Compute a study's progress from rows of the ledger: best trial, remaining epochs, time left.

All functions are pure. The live view, the report and the command line use the same functions, so
their numbers agree. Modules that know the full study specification are imported only where they are
used, since the list of studies needs none of them.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....profiling.devices.signature import agree
from ....scheduler.model.study import number_of
from ....scheduler.model.trial import ADDED, FINAL, TOLD, TrialState
from ....scheduler.strategies.expected import expected_epochs
from ...common.text import count, label, number, status_word
from ...extensions import of_ends
from ...ledger.summary import enqueued_of, front_of, mean_of, trials_expected

if TYPE_CHECKING:
    from ....scheduler.model.study import StrategySpec, StudySpec
    from ....scheduler.state.state import DeviceRecord
    from ...ledger.rows import EpochRow, StudyRow, TrialRow, Work

#: The number of newest epochs whose durations are averaged for the time left. The number is large
#: enough for a steady estimate and small enough to follow changes.
RECENT = 64


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """The numbers of a study at one moment. Times are in seconds. None means not known yet."""

    #: The number of trials in each state.
    counts: Counter[TrialState]
    #: The expected number of trials. It is None for a study that runs until it is stopped. Forked
    #: trials (PBT) count only once they exist.
    trials: int | None
    #: The number of trials that were enqueued after the end of the study. Another call of
    #: ``optimize`` would run them.
    enqueued: int
    #: The best trials. With several objectives, the list has the Pareto front. With replicates, the
    #: list has the trials of the best configuration. Otherwise the list has only the best trial.
    front: list[TrialRow]
    #: The number of accepted epochs.
    epochs: int
    #: The expected number of epochs of the whole study, computed from the rungs of its strategy and
    #: the present targets of its trials. It is None if only the objective knows the number of
    #: epochs, or if the study runs until it is stopped.
    expected: int | None
    #: The time at which the training of the first epoch began, by the clock of the scheduler.
    started: float | None
    #: The sum of the training times of all epochs.
    busy: float
    #: The time left until the study ends.
    eta: float | None

    @property
    def best(self) -> TrialRow | None:
        return next(iter(self.front), None)

    @property
    def best_mean(self) -> float | None:
        """The value of the best trial.

        With replicates, the mean of the best configuration's values.
        """
        return mean_of(self.front)

    @property
    def done(self) -> int:
        """The number of trials that have ended and were not cancelled."""
        states = FINAL - {TrialState.CANCELLED}
        return sum(n for state, n in self.counts.items() if state in states)


@dataclass(frozen=True, slots=True)
class View:
    """The data from which a study is shown, as of one moment."""

    study: StudyRow
    progress: StudyProgress
    #: The trials of the study, by number.
    trials: Sequence[TrialRow]
    #: The values of each trial's epochs, in order, by the id of the trial.
    curves: dict[str, list[float]]
    #: All devices that ever joined.
    devices: Sequence[DeviceRecord]
    #: The running trials of all studies, by device and slot.
    running: Mapping[tuple[str, int], Work]
    #: True if the study makes no progress because no scheduler runs, although the ledger says that
    #: the study is running.
    still: bool = False

    @property
    def status(self) -> str:
        """The study's status in words."""
        return status_word(self.study.status, still=self.still)

    @property
    def eta(self) -> float | None:
        """The time left in seconds.

        It is None if the time is not known or if the study stands still.
        """
        return None if self.still else self.progress.eta


def scores(study: StudyRow, trial: TrialRow) -> str:
    """Return the trial's values in words: ``loss 0.12``, ``loss 0.12, size 17335``.

    Violated constraints follow in brackets.
    """
    pairs = zip(study.objectives, trial.values, strict=False)
    digits = 5 if study.further else 4
    text = ", ".join(f"{each.metric} {number(value, digits)}" for each, value in pairs)
    return text if trial.feasible else f"{text} (violates {violated(trial)})"


def violated(trial: TrialRow) -> str:
    """Return the constraints that the trial violates, as ``constraints size, time``.

    Optuna's constraints have numbers instead of names, such as ``constraint 0``. The result is
    empty if the trial violates no constraint.
    """
    names = [name for name, excess in trial.constraints.items() if excess > 0]
    noun = "constraint " if len(names) == 1 else "constraints " if names else ""
    return noun + ", ".join(names)


def failure_words(trial: TrialRow) -> str:
    """Return a trial's failure in words: ``failed (exception): ValueError``."""
    if trial.failure_kind == TOLD:
        return f"failed: {told(trial)}"
    return f"failed ({trial.failure_kind}): {trial.failure_message}"


def told(trial: TrialRow) -> str:
    """Return the reason for a failure that the user reported by ``tell`` or ``add_trial``."""
    if trial.failure_message == ADDED:
        return "it had failed before it was added"
    return "its user said so" + (f": {trial.failure_message}" if trial.failure_message else "")


def objective_words(study: StudyRow) -> str:
    """Return the study's objectives in words: ``minimize loss, maximize accuracy``."""
    return ", ".join(f"{each.direction} {each.metric}" for each in study.objectives)


def tools_words(spec: StudySpec) -> str:
    """Return the class names of a local study's sampler and pruner.

    The sampler and the pruner are objects of the user's script, and run in the trainer. The text is
    such as *TPESampler, MedianPruner (the script's)*. Older ledgers have only the class of the
    sampler. The result is empty for studies that are not local.
    """
    if not spec.local:
        return ""
    kinds = json.loads(spec.sampler_options)
    names = [kinds[tool] for tool in ("sampler", "pruner") if tool in kinds]
    return f"{', '.join(names)} (the script's)" if names else "the script's own"


def search_words(study: StudyRow) -> str:
    """Return a study's strategy and sampler, such as *ASHA · TPE*.

    For a local study, return the sampler and the pruner of the user's script.
    """
    from ...ledger.codec import spec_from_json

    if not (tools := tools_words(spec_from_json(study.spec_json))):
        return f"{label(study.strategy)} · {label(study.sampler)}"
    return f"sampler and pruner: {tools}" if tools == "the script's own" else tools


def seed_words(study: StudyRow) -> str:
    """Return the study's seed and the trials that share it: ``3, shared by all trials``.

    If the trials do not share the seed, return only the seed.
    """
    if study.seeding != "shared":
        return str(study.seed)
    each = f", {study.replicates} replicates each" if study.replicates > 1 else ""
    return f"{study.seed}, shared by all {'configurations' if each else 'trials'}{each}"


def best_who(study: StudyRow, best: Sequence[TrialRow]) -> str:
    """Return words for the origin of the best value: ``last value of trial 4``.

    With replicates, the words are ``mean of the last values of trials 4, 5``. If each trial has
    only one value, the words are ``trial 4``. The best value is always a last value, even if an
    earlier value of the trial was better.
    """
    several = any(trial.epoch > 0 for trial in best)
    if study.replicates == 1:
        return f"{'last value of ' if several else ''}trial {best[0].number}"
    return f"mean of {'the last values of ' if several else ''}trials {numbers_of(best)}"


def numbers_of(trials: Sequence[TrialRow]) -> str:
    """Return the numbers of the trials, as ``4`` or ``4, 5``."""
    return ", ".join(str(trial.number) for trial in trials)


def best_of(study: StudyRow, trials: Iterable[TrialRow]) -> TrialRow | None:
    """Return the first trial of ``front_of``, or None if no trial has a value."""
    return next(iter(front_of(study, trials)), None)


def so_far(study: StudyRow) -> str:
    """Return the words after *best* in a title: `` so far`` while the study runs, else nothing."""
    return " so far" if study.finished_at is None else ""


def best_words(study: StudyRow) -> str:
    """Return a title for the best trials: *best trial so far*, *Pareto front*."""
    singular = "best trial" if study.replicates == 1 else "best configuration"
    return f"{'Pareto front' if study.further else singular}{so_far(study)}"


def reached(trial: TrialRow) -> str:
    """Return a trial's state and epochs: *running, epoch 3*, *completed after 9 epochs*.

    The text is only *completed* if an objective returned its value without reporting an epoch. The
    text is only *failed* if the user reported the failure and the trial has no epoch.
    """
    returned = trial.state in (TrialState.COMPLETED, TrialState.STOPPED)
    if trial.epoch == 0 and (returned or trial.failure_kind == TOLD):
        return trial.state
    if trial.state in FINAL:
        return f"{trial.state} after {count(trial.epoch, 'epoch')}"
    return f"{trial.state}, epoch {trial.epoch}"


def final_metrics(trial: TrialRow, epochs: Iterable[EpochRow]) -> dict[str, float]:
    """Return all metrics of the trial's last epoch.

    The result is empty if the trial has no epoch.
    """
    last = (row for row in epochs if row.trial == trial.id and row.epoch == trial.epoch)
    return next((dict(row.metrics) for row in last), {})


def signature_changes(epochs: Iterable[EpochRow]) -> list[EpochRow]:
    """Return the epochs whose signature does not agree with that of the trial's previous epoch.

    The signature is what the bits of an epoch depend on besides code, configuration and seed.
    """
    changed, signatures = [], dict[str, str]()
    for row in sorted(epochs, key=lambda row: row.epoch):
        before = signatures.setdefault(row.trial, row.signature)
        if before != row.signature and not agree(before, row.signature):
            changed.append(row)
        signatures[row.trial] = row.signature
    return changed


def changes(trial: TrialRow, trials: Sequence[TrialRow]) -> list[tuple[str, str, str]]:
    """Return the parameters that a branch changed: the name, the parent's value and the new value.

    A branch is a new trial that begins with another trial's state under other values. The result is
    empty for a trial that is not a branch, such as a trial that PBT forked.
    """
    if trial.replaces != "":  # no branch: a fork of a population explores by itself
        return []
    parent = next(other for other in trials if other.id == trial.origin_trial)
    before, now = parent.params, trial.params
    return [
        (name, number(before[name]) if name in before else "", number(now[name]))
        for name in now
        if name not in before or before[name] != now[name]
    ]


def origins(trial: TrialRow, trials: Sequence[TrialRow]) -> list[str]:
    """Return sentences about forks: about trials that continue from the state of another trial.

    The sentences name the trial from which ``trial`` was forked, the forks of ``trial``, and the
    trial that took its place in a population (PBT).
    """
    sentences = []
    if trial.origin_trial is not None:
        source = number_of(trial.origin_trial)
        changed = ", ".join(f"{name} {new}" for name, _, new in changes(trial, trials))
        under = f" with {changed}" if changed else ""
        after = f"state after epoch {trial.origin_epoch}"
        sentences.append(f"it goes on from trial {source}'s {after}{under}")
    successors = [other for other in trials if other.origin_trial == trial.id]
    sentences += [
        f"trial {successor.number} goes on from its state after epoch {successor.origin_epoch}"
        for successor in successors
    ]
    sentences += [
        f"it fell behind after epoch {trial.epoch}, and trial {other.number} took its place"
        for other in trials
        if other.replaces == trial.id
    ]
    return sentences


def study_progress(
    study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]
) -> StudyProgress:
    """Return the progress of ``study``, given all rows of its trials and epochs."""
    epochs_done = len(epochs)
    expected = epochs_expected(study, trials, epochs_done)
    counts = Counter(TrialState(trial.state) for trial in trials)
    enqueued = enqueued_of(study, counts)
    trained = (row for row in epochs if not row.taken_from and row.seconds > 0)
    recent = sorted(trained, key=lambda row: row.at)[-RECENT:]
    return StudyProgress(
        counts=counts,
        front=front_of(study, trials),
        trials=trials_expected(study, len(trials) - enqueued),
        enqueued=enqueued,
        epochs=epochs_done,
        expected=expected,
        started=min((row.at - row.seconds for row in epochs), default=None),
        busy=sum(row.seconds for row in epochs),
        eta=time_left(
            study, trials, epochs_done + _to_others(study, trials, epochs), recent, expected
        ),
    )


def epochs_expected(study: StudyRow, trials: Sequence[TrialRow], done: int) -> int | None:
    """Return the expected number of epochs of the whole study.

    ``done`` is the number of epochs so far. The result is None if the number cannot be known.
    """
    plan = study.plan
    expected = None if study.endless else expected_epochs(plan, study.n_trials)
    if expected is None:
        return None
    # ASHA promotes by the results so far, so it may train more epochs than its rungs require.
    planned = done + _to_do(study, plan, trials)
    return done if study.finished_at is not None else max(expected, planned)


def _to_do(study: StudyRow, plan: StrategySpec, trials: Sequence[TrialRow]) -> int:
    """Return the number of epochs that are certain to come.

    These are the epochs of present trials up to their targets, and the first epochs of future
    trials.
    """
    active = (TrialState.WAITING, TrialState.RUNNING)
    under_way = sum(t.target - t.epoch for t in trials if t.state in active)
    first = plan.min_epochs if plan.name != "full" else plan.max_epochs or 0
    return under_way + max(0, study.n_trials - len(trials)) * first


def _at_once(recent: Sequence[EpochRow]) -> float:
    """Return the number of slots that train at the same time.

    A slot that trials use in turns counts with the share of time in which it trains.
    """
    parts: dict[tuple[str, int], list[float]] = {}
    for row in recent:
        whole = row.at - row.begin
        part = min(1.0, row.seconds / whole) if whole > 0 else 1.0
        parts.setdefault((row.device, row.slot), []).append(part)
    return sum(sum(each) / len(each) for each in parts.values())


def _to_others(study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]) -> int:
    """Return the number of future epochs that trials will take over from other trials.

    An epoch is taken over if another trial trains the same epoch with equal bits. So such epochs
    need no training.
    """
    if study.seeding != "shared" or study.finished_at is not None:
        return 0
    from ...ledger.codec import spec_from_json

    spec = spec_from_json(study.spec_json)
    return sum(
        count_taken_over(spec, trials, epochs)
        for count_taken_over in of_ends("show", "left_to_others")
    )


def time_left(
    study: StudyRow,
    trials: Sequence[TrialRow],
    ready: int,
    recent: Sequence[EpochRow],
    expected: int | None,
) -> float | None:
    """Return the time left in seconds: untrained epochs times mean seconds, divided by busy slots.

    Of the ``expected`` epochs, ``ready`` epochs were trained already or need no training.
    ``recent`` contains the newest ``RECENT`` epochs that were trained. Epochs that were taken over
    from another trial are left out, since such epochs took no time. The result is None if no epoch
    was trained yet, and for a study that is over, is paused or runs until it is stopped.
    """
    if study.finished_at is not None or study.status == "paused" or study.endless or not recent:
        return None
    slots = _at_once(recent)
    seconds = sum(row.seconds for row in recent) / len(recent)
    if expected is None:
        # Only the objective knows the trials' lengths, so the mean of completed trials is used.
        over = [trial.epoch for trial in trials if trial.state == TrialState.COMPLETED]
        if not over:
            return None
        expected = math.ceil(study.n_trials * sum(over) / len(over))
    return max(0, expected - ready) * seconds / slots
