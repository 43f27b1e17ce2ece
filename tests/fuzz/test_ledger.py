"""Any content of a ledger's rows is read as a value, or reported as unreadable."""

from __future__ import annotations

import sqlite3

import pytest
from fuzz.fuzzing import EXAMPLES, ODD, fuzzed, in_time, spoilt_json, spoilt_text
from hypothesis import strategies as st
from ledgers.study_ledger import make_study, study_spec
from penstock.app.extensions import names
from penstock.app.ledger import codec
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.writes import Batch
from penstock.base.errors import BackendError, UsageError
from penstock.profiling.similarity.history import HistoryEntry
from penstock.scheduler.model.decisions import Parent
from penstock.scheduler.model.events import EpochReported, Replayed
from penstock.scheduler.model.snapshot import Plan
from worlds.drive_world import World, spec

SPEC = study_spec(n_trials=3)


def tuning(where):
    """Return an event of system tuning, if that is there: its values are nested deeply."""
    if "system_tuning" not in names("events"):
        return []
    from penstock.extensions.system_tuning.races.measured import Window, WindowsMeasured

    windows = (Window((("threads", 2),), 0.9, 0.1),)
    return [WindowsMeasured(**where, windows=windows)]


def journal():
    """Events of many kinds, as a study that goes on makes them."""
    world = World()
    world.submit(spec(n_trials=2))
    world.join("cpu.a.0")
    [dispatch] = world.open.values()
    where = {"trial": dispatch.segment.trial, "fence": dispatch.segment.fence, "at": 2.0}
    world.journal += [Replayed(**where, first=1, last=1, reason="lost"), *tuning(where)]
    world.send(
        EpochReported(
            **where, epoch=1, metrics=(("v", 0.5),), state_hash="h", signature="s", seconds=0.1,
            closes=True,
        )
    )  # fmt: skip
    return world


WORLD = journal()
EVENTS = dict(codec.encode(event) for event in WORLD.journal)


def test_an_events_body_is_read_or_the_ledger_says_that_it_cannot_be():
    for kind, text in EVENTS.items():

        @fuzzed(
            body=spoilt_json(text) | spoilt_text(text),
            kind=st.just(kind),
            examples=max(20, EXAMPLES // 5),
        )
        def is_read_or_not(body, kind):
            with in_time():
                try:
                    event = codec.decode(kind, body)
                except BackendError:
                    return
            assert repr(codec.decode(*codec.encode(event))) == repr(event)

        is_read_or_not()


@fuzzed(kind=spoilt_text(*EVENTS), body=spoilt_json(*EVENTS.values()))
def test_a_kind_that_is_none_is_said(kind, body):
    try:
        codec.decode(kind, body)
    except BackendError:
        return
    assert kind in codec.kinds()


READERS = {
    codec.spec_from_json: (codec.spec_to_json(SPEC), UsageError),
    codec.state_from_json: (codec.state_to_json(WORLD.engine.state), BackendError),
    codec.plan_from_json: (codec.plan_to_json(Plan(())), UsageError),
}


@pytest.mark.parametrize("read", READERS, ids=lambda read: read.__name__)
def test_what_the_ledger_keeps_whole_is_read_or_refused(read):
    text, refusal = READERS[read]

    @fuzzed(body=spoilt_json(text) | spoilt_text(text))
    def is_read_or_not(body):
        with in_time():
            try:
                read(body)
            except refusal:
                return

    is_read_or_not()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    """A study's ledger, as bytes; what can be changed in it, and the text that stands there."""
    home = tmp_path_factory.mktemp("ledger")
    reader = make_study(home, SPEC, fails=(1,))
    url = f"sqlite:///{home / 'ledger.db'}"
    opened = SqlLedger.open(url)
    [trial, *_] = reader.trials(SPEC.id)
    entry = HistoryEntry(
        workload="w", machine="m", source="s", profile=(("a", 1.0),), config=(("threads", 2),),
        speedup=1.5, joules=None, windows=3, at=5.0,
    )  # fmt: skip
    opened.commit(
        Batch(durables=[(trial.id, Parent(1, "file:///a.pt", "h"), 5.0)], history=[entry])
    )
    opened.close()
    return home / "ledger.db"


#: Columns that hold JSON, and others in which a value of another kind may stand.
COLUMNS = [
    *("study.spec", "trial.params", "trial.members", "trial.further", "trial.constraints"),
    *("trial.system", "trial.state", "epoch.metrics", "epoch.members", "epoch.system"),
    *("device.cores", "history.profile", "history.config", "event.body", "event.kind"),
    *("epoch.value", "trial.value", "study.created_at", "study.status", "durable.uri"),
]


def read_all(url):
    reader = Reader(url)
    study = reader.study(SPEC.id)
    reader.studies(), reader.trials(study.id), reader.epochs(study.id), reader.durables(study.id)
    reader.running(), reader.devices(), reader.history(), reader.imported(study.id)
    for number in range(3):
        reader.events(f"{SPEC.id}-{number:04d}")
    reader.policy_failures(), reader.responses(), reader.statuses()


def test_readers_of_a_row_that_was_changed_say_so(ledger, tmp_path):
    copy = tmp_path / "ledger.db"
    copy.write_bytes(ledger.read_bytes())
    url = f"sqlite:///{copy}"
    read_all(url)
    with sqlite3.connect(copy, isolation_level=None) as writer:
        rows = {
            column: writer.execute(
                "SELECT rowid, {1} FROM {0} WHERE {1} IS NOT NULL LIMIT 1".format(
                    *column.split(".")
                )
            ).fetchone()
            for column in COLUMNS
        }
        assert all(rows.values()), rows

        @fuzzed(
            at=st.sampled_from(COLUMNS).flatmap(
                lambda column: st.tuples(
                    st.just(column),
                    spoilt_text(str(rows[column][1])) | st.sampled_from(ODD)
                    if not str(rows[column][1]).startswith(("[", "{"))
                    else spoilt_json(rows[column][1]),
                )
            ),
            examples=2 * EXAMPLES,
        )
        def say_so(at):
            (table, column), text = at[0].split("."), str(at[1])
            row, before = rows[at[0]]
            change = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
            writer.execute(change, (text.encode("utf-8", "replace").decode(), row))
            try:
                with in_time():
                    read_all(url)
            except (BackendError, UsageError):
                pass
            finally:
                writer.execute(change, (before, row))

        say_so()
    writer.close()
