"""Read the ledger from outside the scheduler: studies, trials, epochs, devices, events.

Readers open the ledger read-only while the scheduler writes it. Readers take no lock for which the
scheduler would have to wait. Each call sees the ledger as of one moment. A call raises BackendError
if there is no ledger yet, and LedgerDamaged if a row differs from what was written. So no wrong
data is ever shown.

For this check, rows are read whole, each with its digest. A query selects rows by columns that have
an index, because the database checks its indexes. A query on a column without an index also selects
rows with unknown values, so that the digests of such rows are compared too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar, cast

from sqlalchemy import ColumnElement, Row, Select, func, select

from ...base.errors import UsageError
from ...profiling.similarity.history import HistoryEntry
from ...scheduler.model.events import (
    AttemptFailed,
    AttemptLost,
    EpochReported,
    Event,
    PolicyFailed,
    StudyImported,
    StudySubmitted,
    StudyWritten,
    Suggested,
    TrialAdded,
    TrialReturned,
    TrialWritten,
)
from ...scheduler.model.study import SuperNet
from ...scheduler.model.trial import TrialState
from . import codec
from .adopted import Adopted, read_adopted
from .databases.digests import EVENTS
from .databases.read_only import ReadOnly
from .databases.tables import DEVICE, DURABLE, EPOCH, EVENT, STUDY, TRIAL
from .event_log import EventLog, imports, names_of, of_kind
from .history import read_history
from .listed import DELETED
from .rows import (
    DurableRow,
    EpochRow,
    StudyRow,
    TrialRow,
    Work,
    device_of,
    durable_of,
    epoch_of,
    slots_of,
    study_of,
    trial_of,
)

if TYPE_CHECKING:
    from ...scheduler.state.state import DeviceRecord

#: The largest number of study names that a message lists when a study is not found.
NAMED = 5

_Kind = TypeVar("_Kind", bound=Event)


class Reader(EventLog):
    """Read-only access to the ledger at ``url``.

    The ledger may appear, grow and vanish between two calls.
    """

    def __init__(self, url: str) -> None:
        #: The tables of the ledger. The module ``listed`` reads the list of studies from these
        #: tables.
        self.tables = ReadOnly(url)
        self._database = self.tables.database
        #: The number of the newest event when ``supernets`` last searched, and the result of that
        #: search.
        self._supernets: tuple[int, dict[str, SuperNet]] = -1, {}

    def is_empty(self) -> bool:
        """Return True if no scheduler has opened this ledger yet.

        Raises LedgerDamaged if data were lost.
        """
        return self.tables.is_empty()

    def studies(self) -> list[StudyRow]:
        """Return all studies except deleted studies, oldest first."""
        return [row for row in self.studies_ever() if row.status != DELETED]

    def studies_ever(self) -> list[StudyRow]:
        """Return all studies, including deleted studies, oldest first."""
        query = select(STUDY).order_by(STUDY.c.created_at, STUDY.c.id)
        return [study_of(row) for row in self._whole(STUDY, query)]

    def study(self, name_or_id: str) -> StudyRow:
        """Return the newest study with the given name or id.

        Raises UsageError, with similar names, if there is no such study.
        """
        newest_first = STUDY.c.created_at.desc(), STUDY.c.id.desc()
        text = codec.storable(name_or_id)
        matches = (STUDY.c.id == text) | (STUDY.c.name == text)
        query = select(STUDY).where(STUDY.c.status != DELETED).order_by(*newest_first)
        for row in self._whole(STUDY, query.where(matches).limit(1)):
            return study_of(row)
        names = self._whole(STUDY, query)
        raise UsageError(_no_study(name_or_id, [row.name for row in names]))

    def study_names(self) -> dict[str, str]:
        """Return the names of all studies by id, including deleted studies."""
        return {row.id: row.name for row in self._rows(select(STUDY.c.id, STUDY.c.name))}

    def with_names(self, study: StudyRow) -> StudyRow:
        """Return ``study`` with the names that the user gave to the values of its objectives."""
        return replace(study, names=names_of(self._whole, study.id))

    def statuses(self) -> dict[str, int]:
        """Return the number of studies by status."""
        return dict(Counter(row.status for row in self._whole(STUDY, select(STUDY))))

    def responses(self) -> tuple[int, float]:
        """Return the number of finished studies, and the sum of their times in seconds.

        The time of a study runs from its submission to its end.
        """
        finished = [s for s in self._whole(STUDY, select(STUDY)) if s.finished_at is not None]
        return len(finished), sum(study.finished_at - study.created_at for study in finished)

    def trials(self, study_id: str, first: int = 0) -> list[TrialRow]:
        """Return the trials of a study by number, beginning with the number ``first``."""
        query = select(TRIAL).where(TRIAL.c.study == study_id).order_by(TRIAL.c.number)
        if first:
            query = query.where(TRIAL.c.number >= first)
        return [trial_of(row) for row in self._whole(TRIAL, query)]

    def trial_digests(self, study_id: str) -> dict[str, int]:
        """Return the digests of a study's trials by id, in the order of the trials' numbers.

        If the digest of a trial has not changed, the row of the trial has not changed.
        """
        columns = select(TRIAL.c.id, TRIAL.c.digest)
        rows = self._rows(columns.where(TRIAL.c.study == study_id).order_by(TRIAL.c.number))
        return {row.id: row.digest for row in rows}

    def trials_of(self, ids: Sequence[str]) -> list[TrialRow]:
        """Return the trials with the given ids. Pass at most a few hundred ids."""
        query = select(TRIAL).where(TRIAL.c.id.in_(ids))
        return [trial_of(row) for row in self._whole(TRIAL, query)]

    def running(self) -> dict[tuple[str, int], Work]:
        """Return the running trials of all studies by device and slot."""
        running = str(TrialState.RUNNING)
        known_states = [str(state) for state in TrialState]
        # Two queries: a join would read the trials of every study to find those that run.
        going = select(STUDY).where(STUDY.c.finished_at.is_(None))
        names = {row.id: row.name for row in self._whole(STUDY, going)}
        at_work = (TRIAL.c.state == running) | TRIAL.c.state.not_in(known_states)
        query = select(TRIAL).where(TRIAL.c.study.in_(names), at_work)
        return {
            (device, slot): Work(
                names[row.study], row.id, row.number, row.epoch + 1, row.dispatched_at
            )
            for row in self._whole(TRIAL, query)
            for device, slot in slots_of(row)
        }

    def epochs(self, study_id: str, after_rowid: int = 0) -> list[EpochRow]:
        """Return a study's accepted epochs with a ``rowid`` above ``after_rowid``, by ``rowid``."""
        query = (
            select(EPOCH)
            .join(TRIAL, TRIAL.c.id == EPOCH.c.trial)
            .where(TRIAL.c.study == study_id, EPOCH.c.id > after_rowid)
            .order_by(EPOCH.c.id)
        )
        return [epoch_of(row) for row in self._whole(EPOCH, query)]

    def epochs_of(self, trial_id: str) -> list[EpochRow]:
        """Return the accepted epochs of a trial, in order."""
        query = select(EPOCH).where(EPOCH.c.trial == trial_id).order_by(EPOCH.c.epoch)
        return [epoch_of(row) for row in self._whole(EPOCH, query)]

    def newest_epochs(self, limit: int) -> list[EpochRow]:
        """Return the ``limit`` newest epochs of all studies, in the order of acceptance."""
        query = select(EPOCH).order_by(EPOCH.c.id.desc()).limit(limit)
        return [epoch_of(row) for row in reversed(self._whole(EPOCH, query))]

    def last_report(self, trial_id: str) -> EpochReported | None:
        """Return the last epoch report of a trial, or None if the trial has reported no epoch.

        Epochs that were taken over from another trial have no report.
        """
        query = EVENTS.where(EVENT.c.trial == trial_id, of_kind(EpochReported))
        reports = self._events(query.order_by(EVENT.c.seq.desc()).limit(1))
        return cast(EpochReported, reports[0][1]) if reports else None

    def durables(self, study_id: str, hashes: Collection[str] | None = None) -> list[DurableRow]:
        """Return the durable states (checkpoints in the store) of a study, by trial and epoch.

        If ``hashes`` is not None, only states with these hashes are returned.
        """
        query = (
            select(DURABLE)
            .join(TRIAL, TRIAL.c.id == DURABLE.c.trial)
            .where(TRIAL.c.study == study_id)
            .order_by(TRIAL.c.number, DURABLE.c.epoch)
        )
        if hashes is not None:
            query = query.where(DURABLE.c.state_hash.in_(list(hashes)))
        return [durable_of(row) for row in self._whole(DURABLE, query)]

    def imported(self, study_id: str) -> tuple[int, StudyImported] | None:
        """Return the number and the event of a study's import.

        The result is None if the study was not imported.
        """
        return next(iter(imports(self._whole, study_id)), None)

    def events(self, trial_id: str) -> list[tuple[int, Event]]:
        """Return the events of a trial in order, each with its sequence number."""
        return self._events(EVENTS.where(EVENT.c.trial == trial_id).order_by(EVENT.c.seq))

    def of_trials(
        self, study_id: str, kind: type[_Kind], after: int = 0
    ) -> list[tuple[int, _Kind]]:
        """Return the events of one kind about the trials of a study, each with its sequence number.

        Only events with a number above ``after`` are returned, in order.
        """
        trial_ids = select(TRIAL.c.id).where(TRIAL.c.study == study_id)
        return self._of_kind(kind, EVENT.c.trial.in_(trial_ids), EVENT.c.seq > after)

    def of_study(self, study_id: str, kind: type[_Kind]) -> list[tuple[int, _Kind]]:
        """Return the events of one kind about a study itself, each with its sequence number."""
        return self._of_kind(kind, EVENT.c.study == study_id)

    def written(self, study_id: str, after: int = 0) -> list[tuple[int, Event]]:
        """Return the events with which objectives and users wrote to a study or to its trials.

        Only events with a sequence number above ``after`` are returned, each with its number.
        """
        kinds = of_kind(Suggested, TrialAdded, TrialWritten, StudyWritten)
        # Ids of trials begin with the study's id and "-". "." is the character after "-".
        of_it = EVENT.c.trial >= study_id, EVENT.c.trial < f"{study_id}."
        query = EVENTS.where(EVENT.c.seq > after, *of_it, kinds).order_by(EVENT.c.seq)
        rows = [row for row in self._whole(EVENT, query) if row.study == study_id]
        return [(row.seq, codec.decode(row.kind, row.body)) for row in rows]

    def last_attempts(self, study_id: str, after: int, limit: int) -> list[Event | None]:
        """Return the last outcomes of a study's attempts, newest first, at most ``limit`` outcomes.

        Only events with a sequence number above ``after`` are considered. An outcome is the event
        of a failure or a loss. None stands for a reported epoch, or for an objective that returned.
        """
        trial_ids = select(TRIAL.c.id).where(TRIAL.c.study == study_id)
        ends = of_kind(EpochReported, TrialReturned, AttemptFailed, AttemptLost)
        query = (
            EVENTS.where(EVENT.c.seq > after, ends, EVENT.c.trial.in_(trial_ids))
            .order_by(EVENT.c.seq.desc())
            .limit(limit)
        )
        return [
            event if isinstance(event, AttemptFailed | AttemptLost) else None
            for _, event in self._events(query)
        ]

    def policy_failures(self) -> list[tuple[int, PolicyFailed]]:
        """Return the events of a user's policy that failed to give a plan, each with its number."""
        return self._of_kind(PolicyFailed)

    def _of_kind(self, kind: type[_Kind], *where: ColumnElement[bool]) -> list[tuple[int, _Kind]]:
        query = EVENTS.where(of_kind(kind), *where).order_by(EVENT.c.seq)
        return [(seq, cast(_Kind, event)) for seq, event in self._events(query)]

    def events_at(self, seqs: Sequence[int]) -> dict[int, Event]:
        """Return the events with the given sequence numbers, by number."""
        return dict(self._events(EVENTS.where(EVENT.c.seq.in_(seqs))))

    def newest(self) -> int:
        """Return the sequence number of the newest event, or 0 before the first event.

        While the number does not change, nothing in the ledger changes.
        """
        [row] = self._rows(select(func.max(EVENT.c.seq)))
        return row[0] or 0

    def newest_at(self) -> float | None:
        """Return the time of the newest event by the scheduler's clock.

        The result is None before the first event.
        """
        rows = self._rows(select(EVENT.c.at).order_by(EVENT.c.seq.desc()).limit(1))
        return next((row.at for row in rows), None)

    def changed(self, after: int) -> set[str]:
        """Return the ids of the studies that have events with a number above ``after``.

        Digests are not compared, since the result only tells callers which studies to read again.
        """
        query = select(EVENT.c.study).where(EVENT.c.seq > after, EVENT.c.study.is_not(None))
        return {row.study for row in self._rows(query.distinct())}

    def named(self, uris: Sequence[str]) -> set[str]:
        """Return those of ``uris`` that are still needed. Pass at most a few hundred URIs.

        A URI is needed if it is the URI of a durable state, or the URI of a super-net among whose
        candidates a study searches. Digests are not compared, so a needed URI is missed if its row
        is damaged.
        """
        rows = self._rows(select(DURABLE.c.uri).where(DURABLE.c.uri.in_(uris)))
        supernets = {each.uri for each in self.supernets().values()}
        return {row.uri for row in rows} | supernets.intersection(uris)

    def all_named(self) -> set[str]:
        """Return all URIs that are still needed, by the definition in ``named``."""
        durable = {row.uri for row in self._whole(DURABLE, select(DURABLE))}
        return durable.union(each.uri for each in self.supernets().values())

    def supernets(self) -> dict[str, SuperNet]:
        """Return the super-net of each study that has one, by the id of the study.

        Such a study searches among the candidates of its super-net (one model with all candidates).
        Deleted studies are included. The super-net of a study never changes. So the studies are
        searched again only if studies were added or an older ledger was restored, which the newest
        events reveal.
        """
        (at, supernets), newest = self._supernets, self.newest()
        new_studies = select(EVENT.c.seq).where(
            EVENT.c.seq > at, of_kind(StudySubmitted, StudyImported)
        )
        if not 0 <= at <= newest or self._rows(new_studies.limit(1)):
            some = STUDY.c.spec.like('%"supernet":{%')
            specs = [
                codec.spec_from_json(row.spec) for row in self._rows(select(STUDY).where(some))
            ]
            supernets = {
                spec.id: of for spec in specs if (of := spec.strategy.supernet) is not None
            }
        self._supernets = newest, supernets
        return supernets

    def devices(self) -> list[DeviceRecord]:
        """Return every device that ever joined, by name."""
        query = select(DEVICE).order_by(DEVICE.c.name)
        return [device_of(row) for row in self._whole(DEVICE, query)]

    def history(self, machine: str | None = None) -> tuple[HistoryEntry, ...]:
        """Return the history of tuned system parameters for the class of machines ``machine``.

        If ``machine`` is None, return the history for all classes.
        """
        return read_history(self._whole, machine)

    def adopted(self) -> Adopted:
        """Return the system configurations that users have pinned."""
        return read_adopted(self._whole)

    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        return self.tables.rows(query)


def _no_study(name: str, known: Sequence[str]) -> str:
    """Return a message that no study has the given name, with similar names.

    ``known`` contains the names of all studies, newest first.
    """
    near = get_close_matches(name, known, n=NAMED, cutoff=0.4)
    names = list(dict.fromkeys([*near, *known]))
    if not names:
        return f"there is no study {name!r}: there are no studies yet"
    more = f" and {len(names) - NAMED} more (penstock ls)" if len(names) > NAMED else ""
    verb = "is" if len(names) == 1 else "are"
    return f"there is no study {name!r}; there {verb}: {', '.join(names[:NAMED])}{more}"
