"""Says of models that make choices what they came to be, and counts them before they are trained.

The engine predicts with the counts what trials will take (``profiling.base.architecture``). What a
model came to be is traced, without running it, for stories and pictures. A trainer spends on each
about ``SHARE`` of the seconds in which it trained the study's trials, and ``FREE`` before. What
does the work is imported where it is needed: most studies have no such models.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ...extensions.nas.models.choices import choices_of
from ..process.messages import dumps
from ..process.pipe import Run
from ..training.training import Training

#: Of the seconds in which a trainer trained trials of a study.
SHARE = 0.02
#: Seconds that it may spend before it has trained them.
FREE = 0.5


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


class Descriptions:
    """What one trainer says of models, and for each study its account of the time."""

    def __init__(self) -> None:
        self._accounts = defaultdict[str, _Account](_Account)

    def trained(self, study: str, seconds: float) -> None:
        """Add ``seconds`` of training to the study's account."""
        self._accounts[study].trained += seconds

    def forget(self, study: str) -> None:
        """The study is over."""
        self._accounts.pop(study, None)

    def say(self, run: Run, training: Training, examples: Callable[[], Mapping[int, Any]]) -> None:
        """Say what the models of the segment's trial and of those that it names are.

        ``examples`` gives the first example of data sets that are loaded, by their ``id``.
        """
        task, account = run.task, self._accounts[run.task.study]
        named = {each.trial: each.params for each in task.describe}
        if task.first == task.origin + 1:
            named = {task.trial: task.params} | named
        if not named or task.rank or not account.affords(account.counting):
            return
        if not choices_of(training.model):
            return
        from ...extensions.nas.models.counting import batch_of_one, counted
        from ..system.unchanged import unchanged

        with unchanged(training.model):
            batch = batch_of_one(training.data.train, examples)
            for trial, params in named.items():
                if not account.affords(account.counting):
                    return
                run.preparing()
                began = time.perf_counter()
                found = counted(training.code, params, batch)
                account.counting.done(began)
                if found is not None:
                    run.say("described", of=trial, choices=found[1], **asdict(found[0]))

    def derive(self, run: Run, training: Training) -> bool:
        """Say what the model came to be, if it makes choices; False: there is no time for that.

        Of a model that mutators made it is known already.
        """
        model, account = training.model, self._accounts[run.task.study]
        if run.task.rank or getattr(model, "architecture", None) is None:
            return True
        from ...extensions.nas.models.model import ModelSpace

        if not isinstance(model, ModelSpace):
            return True
        if model.derivation is None and not account.affords(account.tracing):
            return False
        from ...extensions.nas.graphs.derivation import described

        began = time.perf_counter()
        found, outline = described(model)
        log = dumps(found.as_json()["log"])
        run.say("derived", base=found.base, log=log, digest=found.digest, outline=dumps(outline))
        account.tracing.done(began)
        return True
