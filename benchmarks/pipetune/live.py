"""Runs a workload's studies for real: off, cold, once more, and its twin's, on own services.

All studies of a workload have the same configurations of hyperparameters. Time is from submission
to the end by the ledger, with warm trainers. Studies without tuning are run before and between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import penstock
from penstock.app.host.settings import Settings
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.rows import EpochRow
from penstock.app.server.services import services
from penstock.extensions.system_tuning.asked.decisions import Recalled
from penstock.extensions.system_tuning.races.measured import Rehearsed, WindowsMeasured
from penstock.extensions.system_tuning.shown.similar import find_similar
from penstock.extensions.system_tuning.trial_profiles import find_profile
from penstock.profiling.knobs.knobs import config_text

from ..lib.studies import installation
from .judged import BOTH_CORES, Tuned, Workload


@dataclass(frozen=True)
class Form:
    """The length of a study."""

    trials: int
    epochs: int
    #: All trials get all epochs; else ASHA stops them.
    whole: bool

    @property
    def strategy(self) -> Any:
        """The strategy of the study."""
        if self.whole:
            return penstock.FullBudget(self.epochs)
        return penstock.ASHA(max_epochs=self.epochs)


FORMS = {"short": Form(8, 5, whole=True), "long": Form(27, 9, whole=False)}
QUICK = Form(4, 2, whole=True)


@dataclass(frozen=True)
class Ran:
    """A study that was run. Times are in seconds."""

    #: From its submission to its end.
    total: float
    #: Spent in epochs, over all slots.
    trained: float
    epochs: int
    #: Spent on rehearsals and windows, over all slots that they held.
    spent: float
    #: The configuration of most of its epochs.
    config: str
    #: The history knew its workload, and nothing was measured again.
    reused: bool
    #: The reason that ``penstock similar`` gave falsely; empty if it gave none.
    false_reason: str
    accuracies: tuple[tuple[float, ...], ...]

    @property
    def an_epoch(self) -> float:
        """The mean seconds of an epoch."""
        return self.trained / self.epochs


@dataclass(frozen=True)
class Studies:
    """The studies of a workload."""

    off: tuple[Ran, ...]
    cold: Ran
    again: Ran
    twin_off: Ran
    similar: Ran

    @property
    def off_s(self) -> float:
        """The mean seconds of the studies without tuning."""
        return fmean(each.total for each in self.off)


def studies(workload: Workload, form: Form) -> Studies:
    """Run all studies of a workload."""
    with installation(workload.devices) as settings:
        services.ensure_up(settings, settings.devices)
        _study(workload, workload.code, settings, Form(2, 1, whole=True), "off")
        first = _study(workload, workload.code, settings, form, "off")
        cold = _study(workload, workload.code, settings, form, "tune")
        between = _study(workload, workload.code, settings, form, "off")
        again = _study(workload, workload.code, settings, form, "tune")
        similar = _study(workload, workload.twin, settings, form, "tune")
        twin_off = _study(workload, workload.twin, settings, form, "off")
    return Studies((first, between), cold, again, twin_off, similar)


def _study(
    workload: Workload, code: type[Tuned], settings: Settings, form: Form, system: str
) -> Ran:
    study = penstock.create_study(
        metric="accuracy",
        direction="maximize",
        sampler="random",
        strategy=form.strategy,
        seed=0,
        system=system,
    )
    study.optimize(
        code, workload.space(), form.trials, show_progress=False, devices=settings.devices
    )
    reader = Reader(settings.ledger_url)
    row, epochs = reader.study(study.id), reader.epochs(study.id)
    assert row.finished_at is not None
    slots = 1 if settings.devices == BOTH_CORES else 2
    rehearsed = [event for _, event in reader.of_trials(study.id, Rehearsed)]
    windows = [event for _, event in reader.of_trials(study.id, WindowsMeasured)]
    recalled = [event for _, event in reader.of_study(study.id, Recalled)]
    spent = slots * sum(each.spent for each in rehearsed)
    spent += sum(window[2] for event in windows for window in event.windows)
    return Ran(
        total=row.finished_at - row.created_at,
        trained=sum(each.seconds for each in epochs),
        epochs=len(epochs),
        spent=spent,
        config=_most(epochs),
        reused=bool(recalled and recalled[-1].known and not rehearsed),
        false_reason=_false_reason(reader, study.id, system),
        accuracies=_accuracies(epochs),
    )


def _most(epochs: Sequence[EpochRow]) -> str:
    """Return the configuration of most epochs, in words."""
    configs = [config_text(each.system) for each in epochs]
    return max(dict.fromkeys(configs), key=configs.count)


def _accuracies(epochs: Sequence[EpochRow]) -> tuple[tuple[float, ...], ...]:
    found: dict[str, list[float]] = {}
    for row in epochs:
        found.setdefault(row.trial, []).append(row.value)
    return tuple(tuple(found[trial]) for trial in sorted(found))


def _false_reason(reader: Reader, study: str, system: str) -> str:
    """Ask ``penstock similar`` of a study's first trial; return its reason if that is false."""
    row, trial = reader.study(study), reader.trials(study)[0]
    try:
        found = find_similar(reader, row, trial, find_profile(reader, row, trial))
    except penstock.UsageError as error:
        said = str(error)
        return "" if system == "off" and "is off" in said else said
    others = bool(reader.history(found.machine))
    return "" if found.answer.known or not others or found.answer.why else "no reason"
