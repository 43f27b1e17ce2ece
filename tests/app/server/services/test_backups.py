"""Backups of the ledger: made while it is written, verified, rotated, put back."""

from __future__ import annotations

import re
import sqlite3
import stat
import threading

import pytest
from ledgers.ledger_batches import as_newer, epoch_batch, first_batch
from patience import PATIENCE, until
from penstock import create_study
from penstock.app.cli.main import app
from penstock.app.cli.terminal import BACKEND
from penstock.app.host import locks
from penstock.app.host.settings import load
from penstock.app.ledger.databases import read_only
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.server.services.backups import (
    Backups,
    back_up,
    backups_of,
    list_backups,
    restore_backup,
)
from penstock.app.server.services.services import take_down
from penstock.app.show.views.live import follow
from penstock.base.errors import BackendError, LedgerDamaged, LedgerRefused, UsageError
from typer.testing import CliRunner


@pytest.fixture
def settings(settings):
    settings.ensure_home()
    return settings


@pytest.fixture
def ledger(settings):
    """Open, with a study of three trials and one epoch of each: four events."""
    opened = SqlLedger.open(settings.ledger_url)
    opened.commit(first_batch(3))
    opened.commit(epoch_batch(3, first_seq=2, epoch=1))
    yield opened
    opened.close()


def harm(settings):
    with sqlite3.connect(settings.home / "ledger.db") as connection:
        connection.execute("UPDATE trial SET params = 'x' WHERE number = 1")
    connection.close()


def kept(settings):
    return sorted(settings.backup_folder.iterdir())


def test_a_backup_is_the_ledger_as_it_is_and_its_owners_alone(settings, ledger, tmp_path):
    made, known = back_up(settings, tmp_path / "mine.db")
    ledger.commit(epoch_batch(3, first_seq=5, epoch=2))
    assert known == (4, 1)
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert sorted(tmp_path.glob("*mine*")) == [made]
    was = Reader(f"sqlite:///{made}")
    assert [epoch.epoch for epoch in was.epochs("digits-1")] == [1, 1, 1]
    with pytest.raises(UsageError, match="exists already"):
        back_up(settings, made)


def test_a_backup_while_batches_are_written_holds_whole_batches(settings, ledger, tmp_path):
    stop = threading.Event()
    files = []

    def copies():
        while not stop.is_set() and len(files) < 20:
            files.append(back_up(settings, tmp_path / f"{len(files)}.db"))

    thread = threading.Thread(target=copies)
    thread.start()
    epoch = 2
    while thread.is_alive() and epoch < 5000:
        ledger.commit(epoch_batch(3, first_seq=3 * epoch - 1, epoch=epoch))
        epoch += 1
    stop.set()
    thread.join(PATIENCE)
    assert files
    for made, known in files:
        assert known.newest % 3 == 1
        assert len(Reader(f"sqlite:///{made}").epochs("digits-1")) == known.newest - 1


def test_what_an_interrupted_backup_has_left_goes_with_the_next_one(settings, ledger, tmp_path):
    folder, other = settings.backup_folder, tmp_path / "mine.db"
    folder.mkdir()
    left = [folder / f".ledger.part{part}" for part in ("", "-journal", "-wal")]
    left += [tmp_path / ".mine.db.part", tmp_path / ".mine.db.part-journal"]
    stays = [folder / "notes.1", tmp_path / ".yours.db.part", tmp_path / ".mine.db.orig"]
    for path in (*left, *stays):
        path.write_bytes(b"half")
    made = [back_up(settings)[0], back_up(settings, other)[0]]
    assert [path for path in (*left, *stays, *made) if path.exists()] == [*stays, *made]
    half = settings.home / ".ledger.db.part"
    half.write_bytes(b"half")
    ledger.close()
    restore_backup(settings, other)
    assert not half.exists()


def test_two_backups_at_once_wait_for_each_other(settings, ledger):
    made = []
    threads = [threading.Thread(target=lambda: made.append(back_up(settings)[0])) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert kept(settings) == sorted(made)
    assert len(made) == 3


def test_a_damaged_ledger_makes_no_backup_and_costs_none(settings, ledger):
    back_up(settings)
    before = kept(settings)
    ledger.commit(epoch_batch(3, first_seq=5, epoch=2))
    harm(settings)
    with pytest.raises(LedgerDamaged, match=re.escape(f"{settings.home}/ledger.db is damaged")):
        back_up(settings)
    with pytest.raises(LedgerDamaged):
        Backups(settings).back_up_if_due(1e12)
    assert kept(settings) == before


def test_the_scheduler_hears_of_damage_from_its_backups(settings, ledger):
    heard = threading.Event()
    harm(settings)
    Backups(load(home=settings.home, backup_every=1), heard.set).start()
    assert heard.wait(PATIENCE)


def test_a_backup_is_due_when_something_is_new_and_the_last_is_old(settings, ledger):
    settings = load(home=settings.home, backups=2, backup_every=1000)
    backups, now = Backups(settings), 1e12
    for _ in range(2):  # the second time nothing is new
        backups.back_up_if_due(now)
        assert len(kept(settings)) == 1
        now += 1001
    ledger.commit(epoch_batch(3, first_seq=5, epoch=2))
    backups.back_up_if_due(now)
    assert len(kept(settings)) == 2
    ledger.commit(epoch_batch(3, first_seq=8, epoch=3))
    backups.back_up_if_due(now + 999)
    assert [path.exists() for path in kept(settings)] == [True, True]
    [oldest, newer] = kept(settings)
    backups.back_up_if_due(now + 1001)
    assert not oldest.exists()
    assert newer.exists()
    assert len(kept(settings)) == 2


def test_a_folder_that_takes_no_backup_is_said_and_tried_again(settings, ledger, caplog):
    settings.backup_folder.symlink_to("/proc/self")
    Backups(load(home=settings.home, backup_every=1)).start()
    until(lambda: caplog.records)
    assert "no backup can be written to" in caplog.text
    settings.backup_folder.unlink()
    until(lambda: settings.backup_folder.exists() and kept(settings))


def test_none_are_made_where_none_are_wanted_or_the_ledger_is_no_file(settings):
    assert backups_of(load(home=settings.home, backups=0), print) is None
    server = load(home=settings.home, ledger="postgresql://me@nowhere/penstock")
    assert backups_of(server, print) is None
    for ask in (back_up, list_backups, lambda given: restore_backup(given, settings.home)):
        with pytest.raises(UsageError, match=r"pg_(dump|restore)"):
            ask(server)


def test_a_backup_is_put_back_and_what_was_there_stays_beside_it(settings, ledger):
    made, _ = back_up(settings)
    ledger.commit(epoch_batch(3, first_seq=5, epoch=2))
    ledger.close()
    harm(settings)
    with pytest.raises(LedgerDamaged, match="penstock restore"):
        Reader(settings.ledger_url).trials("digits-1")
    said = restore_backup(settings, made)
    assert "4 events, 1 studies; 3 newer events are lost" in said
    assert len(Reader(settings.ledger_url).epochs("digits-1")) == 3
    [aside] = settings.home.glob("ledger.db.damaged-*[0-9]")
    assert str(aside) in said
    with pytest.raises(LedgerDamaged, match="row digits-1-0001 of table trial"):
        SqlLedger.open(f"sqlite:///{aside}")
    assert settings.restored.exists()
    SqlLedger.open(settings.ledger_url).close()


def test_a_log_that_lies_beside_a_damaged_ledger_is_not_taken_for_that_of_its_backup(
    settings, ledger
):
    made, _ = back_up(settings)
    ledger.commit(epoch_batch(3, first_seq=5, epoch=2))
    log = (settings.home / "ledger.db-wal").read_bytes()
    ledger.close()
    (settings.home / "ledger.db-wal").write_bytes(log)
    restore_backup(settings, made)
    assert Reader(settings.ledger_url).newest() == 4


def test_backups_are_listed_with_what_is_in_them_and_whether_they_are_sound(settings, ledger):
    first, _ = back_up(settings)
    ledger.commit(epoch_batch(3, first_seq=5, epoch=2))
    second, _ = back_up(settings)
    second.write_bytes(second.read_bytes().replace(b"digits-1-0001", b"digits-1-0007"))
    newest, oldest = list_backups(settings)
    assert re.search(rf"{second} .* not sound: .* is damaged", newest)
    assert re.search(rf"{first} .* 4 events, 1 studies, sound", oldest)
    with pytest.raises(BackendError, match="is damaged"):
        restore_backup(settings, second)
    assert Reader(settings.ledger_url).newest() == 7


def test_nothing_is_put_back_while_a_scheduler_runs(settings, ledger):
    made, _ = back_up(settings)
    with locks.hold(settings.run, "scheduler"), pytest.raises(UsageError, match="penstock down"):
        restore_backup(settings, made)
    with pytest.raises(UsageError, match="no backup"):
        restore_backup(settings, settings.home / "none.db")


def test_who_watches_a_study_hears_at_once_that_the_ledger_is_damaged(settings, ledger):
    harm(settings)
    with pytest.raises(LedgerDamaged, match="penstock restore"):
        follow(Reader(settings.ledger_url), "digits-1", show=False, timeout=PATIENCE)


def test_who_watches_a_study_hears_at_once_that_its_ledger_is_of_a_newer_version(settings, ledger):
    as_newer(ledger)
    ledger.close()
    with pytest.raises(LedgerRefused, match="upgrade Penstock"):
        follow(Reader(settings.ledger_url), "digits-1", show=False, timeout=PATIENCE)


@pytest.mark.parametrize(
    "arguments",
    [
        ("ls",),
        ("status",),
        pytest.param(("doctor",), marks=pytest.mark.extension("doctor")),
    ],
)
def test_a_ledger_that_was_emptied_is_not_shown_as_a_new_one(settings, ledger, arguments):
    ledger.close()
    (settings.home / "ledger.db").write_bytes(b"")
    done = CliRunner(env={**settings.environment(), "COLUMNS": "300"}).invoke(app, arguments)
    assert done.exit_code != 0
    assert "4 events were written to it, and it is empty" in done.output
    assert "penstock restore" in done.output


def test_a_study_is_not_made_beside_a_damaged_ledger(settings, ledger, monkeypatch):
    monkeypatch.setenv("PENSTOCK_HOME", str(settings.home))
    ledger.close()
    (settings.home / "ledger.db").write_bytes(b"")
    with pytest.raises(LedgerDamaged, match="penstock restore"):
        create_study(study_name="digits")


def test_a_ledger_that_is_made_while_it_is_looked_at_is_no_damaged_one(settings, monkeypatch):
    """The reader saw it before its first event, and saw the notes next to it after that."""
    SqlLedger.open(settings.ledger_url).close()
    monkeypatch.setattr(read_only, "revision", lambda *asked: None)
    assert Reader(settings.ledger_url).is_empty()


def test_up_says_why_its_scheduler_refuses_the_ledger(settings, ledger):
    ledger.close()
    (settings.home / "ledger.db").write_bytes(b"")
    environment = {**settings.environment(), "PENSTOCK_DEVICES": "cpu:1x1"}
    try:
        done = CliRunner(env=environment).invoke(app, ["up"])
    finally:
        take_down(settings)
    assert done.exit_code == BACKEND
    assert "the scheduler cannot serve" in done.output
    assert "penstock restore" in done.output
