"""The trainer's end: reports derivations of models, and counts models before they are trained.

The engine predicts the cost of trials from the counts (``models.architecture``). The derivation and
the outline of a model are found by tracing it, without running it, for stories and pictures. A
trainer spends on counting, and again on tracing, at most ``FREE`` seconds plus ``SHARE`` of the
seconds in which it trained the study's trials. The modules that do the work are imported when they
are first needed, since most studies have no such models.
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

#: Time for one kind of work, divided by the time in which this trainer trained the study's trials.
SHARE = 0.02
#: Seconds for one kind of work before any training.
FREE = 0.5
#: Key of a trial's note that its model has not been described yet.
_UNTOLD = "its model was not described"


@dataclass(slots=True)
class _Work:
    """The time of one kind of work (seconds): in total, and for the last piece."""

    spent: float = 0.0
    last: float = 0.0

    def done(self, began: float) -> None:
        """Add a piece of work that started at ``began`` (``time.perf_counter``)."""
        self.last = time.perf_counter() - began
        self.spent += self.last


@dataclass(slots=True)
class _Account:
    """The seconds that this trainer spent on a study: on training, and on describing its models."""

    #: Seconds in which the study's trials were trained.
    trained: float = 0.0
    counting: _Work = field(default_factory=_Work)
    tracing: _Work = field(default_factory=_Work)

    def affords(self, work: _Work) -> bool:
        """Return True if there is time for another piece of work as long as the last one."""
        return work.spent + work.last <= FREE + SHARE * self.trained


def hook(parts: Parts) -> Hook:
    """Return the hook of one trainer."""
    return _Descriptions()


class _Descriptions(Hook):
    """Describes models in one trainer, with an account of the time spent on each study."""

    def __init__(self) -> None:
        self.accounts = defaultdict[str, _Account](_Account)
        self._supernet = SuperNetWeights()

    def made(self, task: SegmentTask, training: Training, *, kept: bool) -> None:
        """Let a candidate be evaluated in place of training, with the weights of its super-net."""
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
        """Report the derivation of a new trial's model, as soon as there is time for it."""
        task, notes = segment.task, segment.warm.notes
        if task.first == task.origin + 1:
            notes[_UNTOLD] = True
        if _UNTOLD in notes and self._derive(segment):
            del notes[_UNTOLD]

    def before(self, segment: Segment) -> None:
        """Report the counts of the models of the segment's trial and of the trials it names."""
        run, training = segment.run, segment.training
        task, account = run.task, self.accounts[run.task.study]
        requests = task.ext.get(NAME, {}).get("count", ())
        params_of: dict[str, dict[str, Any]] = {each["trial"]: each["params"] for each in requests}
        if task.first == task.origin + 1:
            params_of = {task.trial: task.params} | params_of
        if not params_of or task.rank or not account.affords(account.counting):
            return
        if not choices_of(training.model):
            return
        from ...tasks.system.unchanged import unchanged
        from .models.counting import batch_of_one, counted

        with unchanged(training.model):
            batch = batch_of_one(training.data.train, segment.maker.first_examples)
            for trial, params in params_of.items():
                if not account.affords(account.counting):
                    return
                run.preparing()
                began = time.perf_counter()
                counts = counted(training.code, params, batch)
                account.counting.done(began)
                if counts is not None:
                    run.say("described", of=trial, choices=counts[1], **asdict(counts[0]))

    def after_epoch(self, epoch: Epoch, result: Result) -> None:
        """Add the seconds of training to the study's account."""
        self.accounts[epoch.segment.task.study].trained += result.seconds

    def study_over(self, study: str) -> None:
        """Drop the study's account, and the super-net whose candidates were evaluated last."""
        self.accounts.pop(study, None)
        self._supernet.drop()

    def _derive(self, segment: Segment) -> bool:
        """Report the derivation of a model with choices; return False if there is no time for it.

        A model that mutators made has its derivation already, so it is always reported.
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
        derivation, outline = described(model)
        log = dumps(derivation.as_json()["log"])
        run.say(
            "derived",
            base=derivation.base,
            log=log,
            digest=derivation.digest,
            outline=dumps(outline),
        )
        account.tracing.done(began)
        return True
