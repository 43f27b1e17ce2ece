"""The ledger: the durable record of everything that happened, written by a single scheduler.

Theory of operation. The truth is the table of events, which the engine replays. Tables for readers
(studies, trials, epochs, durable states, devices) are derived from the events. Further tables
contain replies to commands, snapshots (which shorten a replay), the history of tuned system
parameters, and the system configurations that users pinned. A ``Batch`` is written in one
transaction. So a reader or a restarted scheduler sees a batch completely or not at all, whenever
the writer was killed. Sequence numbers only grow, and an epoch is accepted once. A batch that would
break either rule is refused completely (``IllegalTransition``). In that case, either a second
writer is at work or the engine has a bug.

``MemoryLedger`` makes the same promises without a file, for the simulator and for tests.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from operator import attrgetter
from typing import Any, Protocol, Self

from sqlalchemy import ColumnElement, Connection, Row, Select, select, update

from ...base.errors import IllegalTransition
from ...profiling.similarity.history import HistoryEntry
from ...scheduler.model.events import Event, StudyWritten
from ...scheduler.model.finished import EarlierTrial, FinishedStudy, PastTrial
from ...scheduler.model.study import OVER, StudyRecord, StudySpec
from ...scheduler.model.trial import AcceptedEpoch, Trial
from ...scheduler.strategies.expected import expected_epochs
from ..extensions import of_ends
from .adopted import Adopted, Adoption, adopted_of, read_adopted
from .databases.base import Database, Newest
from .databases.digests import seal
from .databases.open import database_at
from .databases.row_digest import NONE
from .databases.tables import COMMAND, STUDY, TRIAL
from .databases.upkeep import migrate, verify
from .event_log import EventLog, names_of
from .finished import read_past, wants_reports
from .history import merged, read_history
from .rows import study_of, trial_of
from .summary import epochs_of, facts_of, metric_names
from .writes import Batch, writes_for

#: The number of seconds between two records of the newest event (``Database.note``).
NOTE_EVERY = 1.0


class Ledger(Protocol):
    """The interface through which the scheduler's runner uses a ledger.

    Methods raise BackendError if the database does not answer.
    """

    def commit(self, batch: Batch) -> None:
        """Write ``batch`` in one transaction. The batch is durable when this method returns."""

    def replay(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        """Yield the events with a sequence number above ``after``, in order."""

    def latest_snapshot(self) -> tuple[int, str] | None:
        """Return the newest snapshot, or None if there is no snapshot.

        A snapshot is a pair: the number of the last event that the snapshot covers, and the text of
        the snapshot.
        """

    def reply_to(self, command: str) -> str | None:
        """Return the reply to the command with the id ``command``.

        The result is None if no such command was accepted.
        """

    def past(self, study: str) -> tuple[StudyRecord, FinishedStudy]:
        """Return the record and the trials of the finished study with the id ``study``."""

    def earlier(self, spec: StudySpec) -> tuple[EarlierTrial, ...]:
        """Return trials of finished studies that extensions need for the new study ``spec``."""

    def history(self, machine: str | None = None) -> tuple[HistoryEntry, ...]:
        """Return the history of tuned system parameters for the class of machines ``machine``.

        If ``machine`` is None, return the history for all classes.
        """

    def adopted(self) -> Adopted:
        """Return the system configurations that users have pinned."""

    def close(self) -> None:
        """Release the database."""


class MemoryLedger:
    """A ledger in the memory of the process.

    The ledger stores the values themselves, without encoding.
    """

    def __init__(self) -> None:
        self.events: list[tuple[int, Event]] = []
        self.studies: dict[str, StudyRecord] = {}
        self.epochs: dict[tuple[str, int], AcceptedEpoch] = {}
        self.trials: dict[str, Trial] = {}
        self._history: dict[str, HistoryEntry] = {}
        self._adoptions: list[Adoption] = []
        self._snapshot: tuple[int, str] | None = None
        self._replies: dict[str, str] = {}

    def commit(self, batch: Batch) -> None:
        seqs = [self.events[-1][0] if self.events else 0, *(seq for seq, _ in batch.events)]
        keys = [(epoch.trial, epoch.epoch) for epoch in batch.epochs]
        ordered = all(before < after for before, after in pairwise(seqs))
        if not ordered or len(set(keys)) < len(keys) or not self.epochs.keys().isdisjoint(keys):
            raise IllegalTransition("an event or an epoch would be written twice")
        self.events.extend(batch.events)
        self.studies.update((record.spec.id, record) for record in batch.studies)
        self.epochs.update(zip(keys, batch.epochs, strict=True))
        self.trials.update((trial.id, trial) for trial in batch.trials)
        self._replies.update(batch.commands)
        entries, forgotten = merged(batch.history, self._history.values())
        self._history.update((entry.id, entry) for entry in entries)
        for name in forgotten:
            del self._history[name]
        self._adoptions += batch.adopted
        self._snapshot = batch.snapshot or self._snapshot

    def replay(self, after: int = 0) -> Iterator[tuple[int, Event]]:
        return iter([(seq, event) for seq, event in self.events if seq > after])

    def latest_snapshot(self) -> tuple[int, str] | None:
        return self._snapshot

    def reply_to(self, command: str) -> str | None:
        return self._replies.get(command)

    def past(self, study: str) -> tuple[StudyRecord, FinishedStudy]:
        record = self.studies[study]
        trials = sorted(
            (t for t in self.trials.values() if t.study == study), key=attrgetter("number")
        )
        # Sorted by epoch, since trials may have epochs in common.
        of = defaultdict[str, list[AcceptedEpoch]](list)
        for each in self.epochs.values() if wants_reports(record.spec) else ():
            of[each.trial].append(each)
        past = tuple(PastTrial.of(trial, of[trial.id]) for trial in trials)
        return record, FinishedStudy(record.created_at, past, record.spent)

    def earlier(self, spec: StudySpec) -> tuple[EarlierTrial, ...]:
        records = [record for record in self.studies.values() if record.status in OVER]
        over = [(record.spec, self.past(record.spec.id)[1].trials) for record in records]
        return tuple(t for among in of_ends("ledger", "earlier_among") for t in among(spec, over))

    def history(self, machine: str | None = None) -> tuple[HistoryEntry, ...]:
        of_it = [e for e in self._history.values() if machine in (None, e.machine)]
        return tuple(sorted(of_it, key=lambda entry: (entry.at, entry.id)))

    def adopted(self) -> Adopted:
        return adopted_of(self._adoptions)

    def close(self) -> None:
        """Do nothing, so that the record can still be read."""


class SqlLedger(EventLog):
    """The ledger in a database, accessed over a single connection that stays open.

    The ledger is not thread-safe. After a BackendError from ``commit``, the batch may or may not
    have been written. A lost connection stays lost. Open the ledger again to see its content.
    """

    def __init__(self, database: Database, connection: Connection, newest: Newest) -> None:
        self._database = database
        self._newest = newest
        self._note_due = 0.0
        self._connection = connection
        self._driver: Any = connection.connection.driver_connection
        self._writes = writes_for(connection.dialect.name)

    @classmethod
    def open(cls, url: str) -> Self:
        """Open the ledger at ``url`` and take its lock. Create or migrate the ledger if needed.

        The call reads every row. Raises LedgerDamaged if a row differs from what was written.
        """
        database = database_at(url)
        if database.is_absent():
            database.note(Newest(0, NONE))  # after a deletion, a new history begins
        with database.translate_errors():
            connection = database.writer().connect()
            try:
                migrate(database, connection)
                newest = verify(database, connection)
            except BaseException:
                connection.close()
                raise
        database.note(newest)
        ledger = cls(database, connection, newest)
        ledger._summarise(STUDY.c.summary == "")
        return ledger

    def commit(self, batch: Batch) -> None:
        forgotten: Sequence[str] = ()
        if batch.history:
            entries, forgotten = merged(batch.history, self.history())
            batch = replace(batch, history=entries)
        written_of = [event for _, event in batch.events if isinstance(event, StudyWritten)]
        with_names = [event.study for event in written_of if metric_names(event.system_attrs)]
        if with_names:  # the names of values are in the summary, and nothing else empties it
            self._set_summaries(dict.fromkeys(with_names, ""))
        statements = self._writes.of(batch, forgotten, self._newest.digest)
        with self._database.translate_errors(), self._database.transaction(self._driver) as cursor:
            for statement, rows in statements:
                cursor.executemany(statement, rows)
        if batch.events:
            newest = statements[0][1][-1]
            self._newest = Newest(newest["seq"], newest["digest"])
            if time.monotonic() >= self._note_due:
                self._note()
        over = [record.spec.id for record in batch.studies if record.finished_at is not None]
        if over or with_names:
            self._summarise(STUDY.c.id.in_([*over, *with_names]))

    def _summarise(self, which: ColumnElement[bool]) -> None:
        """Write the summary of each finished study that satisfies the condition ``which``."""
        over = select(STUDY).where(which, STUDY.c.finished_at.is_not(None))
        for head in self._whole(STUDY, over):
            self._set_summaries({head.id: self._summary_of(head)})

    def _summary_of(self, head: Row[Any]) -> str:
        """Return the summary, as JSON text, of the finished study in the row ``head``."""
        study = replace(study_of(head), names=names_of(self._whole, head.id))
        of_it = select(TRIAL).where(TRIAL.c.study == head.id).order_by(TRIAL.c.number)
        trials = [trial_of(row) for row in self._whole(TRIAL, of_it)]
        epochs, planned_epochs = epochs_of(trials), expected_epochs(study.plan, study.n_trials)
        expected = None if planned_epochs is None else epochs
        return json.dumps(facts_of(study, trials, epochs=epochs, epochs_expected=expected))

    def _set_summaries(self, texts: Mapping[str, str]) -> None:
        heads = self._whole(STUDY, select(STUDY).where(STUDY.c.id.in_(texts)))
        rows = [head._asdict() | {"summary": texts[head.id]} for head in heads]
        seal(STUDY, rows, NONE)
        with self._database.translate_errors(), self._connection.begin():
            for row in rows:
                new = {"summary": row["summary"], "digest": row["digest"]}
                self._connection.execute(update(STUDY).where(STUDY.c.id == row["id"]).values(new))

    def _note(self) -> None:
        # Only now and then: a second changed file makes the next commit's sync more expensive.
        self._database.note(self._newest)
        self._note_due = time.monotonic() + NOTE_EVERY

    def reply_to(self, command: str) -> str | None:
        query = select(COMMAND).where(COMMAND.c.id == command)
        return next((row.reply for row in self._whole(COMMAND, query)), None)

    def past(self, study: str) -> tuple[StudyRecord, FinishedStudy]:
        return read_past(self._whole, study)

    def earlier(self, spec: StudySpec) -> tuple[EarlierTrial, ...]:
        return tuple(t for read in of_ends("ledger", "earlier") for t in read(self._whole, spec))

    def history(self, machine: str | None = None) -> tuple[HistoryEntry, ...]:
        return read_history(self._whole, machine)

    def adopted(self) -> Adopted:
        return read_adopted(self._whole)

    def shrink_log(self) -> None:
        """Free the disk space of a large write-ahead log.

        Call this while there is nothing to write.
        """
        with self._database.translate_errors():
            self._database.shrink_log(self._driver)

    def close(self) -> None:
        self._note()
        self._connection.close()

    def _rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        with self._database.translate_errors(), self._connection.begin():
            return self._connection.execute(query).all()
