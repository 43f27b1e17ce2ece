"""Snapshots for policies: the trials that wait and run, with their expected costs.

Theory of operation. If studies have no shares (``scheduler.resources.fair_share``), there is one
snapshot of all trials. If they have shares, there is one snapshot for each study, of its trials and
its share of the devices.

If a study's trials gain by fused groups, the cost of a trial on one device is its cost in such a
group, as if the waiting and running trials were spread over all lanes. On several devices a trial
is trained alone, without this gain. So the more trials there are, the less a trial gains by a wider
width.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from ...profiling.costs.throughput import Shape
from ..model.decisions import Member
from ..model.snapshot import Candidate, Snapshot
from ..model.study import deadline_of, shards_of
from ..model.trial import Trial
from ..resources.fair_share import TOLERANCE, apportion
from ..resources.slots import attempts_beside, can_move
from ..state.core import Core
from ..state.epoch_times import to_boundary
from ..state.slot_time import seconds_without_part
from ..state.state import Attempt, StudyState
from ..strategies.base import rungs_of, staged
from ..strategies.promotion import promotion_probabilities

#: Number of width windows in a row without a gain after which a study gets no further windows.
MAX_VAIN_WINDOWS = 4


class Snapshots:
    """The maker of the snapshots of the engine's state that policies get."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._state = core.state

    def of(self, ready: Sequence[str], free: Sequence[Member]) -> tuple[tuple[str, Snapshot], ...]:
        """Return the snapshots to plan, each with the id of its study.

        ``ready`` are the waiting trials and ``free`` the free slots. If studies have no shares,
        there is one snapshot of all trials, with an empty id. Else there is one for each study with
        waiting or running trials, of these trials and of the study's share of the devices.
        """
        state = self._state
        usable = sum(state.usable(name) for name in state.devices)
        empty_devices = max(
            0, sum(state.is_free(slot.device) for slot in free) - self._excess_trials()
        )
        at_work = [attempt.segment.trial for attempt in state.attempts.values()]
        competing = [study for study in state.studies.values() if study.share is not None]
        if not competing:
            snapshot = self._snapshot(
                (state.rule, state.deadline),
                ready,
                at_work,
                free_slots=len(free),
                free_devices=empty_devices,
                devices=usable,
            )
            return (("", replace(snapshot, beside=attempts_beside(state))),)
        snapshots = []
        device_counts = apportion([study.share or 0.0 for study in competing], usable)
        for study, devices in zip(competing, device_counts, strict=True):
            waiting = [name for name in ready if state.trials[name].study == study.spec.id]
            running = [name for name in at_work if state.trials[name].study == study.spec.id]
            if waiting or running:
                # Below 0 if the study holds more than its share: its trials should become narrower.
                devices_held = sum(
                    len(state.trials[name].members) * state.attempts[state.trials[name].fence].part
                    for name in running
                )
                spare = devices - math.ceil(devices_held - TOLERANCE)
                snapshot = self._snapshot(
                    state.own_rules.get(study.spec.id, ("", 0.0)),
                    waiting,
                    running,
                    free_slots=max(0, spare),
                    free_devices=spare,
                    devices=devices,
                )
                snapshots.append((study.spec.id, snapshot))
        return tuple(snapshots)

    def _snapshot(
        self,
        rule: tuple[str, float],
        waiting: Sequence[str],
        running: Sequence[str],
        *,
        free_slots: int,
        free_devices: int,
        devices: int,
    ) -> Snapshot:
        names = {self._state.trials[name].study for name in (*waiting, *running)}
        studies = [self._state.studies[name] for name in names]
        probabilities = {
            k: v for study in studies for k, v in self._promotion_probabilities(study).items()
        }
        trials = Counter(self._state.trials[name].study for name in (*waiting, *running))
        pace = self._core.extensions.fused_groups.planned_pace
        ratios = {s.spec.id: pace(s, trials[s.spec.id]) for s in studies}
        return Snapshot(
            self._core.at,
            self._candidates(waiting, probabilities, ratios),
            free_slots,
            self._candidates(running, probabilities, ratios),
            free_devices,
            devices=devices,
            resize=self._state.costs.resize,
            rule=rule[0],
            deadline=rule[1],
            staged=all(staged(study.spec.strategy) for study in studies),
        )

    def _excess_trials(self) -> int:
        """Return the number of trials that share a device with an earlier trial.

        Devices that become empty are first used for these trials.
        """
        return sum(max(0, len(each.at_work) - 1) for each in self._state.devices.values())

    def _candidates(
        self,
        names: Iterable[str],
        probabilities: Mapping[str, float],
        ratios: Mapping[str, float],
    ) -> tuple[Candidate, ...]:
        # In order of arrival, so that equal trials are planned independently of the previous plan.
        trials = sorted((self._state.trials[name] for name in names), key=lambda t: t.since)
        names_of = {trial.study for trial in trials}
        ahead = {name: remaining_epochs(self._core, self._state.studies[name]) for name in names_of}
        return tuple(
            self._candidate(
                trial,
                probabilities.get(trial.id, 1.0),
                ahead=ahead[trial.study],
                ratio=ratios[trial.study],
            )
            for trial in trials
        )

    def _promotion_probabilities(self, study: StudyState) -> dict[str, float]:
        """Return the promotion probabilities of a study's trials, by id.

        The result is empty if its strategy has fewer than two rungs.
        """
        levels = rungs_of(study.spec.strategy)
        if len(levels) < 2:
            return {}
        sign = study.spec.sign
        curves = {name: self._state.trials[name].values for name in study.trials}
        scores = {name: {e: sign * v for e, v in of.items()} for name, of in curves.items()}
        return promotion_probabilities(scores, levels, study.spec.strategy.eta)

    def _candidate(
        self, trial: Trial, probability: float, *, ahead: int, ratio: float
    ) -> Candidate:
        """Return the trial as a candidate.

        ``ratio`` is the expected seconds of its epochs on one device in its fused group divided by
        their seconds alone there. On several devices it is trained alone, so it gains less.
        """
        costs = self._state.costs
        study = self._state.studies[trial.study]
        widest = max_width(study, trial)
        features = self._state.features(trial)
        expected = costs.expected(trial.study, trial.id, widest, features)
        own = costs.own(trial.study, trial.id)
        windows = self._state.windows_of(trial.study)
        attempt = self._state.attempts[trial.fence] if trial.fence else None
        measuring = attempt is not None and bool(attempt.segment.widths)
        return Candidate(
            trial.id,
            trial.study,
            trial.epoch,
            max(trial.target, trial.epoch + 1),  # an objective may run on after its last epoch
            trial.since,
            _times(expected.level if own is None else own.seconds, ratio),
            len(trial.members),
            widest,
            costs.speeds(trial.study),
            level=_times(expected.level, ratio),
            shape=_relative_to_group(expected.shape, ratio),
            deviation=expected.deviation,
            boundary=(
                0.0
                if attempt is None
                else to_boundary(self._state, self._core.extensions, attempt, self._core.at)
            ),
            course=self._state.courses.get(trial.id),
            promise=probability,
            hope=_relative_to_group(expected.hope, ratio),
            likely=_relative_to_group(expected.likely, ratio),
            measured=() if own is None else tuple(sorted(own.means)),
            window=windows.widest.get(trial.id, 0),
            cut_windows=windows.cut.get(trial.id, 0),
            ahead=ahead,
            measuring=measuring,
            measurable=windows.vain < MAX_VAIN_WINDOWS,
            **self._among_studies(study, trial, attempt),
        )

    def _among_studies(
        self, study: StudyState, trial: Trial, attempt: Attempt | None
    ) -> dict[str, Any]:
        """Return the fields of a candidate for policies that order the trials of all studies.

        Under other policies the result is empty, so that these fields have their defaults.
        """
        if not self._state.cross_study:
            return {}
        history = self._state.waits_of(trial.id)
        waits = 0.0 if history.queued_at is None else self._core.at - history.queued_at
        if attempt is not None:
            waits = seconds_without_part(attempt, self._core.at)
        end = deadline_of(study.spec, study.created_at)
        return {
            "arrived": study.created_at,
            "deadline": math.inf if end is None else end,
            "priority": study.spec.priority,
            "waited": history.waited + max(0.0, waits),
            "service": history.service,
            "movable": can_move(self._state, trial),
            "suspended": attempt is not None and not attempt.part,
        }


def remaining_epochs(core: Core, study: StudyState) -> int:
    """Return the expected number of epochs that the study has left to train.

    Of the trials that reach a rung, 1 in ``eta`` is assumed to be promoted. The result is not less
    than the epochs that are certain (``Core.epochs_ahead``).
    """
    plan = study.spec.strategy
    share = float(plan.max_epochs or 0) if plan.name == "pbt" else 0.0
    for k, (lower, upper) in enumerate(pairwise((0, *rungs_of(plan)))):
        share += (upper - lower) / plan.eta**k
    trained = sum(trial.epoch for trial in core.trials_of(study))
    return max(core.epochs_ahead(study), int(study.spec.n_trials * share) - trained)


def max_width(study: StudyState, trial: Trial) -> int:
    """Return the most devices that ``trial`` may run on."""
    if study.spec.max_width == 1:
        return 1
    return min(study.spec.max_width, shards_of(study.spec, trial.params))


def _times(seconds: float | None, ratio: float) -> float | None:
    return None if seconds is None else seconds * ratio


def _relative_to_group(shape: Shape, ratio: float) -> Shape:
    """Return ``shape`` relative to an epoch in a fused group on one device.

    Such an epoch takes ``ratio`` times as long as alone. Wider widths become slower by comparison,
    since a wider trial is trained alone.
    """
    if ratio == 1.0:
        return shape
    return tuple((width, each if width == 1 else each / ratio) for width, each in shape)
