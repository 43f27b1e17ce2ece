"""Answers the questions of the scheduler's end, and reads the reports of the trainer's end.

None of this is part of the engine. The answers are in the ledger, so a replay does not ask again.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ...app.server.runner.decision_collector import Turn
from ...app.server.runner.reports import Reader, config_of, read_as, reader
from ...profiling.knobs.knobs import SystemConfig, part
from ...profiling.similarity.evidence import Evidence, failed_of, known_of, prior_of
from ...profiling.similarity.history import HistoryEntry, source_of
from ...scheduler.model.events import Event
from .asked.advisor import Advisor
from .asked.decisions import (
    Advised,
    AskConfigs,
    ConfigsProposed,
    Consult,
    Known,
    OfOthers,
    Recall,
    Recalled,
    Remember,
)
from .races.measured import Profiled, Rehearsed, Window, WindowsMeasured
from .workloads import workload_of

if TYPE_CHECKING:
    from ...app.ledger.adopted import Adopted
    from ...app.ledger.ledger import Ledger
    from ...scheduler.model.study import StudySpec

log = logging.getLogger(__name__)

#: The distance that is assumed between workloads that were not compared yet: the largest at which
#: they count as similar (``prior_of``).
UNKNOWN_DISTANCE = 1.0
#: The names of a window's values, in their order in a report.
_OF_WINDOWS = tuple(field.name for field in fields(Window))


class Carrier:
    """Asks the history and the model, and adds results to the history."""

    decisions = (AskConfigs, Consult, Recall, Remember)

    def __init__(self) -> None:
        self._advisor = Advisor()
        self._recalled: list[tuple[Recall, Sequence[HistoryEntry], Adopted]] = []

    def carry_out(
        self, decision: AskConfigs | Consult | Recall | Remember, turn: Turn, at: float
    ) -> Event | None:
        """Add the work of ``decision`` to ``turn``. Return an event if the answer comes at once."""
        if isinstance(decision, AskConfigs):
            return configs(decision, at)
        if isinstance(decision, Remember):
            turn.history += entries_of(decision, at)
        elif isinstance(decision, Recall):
            turn.after.append(partial(self._recall, decision))
        else:
            turn.after.append(partial(self._consult, decision))
        return None

    def _consult(self, question: Consult, ledger: Ledger) -> None:
        self._advisor.consult(question, ledger.history(question.machine))

    def _recall(self, question: Recall, ledger: Ledger) -> None:
        self._recalled.append((question, ledger.history(), ledger.adopted()))

    def answers(self, at: float) -> Iterator[Event]:
        """Yield the history's answers since the last call."""
        recalls, self._recalled = self._recalled, []
        for question, entries, adopted in recalls:
            yield recalled(question, entries, adopted, at)
        for each in self._advisor.answers():
            yield Advised(
                at=at, cause=each.consult, workload=each.workload, config=each.config, why=each.why
            )


def recalled(
    question: Recall, entries: Iterable[HistoryEntry], adopted: Adopted, at: float
) -> Event:
    """Return the history's results on a workload, by class of machine and kind of slot.

    Results of other code (also earlier versions of the same file) are added for knobs that change
    bits. All other knobs are tuned within epochs.
    """
    by_place = defaultdict[tuple[str, str], list[HistoryEntry]](list)
    for entry in entries:
        by_place[entry.workload, entry.machine].append(entry)
    places = list[tuple[str, str, list[HistoryEntry]]]()
    by_class = defaultdict[tuple[str, str], list[tuple[float, Sequence[Evidence]]]](list)
    for (workload, machine), evidence in by_place.items():
        digest, _, slot = workload.partition("/")
        if digest == question.workload:
            places.append((workload, machine, evidence))
        else:
            by_class[slot, machine].append((UNKNOWN_DISTANCE, known_of(evidence)))
    return Recalled(
        at=at,
        cause=question.id,
        study=question.study,
        known=tuple(
            Known(workload, machine, each.config, each.mean, each.error, each.windows, each.studies)
            for workload, machine, evidence in places
            for each in known_of(evidence)
        ),
        others=tuple(
            OfOthers(*place, each.config, each.mean, each.error, each.workloads, each.agreeing)
            for place, evidence in by_class.items()
            for each in prior_of(evidence)
            if each.config == part(each.config, "rounding", "numerics")
        ),
        failed=tuple(
            (workload, machine, config)
            for workload, machine, evidence in places
            for config in failed_of(evidence, at)
        ),
        adopted=tuple(
            (workload, machine, config)
            for (workload, machine), config in adopted.items()
            if workload.partition("/")[0] == question.workload
        ),
    )


def settle(spec: StudySpec, ledger: Ledger) -> StudySpec:
    """Let a study that reuses earlier results use the configuration that its user has adopted."""
    if spec.system != "reuse" or spec.contract != "torch" or spec.exactness != "bitwise":
        return spec
    if spec.system_fixed or spec.energy_weight or not (adopted := ledger.adopted()):
        return spec
    fixed = replace(spec, system_fixed=True)
    own = workload_of(fixed, None)
    return fixed if any(name.partition("/")[0] == own for name, _ in adopted) else spec


def configs(ask: AskConfigs, at: float) -> Event:
    """Return configurations to try; none if the model raises an error."""
    from .asked.sampler import propose  # here, since it brings Optuna and few studies ask

    try:
        proposals = propose(ask)
    except Exception:  # anything Optuna may raise: system parameters never end a study
        log.exception("no configurations were proposed for workload %s", ask.workload)
        proposals = ()
    return ConfigsProposed(at=at, cause=ask.id, workload=ask.workload, configs=proposals)


def entries_of(decision: Remember, at: float) -> list[HistoryEntry]:
    """Return the results of a race as entries of the history, also for infeasible ones."""
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
            spread=decision.spread,
            at=at,
            infeasible=infeasible,
        )

    failed = [entry(config, 1.0, infeasible=True) for config in decision.infeasible]
    return [entry(decision.config, decision.speedup), *failed]


def _windows(event: type[WindowsMeasured] | type[Rehearsed]) -> Reader:
    """Return a reader of reports with windows. A report has each window as a list of values."""

    def read(body: Mapping[str, Any], at: float) -> Event:
        windows = [dict(zip(_OF_WINDOWS, each, strict=True)) for each in body["windows"]]
        configs = [*(each["config"] for each in windows), *(each for each, _ in body["failed"])]
        for config in (*configs, body.get("chosen", ())):
            config_of(config)
        return read_as(event, body, at=at, windows=windows)

    return read


#: The reader of each kind of report that the trainer's end sends.
REPORTS: Mapping[str, Reader] = {
    "windows": _windows(WindowsMeasured),
    "rehearsed": _windows(Rehearsed),
    "profiled": reader(Profiled),
}
