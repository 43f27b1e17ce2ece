"""The ledger: a batch is written whole or not at all, and comes back as it was written."""

from __future__ import annotations

import signal
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from ledgers.ledger_batches import SPEC, epoch_batch, first_batch, trials
from patience import PATIENCE
from penstock.app.ledger.databases.sqlite import LOG_LIMIT
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.restore import restore
from penstock.app.ledger.writes import Batch
from penstock.base.errors import (
    BackendError,
    IllegalTransition,
    LedgerRefused,
    UsageError,
)
from penstock.scheduler.model.decisions import Parent
from penstock.scheduler.model.events import PolicyChosen, Tick
from penstock.scheduler.model.study import StudyRecord


@pytest.fixture
def sql(url):
    opened = SqlLedger.open(url)
    yield opened
    opened.close()


def test_what_is_committed_is_replayed_in_order(ledger):
    first, second = first_batch(3), epoch_batch(3, first_seq=2, epoch=1)
    ledger.commit(first)
    ledger.commit(second)
    assert list(ledger.replay()) == [*first.events, *second.events]
    assert list(ledger.replay(after=3)) == [*second.events][2:]
    assert list(ledger.replay(after=4)) == []


def test_a_replay_longer_than_a_page_misses_nothing(ledger):
    for start in range(1, 2600, 500):
        ledger.commit(
            Batch(events=[(seq, Tick(at=float(seq))) for seq in range(start, start + 500)])
        )
    assert [seq for seq, _ in ledger.replay(after=7)] == list(range(8, 3001))


def test_a_repeated_command_finds_its_first_reply(ledger):
    assert ledger.reply_to("c1") is None
    ledger.commit(Batch(commands=[("c1", '{"ok":true}')]))
    assert ledger.reply_to("c1") == '{"ok":true}'


def test_the_newest_snapshot_counts(ledger):
    assert ledger.latest_snapshot() is None
    for seq in (3, 5, 5, 9):
        ledger.commit(Batch(snapshot=(seq, f"state {seq}")))
    assert ledger.latest_snapshot() == (9, "state 9")


def test_two_snapshots_are_kept(sql):
    for seq in (3, 5, 9):
        sql.commit(Batch(snapshot=(seq, f"state {seq}")))
    assert list(sql._driver.execute("SELECT seq FROM snapshot ORDER BY seq")) == [(5,), (9,)]


@pytest.mark.parametrize("what", ["event", "epoch"])
def test_what_would_count_twice_is_refused_with_its_whole_batch(ledger, what):
    ledger.commit(first_batch(2))
    ledger.commit(epoch_batch(1, first_seq=2, epoch=1))
    again = epoch_batch(1, first_seq=2 if what == "event" else 3, epoch=1 if what == "epoch" else 2)
    with pytest.raises(IllegalTransition):
        ledger.commit(Batch(events=again.events, epochs=again.epochs, commands=[("c", "reply")]))
    assert len(list(ledger.replay())) == 2
    assert ledger.reply_to("c") is None
    ledger.commit(epoch_batch(2, first_seq=3, epoch=2))


def test_an_epoch_of_an_unknown_trial_is_refused(sql):
    with pytest.raises(IllegalTransition, match=r"(?i)foreign key"):
        sql.commit(epoch_batch(1, first_seq=1, epoch=1, with_trials=False))


def test_a_state_made_durable_again_replaces_the_record(sql):
    sql.commit(first_batch(1))
    [trial] = trials(1)
    for uri in ("file:///a", "file:///b"):
        sql.commit(Batch(durables=[(trial.id, Parent(2, uri, "h"), 5.0)]))
    rows = sql._driver.execute("SELECT trial, epoch, state_hash, uri, at FROM durable")
    assert list(rows) == [(trial.id, 2, "h", "file:///b", 5.0)]


def test_a_ledger_is_found_again_after_its_process_ended(url):
    ledger = SqlLedger.open(url)
    batch = first_batch(2)
    ledger.commit(batch)
    ledger.close()
    found = SqlLedger.open(url)
    assert list(found.replay()) == list(batch.events)
    found.close()


WRITER = """
import sys
from ledgers.ledger_batches import SPEC, epoch_batch, first_batch
from penstock.app.ledger.databases.sqlite import LOG_LIMIT
from penstock.app.ledger.ledger import SqlLedger

ledger = SqlLedger.open(sys.argv[1])
ledger.commit(first_batch(16))
for epoch in range(1, 100_000):
    ledger.commit(epoch_batch(16, first_seq=2 + 16 * (epoch - 1), epoch=epoch))
    print(epoch, flush=True)
"""


@pytest.mark.parametrize("batches", [1, 40])
def test_a_writer_killed_in_the_middle_leaves_whole_batches_and_loses_none(url, batches):
    command = [sys.executable, "-c", WRITER, url]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    ) as writer:
        said = 0
        while said < batches:
            said = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        said = max([said, *(int(line) for line in writer.stdout.read().splitlines()[:-1])])
    epochs = Reader(url).epochs(SPEC.id)
    ledger = SqlLedger.open(url)
    events = list(ledger.replay())
    last, rest = divmod(len(epochs), 16)
    assert rest == 0
    assert last >= said >= batches
    assert [seq for seq, _ in events] == list(range(1, 2 + 16 * last))
    assert {(row.trial, row.epoch) for row in epochs} == {
        (event.trial, event.epoch) for _, event in events[1:]
    }
    ledger.commit(epoch_batch(16, first_seq=2 + 16 * last, epoch=last + 1))
    ledger.close()


def test_a_full_disk_is_an_error_that_says_so_and_the_ledger_goes_on_afterwards(sqlite_url):
    sql = SqlLedger.open(sqlite_url)
    sql.commit(first_batch(1))
    pages = sql._driver.execute("PRAGMA page_count").fetchone()[0]
    sql._driver.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(BackendError, match=r"ledger\.db cannot be used: its disk is full"):
        sql.commit(Batch(commands=[("c", "r")], snapshot=(1, "x" * 100_000)))
    assert sql.latest_snapshot() is None
    assert sql.reply_to("c") is None
    sql._driver.execute("PRAGMA max_page_count = 1000000")
    sql.commit(Batch(commands=[("c", "r")], snapshot=(1, "x" * 100_000)))
    assert sql.reply_to("c") == "r"
    sql.close()


LIMITED = """
import resource, signal, sys
from penstock.app.ledger.ledger import Batch, SqlLedger

ledger = SqlLedger.open(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
for seq in range(1, 50):
    ledger.commit(Batch(commands=[(str(seq), "x" * 20_000)]))
    print(seq, flush=True)
"""


def test_a_write_that_the_system_refuses_is_an_error_and_loses_nothing_committed(sqlite_url):
    url = sqlite_url
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, url], capture_output=True, text=True, check=False
    )
    assert "BackendError: the ledger" in ran.stderr
    assert "disk" in ran.stderr.splitlines()[-1]
    committed = [int(line) for line in ran.stdout.split()]
    assert committed
    ledger = SqlLedger.open(url)
    assert all(ledger.reply_to(str(seq)) for seq in committed)
    assert ledger.reply_to(str(len(committed) + 1)) is None
    ledger.close()


def test_a_read_only_ledger_is_an_error_that_says_so(sql, url):
    on_sqlite = url.startswith("sqlite")
    sql._driver.execute(
        "PRAGMA query_only = ON" if on_sqlite else "SET default_transaction_read_only = on"
    )
    with pytest.raises(BackendError, match="read-only"):
        sql.commit(first_batch(1))


def test_a_missing_folder_is_an_error_that_names_it(tmp_path):
    with pytest.raises(BackendError, match=r"nowhere.*folder is not there"):
        SqlLedger.open(f"sqlite:///{tmp_path}/nowhere/ledger.db")


def test_a_file_that_is_no_ledger_is_an_error_that_says_so(tmp_path):
    (tmp_path / "ledger.db").write_text("not a database, but longer than one hundred bytes" * 10)
    with pytest.raises(BackendError, match="not an SQLite file"):
        SqlLedger.open(f"sqlite:///{tmp_path}/ledger.db")


@pytest.mark.parametrize(
    "wrong",
    [
        *("mysql://me:s3cret@host/db", "sqlite://", "sqlite:///:memory:", "ledger.db", ""),
        # What libpq would take for a host, a port or a database, and name in its errors.
        *("postgresql://me:s3cret/x@host/db", "postgresql://me:x@s3cret@host/db"),
        *("postgresql://me:s3cret#x@host/db", "postgresql://me:s3cret?x@host/db"),
        *(
            "postgresql://me:s3cret/db",
            "postgresql://me:s3cret@host",
            "postgresql://me:s3cret@host/",
            "postgresql://",
        ),
        *("postgresql://me:s3cret@host:port/db", "postgresql://me:s3cret%zz@host/db"),
        *("postgresql://me:s3cret@host/db?nonsense=1", "postgresql+psycopg://me:s3cret@host/db"),
    ],
)
def test_any_other_url_is_refused_without_its_password(wrong):
    for use in (SqlLedger.open, Reader):
        with pytest.raises(UsageError, match=r"ledger = .* allowed is sqlite:///<file>") as refused:
            use(wrong)
        assert "s3cret" not in str(refused.value)
        assert refused.value.__cause__ is None


@pytest.mark.parametrize("name", ["a b.db", "100%41.db", "what?.db", "a#b.db", "é.db"])
def test_a_path_may_hold_any_character(tmp_path, name):
    ledger = SqlLedger.open(f"sqlite:///{tmp_path}/{name}")
    ledger.commit(first_batch(1))
    assert (tmp_path / name).exists()
    assert Reader(f"sqlite:///{tmp_path}/{name}").study(SPEC.id).id == SPEC.id
    ledger.close()


def test_a_second_writer_waits_for_a_transaction_and_is_told_when_it_does_not_end(
    sqlite_url, monkeypatch
):
    url = sqlite_url
    monkeypatch.setattr("penstock.app.ledger.databases.base.LOCK_TIMEOUT", 0.05)
    first, second = SqlLedger.open(url), SqlLedger.open(url)
    first._driver.execute("BEGIN IMMEDIATE")
    with pytest.raises(BackendError, match="another process holds its lock"):
        second.commit(first_batch(1))
    first.close()
    second.commit(first_batch(1))
    second.close()


def test_readers_see_whole_batches_while_the_ledger_is_written(sql, url):
    sql.commit(first_batch(4))
    seen = [0]

    def watch():
        reader, after = Reader(url), 0
        while seen[-1] < 200:
            new = reader.epochs(SPEC.id, after_rowid=after)
            after = new[-1].rowid if new else after
            seen.append(seen[-1] + len(new))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    for epoch in range(1, 51):
        sql.commit(epoch_batch(4, first_seq=2 + 4 * (epoch - 1), epoch=epoch))
    watcher.join(timeout=PATIENCE)
    assert seen[-1] == 200
    assert all(count % 4 == 0 for count in seen)


def test_a_batch_of_sixteen_epochs_takes_less_than_four_milliseconds_of_cpu_time(sqlite_url):
    """The time of a sync is not counted: it depends on the disk and its other users."""
    sql = SqlLedger.open(sqlite_url)
    sql.commit(first_batch(16))
    batches = [epoch_batch(16, first_seq=2 + 16 * turn, epoch=1 + turn) for turn in range(50)]
    seconds = []
    for batch in batches:
        began = time.thread_time()
        sql.commit(batch)
        seconds.append(time.thread_time() - began)
    sql.close()
    assert statistics.median(seconds) <= 0.004


def test_a_study_that_ended_is_updated_in_place(sql, url):
    sql.commit(first_batch(1))
    sql.commit(Batch(studies=[StudyRecord(SPEC, "failed", 1.0, 9.0, "all trials failed \udcff")]))
    [study] = Reader(url).studies()
    assert (study.status, study.finished_at) == ("failed", 9.0)
    assert study.message == "all trials failed ?"


def test_a_ledger_with_a_policy_that_is_gone_is_refused_with_what_to_do(sql):
    sql.commit(Batch(events=[(1, PolicyChosen(at=1.0, policy="shuffle"))]))
    with pytest.raises(LedgerRefused, match=r"event 1 .*shuffle.* the version that wrote it"):
        restore(sql)


def test_the_log_shrinks_again_after_a_reader_has_held_it(tmp_path):
    file = tmp_path / "ledger.db"
    ledger, log = SqlLedger.open(f"sqlite:///{file}"), tmp_path / "ledger.db-wal"
    held = sqlite3.connect(file, isolation_level=None)
    held.execute("BEGIN")
    held.execute("SELECT count(*) FROM event").fetchall()
    for seq in range(1, 6):
        ledger.commit(Batch(snapshot=(seq, "x" * LOG_LIMIT)))
    assert log.stat().st_size > 2 * LOG_LIMIT, "nothing that a reader sees may be overwritten"
    held.close()
    for seq in range(6, 9):
        ledger.commit(Batch(snapshot=(seq, "x")))
    assert log.stat().st_size <= LOG_LIMIT
    ledger.close()


def test_the_log_is_truncated_without_a_write_once_no_reader_needs_it(tmp_path):
    file = tmp_path / "ledger.db"
    ledger, log = SqlLedger.open(f"sqlite:///{file}"), tmp_path / "ledger.db-wal"
    held = sqlite3.connect(file, isolation_level=None)
    held.execute("BEGIN")
    before = held.execute("SELECT count(*) FROM event").fetchall()
    for seq in range(1, 6):
        ledger.commit(Batch(snapshot=(seq, "x" * LOG_LIMIT)))
    ledger.shrink_log()
    assert log.stat().st_size > 2 * LOG_LIMIT, "the reader still sees the older state"
    assert held.execute("SELECT count(*) FROM event").fetchall() == before
    held.execute("COMMIT")
    ledger.shrink_log()
    assert log.stat().st_size == 0
    assert held.execute("SELECT max(seq) FROM snapshot").fetchall() == [(5,)]
    ledger.commit(Batch(snapshot=(6, "x")))
    assert held.execute("SELECT max(seq) FROM snapshot").fetchall() == [(6,)]
    held.close()
    ledger.close()
