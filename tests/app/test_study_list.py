"""The list of studies is read from rows of studies alone, and says what all other rows say."""

from __future__ import annotations

import gzip
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from penstock.app.ledger.databases.read_only import ReadOnly
from penstock.app.ledger.databases.schema import STUDY_COLUMNS
from penstock.app.ledger.databases.sqlite import SqliteDatabase
from penstock.app.ledger.databases.tables import STUDY
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.listed import read_listed
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.summary import imports
from penstock.app.ledger.writes import Batch
from penstock.app.status.study_list import done_words, studies_facts, study_facts
from penstock.scheduler.model.events import StudyWritten
from study_ledger import make_study, study_spec

RECORDED = sorted((Path(__file__).parents[1] / "recorded" / "ledgers").glob("*.db.gz"))


def url_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'ledger.db'}"


@contextmanager
def statements():
    """The statements that are sent to any SQLite database meanwhile."""
    sent: list[str] = []
    connect = SqliteDatabase._connect

    def noting(database, mode):
        connection = connect(database, mode)
        connection.set_trace_callback(sent.append)
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SqliteDatabase, "_connect", noting)
        yield sent


def by_rows(url: str) -> list[dict]:
    """What all rows of each study say of it."""
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
        with statements() as sent:
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


def test_a_name_that_is_given_to_values_afterwards_is_listed(tmp_path):
    make_study(tmp_path, study_spec(n_trials=2))
    ledger = SqlLedger.open(url_of(tmp_path))
    newest = Reader(url_of(tmp_path)).newest()
    [study] = Reader(url_of(tmp_path)).studies()
    written = StudyWritten(
        at=9.0, study=study.id, user_attrs=(), system_attrs=(("study:metric_names", '["hits"]'),)
    )
    ledger.commit(Batch(events=[(newest + 1, written)]))
    ledger.close()
    [facts] = studies_facts(url_of(tmp_path), lambda: True)
    assert [each["metric"] for each in facts["objectives"]] == ["hits"]


def test_the_list_names_the_columns_of_studies_in_their_order():
    assert tuple(STUDY.c.keys()) == STUDY_COLUMNS
    assert [column.name for column in STUDY.primary_key] == [STUDY_COLUMNS[0]]


def test_the_list_of_studies_that_are_over_imports_neither_numpy_nor_sqlalchemy(tmp_path):
    make_study(tmp_path, study_spec(n_trials=2))
    code = (
        "import sys\n"
        "from penstock.app.status.study_list import studies_facts\n"
        f"[facts] = studies_facts({url_of(tmp_path)!r}, lambda: True)\n"
        "heavy = {'numpy', 'sqlalchemy', 'redis', 'optuna', 'celery'}\n"
        "heavy |= {'penstock.scheduler.model.events'}\n"
        "sys.exit(', '.join(heavy & sys.modules.keys()) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_was_cancelled_is_not_done():
    facts = {"trials_over": 8, "trials_expected": 8, "trials": {"completed": 3, "cancelled": 5}}
    facts |= {"epochs": 40, "epochs_expected": 40, "status": "cancelled"}
    assert (done_words(facts, "trials"), done_words(facts, "epochs")) == ("3/8", "40")
