"""Compute a study's progress from rows of the ledger: best trial, epochs to go, time left.

All functions are pure. Live view, report and command line all use them, so their numbers agree.
Modules that know whole specifications are imported on use: the list of studies needs none of them.
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

#: The number of newest epochs whose durations are averaged for the time left: enough for a steady
#: estimate, few enough to follow changes.
RECENT = 64


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """A study's numbers at one moment. Times are in seconds; None means unknown so far."""

    #: The number of trials in each state.
    counts: Counter[TrialState]
    #: The expected number of trials, or None if it is open. Forked trials count only once they
    #: exist.
    trials: int | None
    #: The number of trials enqueued after the study's end, which ``optimize`` would run.
    enqueued: int
    #: The best trials: the Pareto front with several objectives, the best configuration's trials
    #: with replicates, otherwise only the best trial.
    front: list[TrialRow]
    #: The number of accepted epochs.
    epochs: int
    #: The expected number of epochs of the whole study, by its strategy's rungs and the present
    #: targets; None if only the objective knows, or if the number of trials is open.
    expected: int | None
    #: When the training of the first epoch began, by the runner's clock.
    started: float | None
    #: The sum of the training times of all epochs.
    busy: float
    #: The time left.
    eta: float | None

    @property
    def best(self) -> TrialRow | None:
        return next(iter(self.front), None)

    @property
    def best_mean(self) -> float | None:
        """The value of the best trial, or the mean of the best configuration's replicates."""
        return mean_of(self.front)

    @property
    def done(self) -> int:
        """The number of trials that have ended and were not cancelled."""
        states = FINAL - {TrialState.CANCELLED}
        return sum(n for state, n in self.counts.items() if state in states)


@dataclass(frozen=True, slots=True)
class View:
    """The data for showing a study at one moment."""

    study: StudyRow
    progress: StudyProgress
    #: The study's trials, by number.
    trials: Sequence[TrialRow]
    #: The values of each trial's epochs, in order, by the trial's id.
    curves: dict[str, list[float]]
    #: Every device that ever joined.
    devices: Sequence[DeviceRecord]
    #: The running trials of all studies by (device, slot).
    running: Mapping[tuple[str, int], Work]
    #: True if the study stands still, though running by the ledger, since no scheduler runs.
    still: bool = False

    @property
    def status(self) -> str:
        """The study's status in words."""
        return status_word(self.study.status, still=self.still)

    @property
    def eta(self) -> float | None:
        """The time left (seconds); None if it is unknown, or if the study stands still."""
        return None if self.still else self.progress.eta


def scores(study: StudyRow, trial: TrialRow) -> str:
    """Return the trial's values in words: ``loss 0.12``, ``loss 0.12, size 17335``."""
    pairs = zip(study.objectives, trial.values, strict=False)
    digits = 5 if study.further else 4
    text = ", ".join(f"{each.metric} {number(value, digits)}" for each, value in pairs)
    return text if trial.feasible else f"{text} (violates {violated(trial)})"


def violated(trial: TrialRow) -> str:
    """Return the constraints that the trial violates, as ``constraints size, time``.

    Optuna's constraints have numbers: ``constraint 0``. Empty if the trial violates none.
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
    """Return the reason for a failure that the trial's user reported."""
    if trial.failure_message == ADDED:
        return "it had failed before it was added"
    return "its user said so" + (f": {trial.failure_message}" if trial.failure_message else "")


def objective_words(study: StudyRow) -> str:
    """Return the study's aim in words: ``minimize loss``, ``minimize loss, maximize accuracy``."""
    return ", ".join(f"{each.direction} {each.metric}" for each in study.objectives)


def tools_words(spec: StudySpec) -> str:
    """Return the classes of a local study's sampler and pruner, which are its script's objects.

    As *TPESampler, MedianPruner (the script's)*; older ledgers have only the sampler's class. Empty
    for studies that are not local.
    """
    if not spec.local:
        return ""
    kinds = json.loads(spec.sampler_options)
    names = [kinds[tool] for tool in ("sampler", "pruner") if tool in kinds]
    return f"{', '.join(names)} (the script's)" if names else "the script's own"


def search_words(study: StudyRow) -> str:
    """Return a study's strategy and sampler: *ASHA · TPE*; or its script's sampler and pruner."""
    from ...ledger.codec import spec_from_json

    if not (tools := tools_words(spec_from_json(study.spec_json))):
        return f"{label(study.strategy)} · {label(study.sampler)}"
    return f"sampler and pruner: {tools}" if tools == "the script's own" else tools


def seed_words(study: StudyRow) -> str:
    """Return the study's seed and the trials that share it: ``3, shared by all trials``."""
    if study.seeding != "shared":
        return str(study.seed)
    each = f", {study.replicates} replicates each" if study.replicates > 1 else ""
    return f"{study.seed}, shared by all {'configurations' if each else 'trials'}{each}"


def best_who(study: StudyRow, best: Sequence[TrialRow]) -> str:
    """Return words for the origin of the best value: ``last value of trial 4``.

    With replicates: ``mean of the last values of trials 4, 5``. If each trial has only one value:
    ``trial 4``. A better value before the last one does not count.
    """
    several = any(trial.epoch > 0 for trial in best)
    if study.replicates == 1:
        return f"{'last value of ' if several else ''}trial {best[0].number}"
    return f"mean of {'the last values of ' if several else ''}trials {numbers_of(best)}"


def numbers_of(trials: Sequence[TrialRow]) -> str:
    """Return the trials' numbers as ``4`` or ``4, 5``."""
    return ", ".join(str(trial.number) for trial in trials)


def best_of(study: StudyRow, trials: Iterable[TrialRow]) -> TrialRow | None:
    """Return the first of ``front_of``; None if it is empty."""
    return next(iter(front_of(study, trials)), None)


def so_far(study: StudyRow) -> str:
    """Return the words after *best* in a title: `` so far`` while the study runs."""
    return " so far" if study.finished_at is None else ""


def best_words(study: StudyRow) -> str:
    """Return a name for the best trials: *best trial so far*, *Pareto front*."""
    singular = "best trial" if study.replicates == 1 else "best configuration"
    return f"{'Pareto front' if study.further else singular}{so_far(study)}"


def reached(trial: TrialRow) -> str:
    """Return a trial's state and epochs: *running, epoch 3*; *completed after 9 epochs*.

    The text is just *completed* for an objective that returned its value and reported none before,
    and just *failed* if the user told so.
    """
    returned = trial.state in (TrialState.COMPLETED, TrialState.STOPPED)
    if trial.epoch == 0 and (returned or trial.failure_kind == TOLD):
        return trial.state
    if trial.state in FINAL:
        return f"{trial.state} after {count(trial.epoch, 'epoch')}"
    return f"{trial.state}, epoch {trial.epoch}"


def final_metrics(trial: TrialRow, epochs: Iterable[EpochRow]) -> dict[str, float]:
    """Return all metrics of the trial's last epoch; empty when it has none."""
    last = (row for row in epochs if row.trial == trial.id and row.epoch == trial.epoch)
    return next((dict(row.metrics) for row in last), {})


def signature_changes(epochs: Iterable[EpochRow]) -> list[EpochRow]:
    """Return the epochs whose numeric signature differs from that of the trial's epoch before."""
    changed, signatures = [], dict[str, str]()
    for row in sorted(epochs, key=lambda row: row.epoch):
        before = signatures.setdefault(row.trial, row.signature)
        if before != row.signature and not agree(before, row.signature):
            changed.append(row)
        signatures[row.trial] = row.signature
    return changed


def changes(trial: TrialRow, trials: Sequence[TrialRow]) -> list[tuple[str, str, str]]:
    """Return a branch's changes from its parent: name, the parent's value, and the new value."""
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
    """Return sentences about forks: the trial's own source, and the forks of the trial."""
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
    """Return the progress of ``study``, given all its rows."""
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
    """Return the expected number of epochs of the whole study, which has ``done`` so far."""
    plan = study.plan
    expected = None if study.endless else expected_epochs(plan, study.n_trials)
    if expected is None:
        return None
    # ASHA promotes by the results so far, so it may train more epochs than its rungs require.
    planned = done + _to_do(study, plan, trials)
    return done if study.finished_at is not None else max(expected, planned)


def _to_do(study: StudyRow, plan: StrategySpec, trials: Sequence[TrialRow]) -> int:
    """Return the number of certain epochs: those to present targets, and of trials to come."""
    active = (TrialState.WAITING, TrialState.RUNNING)
    under_way = sum(t.target - t.epoch for t in trials if t.state in active)
    first = plan.min_epochs if plan.name != "full" else plan.max_epochs or 0
    return under_way + max(0, study.n_trials - len(trials)) * first


def _at_once(recent: Sequence[EpochRow]) -> float:
    """Return the number of slots at work. A slot used in turns counts with its share of time."""
    parts: dict[tuple[str, int], list[float]] = {}
    for row in recent:
        whole = row.at - row.begin
        part = min(1.0, row.seconds / whole) if whole > 0 else 1.0
        parts.setdefault((row.device, row.slot), []).append(part)
    return sum(sum(each) / len(each) for each in parts.values())


def _to_others(study: StudyRow, trials: Sequence[TrialRow], epochs: Sequence[EpochRow]) -> int:
    """Return the number of future epochs that trials will take over instead of training them."""
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
    """Return the time left: epochs to train, times the mean seconds of one, divided by busy slots.

    Of the ``expected`` epochs, ``ready`` were trained already or need no training. ``recent`` are
    the newest ``RECENT`` epochs that were trained; epochs that were taken over took no time.
    Returns None until an epoch was trained.
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
