"""Decides in the scheduler which notices about studies go to which addresses.

Theory of operation. All decisions follow from accepted events. An occasion becomes one decision
(``Tell``) for each address. The decision is kept in the extension's state until an event (``Told``)
records that the notice was sent or given up. So the commit of the occasion's event also records the
decision, and a scheduler that starts repeats the notices without an outcome. The previous scheduler
may have sent these notices already, so a repeated notice says that it may come twice.

Two occasions depend on time alone: a study stands still, or a forecast misses its deadline. To find
these occasions, the engine asks for a ``Tick`` at long intervals.

Each occasion leads to notices only once between a study's start and its end. If a study is extended
after its end, or one of its trials is continued, the study ends again and people are notified
again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...scheduler.engine.engine import Parts
from ...scheduler.model.events import EpochReported, Tick
from ...scheduler.model.study import StudySpec, deadline_of
from ...scheduler.model.trial import Trial, TrialState
from ...scheduler.outlook.ending import LONGEST, best_trials, ended_before, ending
from ...scheduler.outlook.forecast import misses_by
from ...scheduler.resources.slots import free_slots
from ...scheduler.state.extensions import Begins, Extension
from ...scheduler.state.state import Attempt, StudyState
from .addresses import INSTALLATION
from .events import Installed, Kind, Tell, Told
from .judgement import Standing, all_fail, is_late, look_again, patience, until_next_look

#: The name of the extension, and the key of its state in ``EngineState.ext``.
NAME = "notices"
#: The occasions that lead to notices each time that a study ends.
_ENDS = ("ended", "failed")


def plug(parts: Parts) -> Extension:
    """Return the extension that notifies people about their studies."""
    teller = _Teller(parts)
    return Extension(
        name=NAME,
        needed_by=teller.is_needed,
        handlers={Installed: teller.on_installed, Told: teller.on_told, Tick: teller.on_tick},
        on_begun=teller.on_begun,
        on_edited=teller.on_edited,
        on_accepted=teller.on_accepted,
        on_moved=teller.on_moved,
        on_over=teller.on_over,
        forget=teller.forget,
        questions=teller.questions,
        deadlines=teller.deadlines,
    )


class _Teller:
    """The handlers of the extension, which find occasions and keep notices without an outcome."""

    def __init__(self, parts: Parts) -> None:
        self._core = parts.core
        self._state = parts.core.state

    def _own(self) -> dict[str, Any]:
        """Return the extension's state, which is created if it is missing.

        The state has the number of the installation's addresses, a record for each study, and the
        notices that have no outcome yet.
        """
        empty = {"addresses": 0, "studies": {}, "pending": {}}
        own: dict[str, Any] = self._state.ext.setdefault(NAME, empty)
        return own

    def _tidy(self) -> None:
        if NAME in self._state.ext and not any(self._own().values()):
            del self._state.ext[NAME]

    def _addresses(self) -> int:
        return int(self._own()["addresses"]) if NAME in self._state.ext else 0

    def is_needed(self, spec: StudySpec) -> bool:
        return bool(spec.notify) or self._addresses() > 0

    def _record(self, study: StudyState) -> dict[str, Any]:
        """Return the record of a study, which is created if it is missing."""
        studies: dict[str, dict[str, Any]] = self._own()["studies"]
        if study.spec.id not in studies:
            studies[study.spec.id] = self._new_record(study)
        return studies[study.spec.id]

    def _new_record(self, study: StudyState) -> dict[str, Any]:
        at, span = self._core.at, _span(study)
        return {
            "since": at,
            "longest": 0.0,
            "still_at": at + patience(0.0),
            "late_at": None if span is None else at + until_next_look(span),
            "late": False,
            "told": [],
        }

    def on_installed(self, event: Installed) -> None:
        self._own()["addresses"] = event.addresses
        for study in self._state.studies.values():
            self._core.extensions.study_begins(study)
            if self.is_needed(study.spec):
                self._record(study)
            else:
                self.forget(study.spec.id)
        self._tidy()

    def on_told(self, event: Told) -> None:
        if NAME in self._state.ext:
            self._own()["pending"].pop(event.cause, None)
            self._tidy()

    def on_begun(self, study: StudyState, event: Begins) -> None:
        self._own()["studies"][study.spec.id] = self._new_record(study)

    def on_edited(self, study: StudyState, before: StudySpec) -> None:
        """Plan checks of the new deadline of an edited study.

        If the deadline has changed, people may be notified again that the study will be late.
        """
        record, span = self._record(study), _span(study)
        record["late_at"] = None if span is None else self._core.at + until_next_look(span)
        record["late"] = False
        if deadline_of(before, study.created_at) != deadline_of(study.spec, study.created_at):
            record["told"] = [kind for kind in record["told"] if kind != "late"]

    def on_accepted(
        self, study: StudyState, trial: Trial, attempt: Attempt, event: EpochReported
    ) -> None:
        record = self._record(study)
        record["longest"] = max(record["longest"], event.seconds)
        record["since"] = self._core.at
        record["still_at"] = self._core.at + patience(record["longest"])

    def on_moved(self, study: StudyState) -> None:
        """Notify people if all trials of the study have failed so far.

        Accepted epochs, the most frequent events, are skipped because they show that a trial
        succeeds.
        """
        if study.succeeded or isinstance(self._core.event, EpochReported):
            return
        if "all_fail" in self._record(study)["told"]:
            return
        trials = self._core.trials_of(study)
        failed = [trial for trial in trials if trial.state is TrialState.FAILED]
        trained = sum(trial.epoch > 0 for trial in trials if trial.state is not TrialState.FAILED)
        if all_fail(len(failed), trained):
            last = max(failed, key=lambda trial: (trial.finished_at or 0.0, trial.number))
            why = "" if last.failure is None else last.failure.message[:LONGEST]
            self._tell(study, "all_fail", {"failed": len(failed), "why": why})

    def on_over(self, study: StudyState) -> None:
        if ended_before(study, self._core.event, self._core.at):
            return
        trials = self._core.trials_of(study)
        facts = ending(study, trials, self._core.at) | {"best": _best(study.spec, trials)}
        self._tell(study, "failed" if study.status == "failed" else "ended", facts)

    def forget(self, study: str) -> None:
        if NAME in self._state.ext:
            self._own()["studies"].pop(study, None)
            self._tidy()

    def _tell(self, study: StudyState, kind: Kind, facts: dict[str, Any]) -> None:
        """Notify all addresses of the study about an occasion.

        Nothing is sent if the addresses were already notified of an occasion that counts only once.
        """
        kinds = self._record(study)["told"]
        if kind not in _ENDS:
            if kind in kinds:
                return
            kinds.append(kind)
        everywhere = (f"{INSTALLATION}/{place}" for place in range(self._addresses()))
        for to in dict.fromkeys((*study.spec.notify, *everywhere)):
            body: dict[str, Any] = {
                "study": study.spec.id,
                "name": study.spec.name,
                "kind": kind,
                "to": to,
                "at": self._core.at,
                "facts": facts,
            }
            name = self._core.decision_id()
            self._own()["pending"][name] = body
            self._core.out.append(Tell(id=name, cause=self._state.seq, **body))

    def questions(self) -> Iterator[Tell]:
        if NAME in self._state.ext:
            for name, body in self._own()["pending"].items():
                yield Tell(id=name, cause=int(name.partition(".")[0]), again=True, **body)

    def deadlines(self) -> Iterator[float]:
        return (at for study, record in self._watched() for at in _looks(record))

    def _watched(self) -> Iterator[tuple[StudyState, dict[str, Any]]]:
        """Yield the studies that may run now, which are checked for a standstill and for delays."""
        if NAME not in self._state.ext:
            return
        for name, record in self._own()["studies"].items():
            study = self._state.studies.get(name)
            if study is not None and study.runnable:
                yield study, record

    def on_tick(self, event: Tick) -> None:
        for study, record in list(self._watched()):
            if "stands_still" not in record["told"] and event.at >= record["still_at"]:
                self._look_at_standing(study, record)
            if "late" not in record["told"] and _is_due(record["late_at"], event.at):
                self._look_at_deadline(study, record)

    def _look_at_standing(self, study: StudyState, record: dict[str, Any]) -> None:
        at, running = self._core.at, self._running(study)
        standing = Standing(
            since=record["since"],
            due=record["still_at"],
            longest=record["longest"],
            runs=bool(running),
            has_work=bool(study.at_work or study.asks),
            queues=self._queues(study),
        )
        again = look_again(at, standing)
        if again is not None:
            record["since"], record["still_at"] = again
            return
        why = self._why_still(study, running)
        self._tell(study, "stands_still", {"seconds": at - record["since"], "why": why})

    def _running(self, study: StudyState) -> list[Trial]:
        attempts = self._state.attempts.values()
        names = (each.segment.trial for each in attempts if each.study == study.spec.id)
        return [self._state.trials[name] for name in names]

    def _may_use(self, study: StudyState) -> list[str]:
        names = (name for name in self._state.devices if self._state.usable(name))
        return [name for name in names if name not in study.refused]

    def _queues(self, study: StudyState) -> bool:
        """Return True if the study must wait because all slots that it may use are taken."""
        names = self._may_use(study)
        free = {slot.device for slot in free_slots(self._state, self._core.extensions)}
        return bool(names) and not free.intersection(names)

    def _why_still(self, study: StudyState, running: list[Trial]) -> str:
        """Return the reason why a study has no new epoch, as far as the state shows it.

        ``running`` has the study's running trials.
        """
        if running:
            numbers = ", ".join(str(trial.number) for trial in running[:5])
            several = f"trials {numbers} run" if len(running) > 1 else f"trial {numbers} runs"
            return f"{several}, and no epoch of them has ended"
        if not self._state.devices:
            return "no device is there"
        usable = [name for name in self._state.devices if self._state.usable(name)]
        if not usable:
            return "no device may be used: they are taken out, or rest after failures"
        if not self._may_use(study):
            return f"no device can work for it: {study.refused[usable[0]]}"
        if study.asks and not study.at_work:
            return "its sampler does not answer"
        return "nothing of it runs, though devices are free (penstock plan)"

    def _look_at_deadline(self, study: StudyState, record: dict[str, Any]) -> None:
        at, span = self._core.at, _span(study)
        if span is None or at >= study.created_at + span:  # its limit acts by itself then
            record["late_at"] = None
            return
        with self._state.costs.read_only():
            misses = misses_by(self._core, study, at)
        late, before = is_late(misses, span), record["late"]
        record["late"], record["late_at"] = late, at + until_next_look(span)
        if late and before:  # two in a row: the first epochs say little
            self._tell(study, "late", {"seconds": misses, "left": study.created_at + span - at})


def _span(study: StudyState) -> float | None:
    """Return the seconds from a study's submission to its deadline, or None without a deadline."""
    end = deadline_of(study.spec, study.created_at)
    return None if end is None else end - study.created_at


def _is_due(look: float | None, at: float) -> bool:
    return look is not None and at >= look


def _looks(record: dict[str, Any]) -> Iterator[float]:
    if "stands_still" not in record["told"]:
        yield record["still_at"]
    if "late" not in record["told"] and record["late_at"] is not None:
        yield record["late_at"]


def _best(spec: StudySpec, trials: list[Trial]) -> dict[str, Any] | None:
    """Return facts about the best trial, or the number of trials in the Pareto front.

    Return None if no trial has a result.
    """
    best = best_trials(spec, trials)
    if not best:
        return None
    if spec.further:
        return {"front": len(best)}
    return {
        "number": best[0].number,
        "metric": spec.metric,
        "value": best[0].value,
        "params": dict(best[0].params),
        "mean": spec.replicates > 1,
    }
