"""Answers the questions of the scheduler's end, and reads what the trainer's end reports.

None of this is part of the engine, so a replay needs none of it: answers are in the ledger.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from ...app.runner.decision_collector import Turn
from ...app.runner.reports import Reader, config_of, read_as, reader
from ...profiling.knobs.knobs import SystemConfig
from ...profiling.similarity.history import HistoryEntry, source_of
from ...scheduler.model.events import Event
from .asked.advisor import Advisor
from .asked.decisions import Advised, AskConfigs, ConfigsProposed, Consult, Remember
from .races.measured import Profiled, Window, WindowsMeasured

if TYPE_CHECKING:
    from ...app.ledger.ledger import Ledger

log = logging.getLogger(__name__)

#: The values of a window, in the order in which a report has them.
_OF_WINDOWS = tuple(field.name for field in fields(Window))


class Carrier:
    """Asks the history and the model, and adds what was found to the history."""

    decisions = (AskConfigs, Consult, Remember)

    def __init__(self) -> None:
        self._advisor = Advisor()

    def carry_out(
        self, decision: AskConfigs | Consult | Remember, turn: Turn, at: float
    ) -> Event | None:
        """Add to ``turn`` what is asked for. A model answers at once."""
        if isinstance(decision, AskConfigs):
            return configs(decision, at)
        if isinstance(decision, Remember):
            turn.history += entries_of(decision, at)
        else:
            turn.after.append(partial(self._consult, decision))
        return None

    def _consult(self, question: Consult, ledger: Ledger) -> None:
        self._advisor.consult(question, ledger.history(question.machine))

    def answers(self, at: float) -> Iterator[Event]:
        """Yield the history's answers since the last call."""
        for each in self._advisor.answers():
            yield Advised(
                at=at, cause=each.consult, workload=each.workload, config=each.config, why=each.why
            )


def configs(ask: AskConfigs, at: float) -> Event:
    """Return configurations to try: none if the model raises. The study then goes on without."""
    from .asked.sampler import propose  # here, since it brings Optuna and few studies ask

    try:
        found = propose(ask)
    except Exception:  # anything Optuna may raise: system parameters never end a study
        log.exception("no configurations were proposed for workload %s", ask.workload)
        found = ()
    return ConfigsProposed(at=at, cause=ask.id, workload=ask.workload, configs=found)


def entries_of(decision: Remember, at: float) -> list[HistoryEntry]:
    """Return the outcome of a race as entries of the history, also what cannot be run."""
    source = source_of(decision.study)

    def entry(config: SystemConfig, speedup: float, *, infeasible: bool = False) -> HistoryEntry:
        return HistoryEntry(
            workload=decision.workload,
            machine=decision.machine,
            source=source,
            profile=decision.profile,
            config=config,
            speedup=speedup,
            joules=None,
            windows=max(1, decision.windows),
            at=at,
            infeasible=infeasible,
        )

    failed = [entry(config, 1.0, infeasible=True) for config in decision.infeasible]
    return [entry(decision.config, decision.speedup), *failed]


def _windows(body: Mapping[str, Any], at: float) -> Event:
    windows = [dict(zip(_OF_WINDOWS, each, strict=True)) for each in body["windows"]]
    for config in (*(each["config"] for each in windows), *(each for each, _ in body["failed"])):
        config_of(config)
    return read_as(WindowsMeasured, body, at=at, windows=windows)


#: Readers of the reports of the trainer's end, by their kinds.
REPORTS: Mapping[str, Reader] = {"windows": _windows, "profiled": reader(Profiled)}
