"""The list of studies is read from rows of studies alone, and says what all other rows say."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from ledgers.study_ledger import WithSizes, make_study, start_study, study_spec
from penstock.app.ledger.databases.base import Database
from penstock.app.ledger.databases.read_only import ReadOnly
from penstock.app.ledger.databases.schema import (
    EPOCH_COLUMNS,
    EVENT_COLUMNS,
    STUDY_COLUMNS,
    TRIAL_COLUMNS,
)
from penstock.app.ledger.databases.sqlite import SqliteDatabase
from penstock.app.ledger.databases.tables import EPOCH, EVENT, STUDY, TRIAL
from penstock.app.ledger.event_log import imports
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.listed import read_listed
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.writes import Batch
from penstock.app.show.status.study_list import done_words, studies_facts, study_facts, took_words
from penstock.base.errors import LedgerDamaged
from penstock.scheduler.model.events import StudyWritten
from penstock.scheduler.model.study import ENDLESS, Objective, StrategySpec

RECORDED = sorted((Path(__file__).parents[3] / "recorded" / "ledgers").glob("*.db.gz"))


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}"


@contextmanager
def statements(home):
    """The statements that are sent meanwhile to the ledger in ``home``.

    Others' are left out: a thread that another test has left may look at its own.
    """
    sent: list[str] = []
    connect = SqliteDatabase._connect

    def noting(database, mode):
        connection = connect(database, mode)
        if database.file.parent == home:
            connection.set_trace_callback(sent.append)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteDatabase, "_connect", noting)
        yield sent


def by_rows(url: str) -> list[dict]:
    """Return the facts of each study, worked out from all its rows."""
    reader = Reader(url)
    return [study_facts(reader, study) for study in reader.studies()]


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_what_is_kept_of_a_study_that_is_over_is_what_its_rows_say(recorded, tmp_path):
    (tmp_path / "ledger.db").write_bytes(gzip.decompress(recorded.read_bytes()))
    SqlLedger.open(url_of(tmp_path)).close()
    kept = {each.id: each for each in read_listed(ReadOnly(url_of(tmp_path)))}
    assert kept
    for facts in by_rows(url_of(tmp_path)):
        over = facts["finished_at"] is not None
        assert kept[facts["id"]].facts == (facts if over else None)


def test_many_studies_take_as_many_statements_as_few(tmp_path):
    asked = {}
    for n in (3, 9):
        for k in range(n):
            make_study(tmp_path / str(n), study_spec(f"study{k}", id=f"study{k}-1a2b", n_trials=2))
        with statements(tmp_path) as sent:
            assert len(studies_facts(url_of(tmp_path / str(n)), lambda: True)) == n
        asked[n] = [re.sub(r"seq = \d+", "seq = N", text) for text in sent]
    assert asked[3] == asked[9]
    # Of the events only the one that was noted last is looked at, by its number.
    others = [text for text in asked[9] if "FROM study" not in text and "seq = " not in text]
    assert not [
        text
        for text in others
        if "FROM" in text and "sqlite_master" not in text and "alembic_version" not in text
    ]


def test_an_import_is_found_by_an_index(tmp_path):
    make_study(tmp_path, study_spec(n_trials=2))
    ledger = Reader(url_of(tmp_path))
    plans = []

    def explained(table, query):
        text = str(query.compile(compile_kwargs={"literal_binds": True}))
        with ledger._database.reader().connect() as connection:
            plans.append(str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}").all()))
        return []

    imports(explained, "digits-1a2b")
    imports(explained)
    assert all("USING INDEX ix_event_imported" in plan for plan in plans), plans


def name_values(home, name):
    """Give the values of the only study in ``home`` a name, as its user does."""
    ledger = SqlLedger.open(url_of(home))
    newest = Reader(url_of(home)).newest()
    [study] = Reader(url_of(home)).studies()
    names = (("study:metric_names", json.dumps([name])),)
    written = StudyWritten(at=9.0, study=study.id, user_attrs=(), system_attrs=names)
    ledger.commit(Batch(events=[(newest + 1, written)]))
    ledger.close()


def test_a_name_that_is_given_to_values_afterwards_is_listed(tmp_path):
    make_study(tmp_path, study_spec(n_trials=2))
    name_values(tmp_path, "hits")
    [facts] = studies_facts(url_of(tmp_path), lambda: True)
    assert [each["metric"] for each in facts["objectives"]] == ["hits"]


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        (STUDY, STUDY_COLUMNS),
        (TRIAL, TRIAL_COLUMNS),
        (EPOCH, EPOCH_COLUMNS),
        (EVENT, EVENT_COLUMNS),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_the_list_names_the_columns_in_their_order(table, columns):
    assert tuple(table.c.keys()) == columns
    assert [column.name for column in table.primary_key] == [columns[0]]


GOING = {
    "asha": [study_spec()],
    "hyperband": [study_spec(strategy=StrategySpec("hyperband", max_epochs=9))],
    "pbt": [study_spec(n_trials=6, strategy=StrategySpec("pbt", max_epochs=9, min_epochs=2))],
    "several": [study_spec(), study_spec("second", 4, id="digits-1a2b-3c4d", weight=2.0)],
    "replicates": [study_spec(replicates=3, seeding="shared")],
    "endless": [study_spec(n_trials=ENDLESS)],
    "front": [study_spec(further=(Objective("size", "minimize"),))],
}


@pytest.mark.parametrize("specs", GOING.values(), ids=GOING.keys())
def test_what_is_listed_of_studies_that_go_on_is_what_their_rows_say(specs, tmp_path):
    runner, ledger = start_study(tmp_path, *specs, fails=(1, 4), devices=WithSizes)
    url, seen = url_of(tmp_path), []
    for _ in range(40):
        listed = studies_facts(url, lambda: True)
        assert listed == by_rows(url)
        seen += [facts for facts in listed if facts["finished_at"] is None]
        if not runner.engine.state.studies:
            break
        runner.turn(1.0)
    ledger.close()
    assert len({facts["epochs"] for facts in seen}) > 3
    assert any(facts["trials"].get("failed") for facts in seen)
    assert any(facts["eta_seconds"] for facts in seen) == (specs[0].n_trials < ENDLESS)


def test_of_studies_that_go_on_only_what_is_theirs_is_read(tmp_path):
    make_study(tmp_path, study_spec(), turns=6)
    with statements(tmp_path) as sent:
        studies_facts(url_of(tmp_path), lambda: True)
    checks = {text for text in sent if "integrity_check" in text}
    assert checks == {"PRAGMA integrity_check(study)"}, "of the others it reads all"
    theirs = [text for text in sent if "finished_at IS NULL" in text]
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        plans = [connection.execute(f"EXPLAIN QUERY PLAN {text}").fetchall() for text in theirs]
    steps = [str(step[-1]) for plan in plans for step in plan]
    assert sum(step.startswith("SEARCH trial") for step in steps) == 3
    assert not [step for step in steps if re.match("SCAN (trial|epoch|event|before)", step)]


def test_the_list_says_the_same_where_only_sqlalchemy_reads_the_ledger(tmp_path, monkeypatch):
    make_study(tmp_path, study_spec(n_trials=2))
    make_study(tmp_path, study_spec("second", id="second-1a2b"), turns=6)
    listed = studies_facts(url_of(tmp_path), lambda: True)
    monkeypatch.setattr(SqliteDatabase, "direct", Database.direct)
    assert ReadOnly(url_of(tmp_path)).going(1) is None
    assert studies_facts(url_of(tmp_path), lambda: True) == listed


def test_a_name_that_is_given_to_values_of_a_study_that_goes_on_is_listed(tmp_path):
    make_study(tmp_path, study_spec(), turns=6)
    name_values(tmp_path, "hits")
    [facts] = studies_facts(url_of(tmp_path), lambda: True)
    assert [each["metric"] for each in facts["objectives"]] == ["hits"]
    assert [facts] == by_rows(url_of(tmp_path))


def test_a_study_that_goes_on_is_not_listed_from_rows_that_were_changed(tmp_path):
    make_study(tmp_path, study_spec(), turns=6)
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as connection:
        connection.execute("UPDATE trial SET value = value + 1 WHERE number = 1")
    with pytest.raises(LedgerDamaged, match="row digits-1a2b-0001 of table trial is not what"):
        studies_facts(url_of(tmp_path), lambda: True)


def test_a_trial_that_an_index_has_lost_is_missed(tmp_path):
    make_study(tmp_path, study_spec(), turns=6)
    file = tmp_path / "ledger.db"
    # Trial 3 in the index of trials by study and number: both, and the number of a row.
    entry, other = rb"digits-1a2b\x03(?=[\x01-\x1f])", b"digits-1a2c\x03"
    harmed, n = re.subn(entry, other, file.read_bytes())
    assert n == 1
    file.write_bytes(harmed)
    with pytest.raises(LedgerDamaged, match="trials are missing in an index"):
        studies_facts(url_of(tmp_path), lambda: True)


def test_the_list_of_studies_imports_neither_numpy_nor_sqlalchemy_nor_events(tmp_path):
    make_study(tmp_path, study_spec(n_trials=2))
    make_study(tmp_path, study_spec("second", id="second-1a2b"), turns=6)
    code = (
        "import sys\n"
        "from penstock.app.show.status.study_list import studies_facts\n"
        f"over, going = studies_facts({url_of(tmp_path)!r}, lambda: True)\n"
        "assert over['finished_at'] and going['epochs'] and not going['finished_at']\n"
        "heavy = {'numpy', 'sqlalchemy', 'pydantic', 'redis', 'optuna', 'celery'}\n"
        "heavy |= {'penstock.scheduler.model.events'}\n"
        "sys.exit(', '.join(heavy & sys.modules.keys()) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_was_cancelled_is_not_done():
    facts = {"trials_over": 8, "trials_expected": 8, "trials": {"completed": 3, "cancelled": 5}}
    facts |= {"epochs": 40, "epochs_expected": 40, "status": "cancelled"}
    assert (done_words(facts, "trials"), done_words(facts, "epochs")) == ("3/8", "40")


def test_a_study_that_goes_on_takes_as_long_as_since_it_was_submitted():
    facts = {"created_at": time.time() - 7300, "response_seconds": None, "stands_still": False}
    assert took_words(facts) == "2 h 01 min"
    assert took_words(facts | {"stands_still": True}) == ""
    assert took_words(facts | {"response_seconds": 40.0}) == "40.0 s"
