"""The trainer's end: says what models came to be, and counts them before they are trained.

The engine predicts with the counts what trials will take (``models.architecture``). What a
model came to be is traced, without running it, for stories and pictures. A trainer spends on each
about ``SHARE`` of the seconds in which it trained the study's trials, and ``FREE`` before. What
does the work is imported where it is needed: most studies have no such models.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

from ...base.errors import BackendError
from ...tasks.process.failure import Lost
from ...tasks.trainer.hooks import Epoch, Hook, Parts, Segment
from ...tasks.training.loop import Result
from ...tasks.training.training import Training
from ...wire.messages import SegmentTask, dumps
from .models.choices import choices_of
from .weights import SuperNetWeights

#: The name of the extension.
NAME = "nas"

#: Of the seconds in which a trainer trained trials of a study.
SHARE = 0.02
#: Seconds that it may spend before it has trained them.
FREE = 0.5
#: Notes of a trial that has begun here, and what its model came to be was not said yet.
_UNTOLD = "its model was not described"


@dataclass(slots=True)
class _Work:
    """What one kind of work has taken (seconds): all of it, and the last one."""

    spent: float = 0.0
    last: float = 0.0

    def done(self, began: float) -> None:
        """One more was done, since ``began`` (``time.perf_counter``)."""
        self.last = time.perf_counter() - began
        self.spent += self.last


@dataclass(slots=True)
class _Account:
    """What describing its models has taken of a study's time here."""

    #: Seconds in which its trials trained.
    trained: float = 0.0
    counting: _Work = field(default_factory=_Work)
    tracing: _Work = field(default_factory=_Work)

    def affords(self, work: _Work) -> bool:
        """Whether there is time for one more that takes as long as the last one."""
        return work.spent + work.last <= FREE + SHARE * self.trained


def hook(parts: Parts) -> Hook:
    """Return the hook of one trainer."""
    return _Descriptions()


class _Descriptions(Hook):
    """What one trainer says of models, and for each study its account of the time."""

    def __init__(self) -> None:
        self.accounts = defaultdict[str, _Account](_Account)
        self._supernet = SuperNetWeights()

    def made(self, task: SegmentTask, training: Training, *, kept: bool) -> None:
        """Give a candidate of a super-net its weights."""
        of = task.ext.get(NAME, {}).get("supernet")
        if of is None:
            return
        from .recalibration import Recalibration

        training.instead = Recalibration(of["batches"])
        if kept:
            try:
                self._supernet.give(training.model, of["uri"], of["state_hash"])
            except BackendError as error:
                raise Lost(str(error)) from error

    def resumed(self, segment: Segment) -> None:
        """Say what the model of a trial that begins came to be, once there is time for that."""
        task, notes = segment.task, segment.warm.notes
        if task.first == task.origin + 1:
            notes[_UNTOLD] = True
        if _UNTOLD in notes and self._derive(segment):
            del notes[_UNTOLD]

    def before(self, segment: Segment) -> None:
        """Say what the models of the segment's trial and of those that it names are."""
        run, training = segment.run, segment.training
        task, account = run.task, self.accounts[run.task.study]
        told = task.ext.get(NAME, {}).get("count", ())
        named: dict[str, dict[str, Any]] = {each["trial"]: each["params"] for each in told}
        if task.first == task.origin + 1:
            named = {task.trial: task.params} | named
        if not named or task.rank or not account.affords(account.counting):
            return
        if not choices_of(training.model):
            return
        from ...tasks.system.unchanged import unchanged
        from .models.counting import batch_of_one, counted

        with unchanged(training.model):
            batch = batch_of_one(training.data.train, segment.maker.first_examples)
            for trial, params in named.items():
                if not account.affords(account.counting):
                    return
                run.preparing()
                began = time.perf_counter()
                found = counted(training.code, params, batch)
                account.counting.done(began)
                if found is not None:
                    run.say("described", of=trial, choices=found[1], **asdict(found[0]))

    def after_epoch(self, epoch: Epoch, result: Result) -> None:
        """Add the seconds of training to the study's account."""
        self.accounts[epoch.segment.task.study].trained += result.seconds

    def study_over(self, study: str) -> None:
        """Drop the study's account, and the super-net whose candidates were evaluated last."""
        self.accounts.pop(study, None)
        self._supernet.drop()

    def _derive(self, segment: Segment) -> bool:
        """Say what the model came to be, if it makes choices; False: there is no time for that.

        Of a model that mutators made it is known already.
        """
        run, model = segment.run, segment.training.model
        account = self.accounts[run.task.study]
        if run.task.rank or getattr(model, "architecture", None) is None:
            return True
        from .models.model import ModelSpace

        if not isinstance(model, ModelSpace):
            return True
        if model.derivation is None and not account.affords(account.tracing):
            return False
        from .graphs.derivation import described

        began = time.perf_counter()
        found, outline = described(model)
        log = dumps(found.as_json()["log"])
        run.say("derived", base=found.base, log=log, digest=found.digest, outline=dumps(outline))
        account.tracing.done(began)
        return True
