"""Damage to the ledger's files: what is shown is right, or it is refused."""

from __future__ import annotations

import random
import shutil
import sqlite3
from dataclasses import asdict
from pathlib import Path

import pytest
from ledgers.study_ledger import make_study, study_spec
from penstock.app.ledger.codec import state_to_json
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.restore import restore
from penstock.app.server.services.janitor import garbage_in
from penstock.app.show.status.listing import status_facts
from penstock.app.show.status.study_list import studies_facts, study_facts
from penstock.app.show.views.best import best_facts
from penstock.base.errors import BackendError, LedgerDamaged

PLACES = 72


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a ledger whose newest batches lie in the write-ahead log, and what it says."""
    folder = tmp_path_factory.mktemp("whole")
    home = folder / "home"
    make_study(home, study_spec(n_trials=6))
    ledger = SqlLedger.open(url_of(home))  # as long as it is open, the log is kept
    with_log = folder / "with_log"
    make_study_again(home)
    shutil.copytree(home, with_log)
    ledger.close()
    assert (with_log / "ledger.db-wal").stat().st_size > 0
    right = {"plain": (home, answers(home)), "with log": (with_log, answers(with_log))}
    for _, said in right.values():
        assert not [error for error in said.values() if isinstance(error, BackendError)]
    return right


def make_study_again(home):
    """One more study, and one that goes on, each by a writer of its own."""
    make_study(home, study_spec("second", n_trials=3, id="second-1a2b"))
    make_study(home, study_spec("third", n_trials=6, id="third-1a2b"), turns=6)


def url_of(home: Path) -> str:
    return f"sqlite:///{home / 'ledger.db'}"


def replayed(home):
    ledger = SqlLedger.open(url_of(home))
    try:
        return state_to_json(restore(ledger).state)
    finally:
        ledger.close()


def readers(home, reader, study):
    """Return a function for each command that reads its part of the ledger."""
    return {
        "ls": lambda: studies_facts(url_of(home), lambda: True),
        "rows": lambda: [study_facts(reader, each) for each in reader.studies()],
        "trials": lambda: reader.trials(study),
        "epochs": lambda: reader.epochs(study),
        "durables": lambda: reader.durables(study),
        "best": lambda: best_facts(reader, reader.study(study)),
        "status": lambda: status_facts(reader, reader.study("digits")),
        "story": lambda: reader.events(f"{study}-0003"),
        "devices": lambda: [asdict(device) for device in reader.devices()],
        "history": reader.history,
        "adopted": reader.adopted,
        "figures": lambda: (reader.statuses(), reader.responses(), reader.newest()),
        "replay": lambda: list(reader.replay()),
        "attempts": lambda: reader.last_attempts(study, 0, 9),
        "files": reader.all_named,
    }


def answers(home):
    """Return each command's answer or error; the scheduler's state is replayed from a copy."""
    said = {}
    for name, ask in readers(home, Reader(url_of(home)), "digits-1a2b").items():
        try:
            said[name] = ask()
        except BackendError as error:
            said[name] = error
    other = home.with_name(f"{home.name}-opened")
    shutil.copytree(home, other)
    try:
        said["scheduler"] = replayed(other)
    except BackendError as error:
        said["scheduler"] = error
    shutil.rmtree(other)
    return said


def flip(file, chance):
    at = chance.randrange(len(file))
    file[at] ^= 1 << chance.randrange(8)


def overwrite(file, chance):
    at = chance.randrange(len(file))
    file[at : at + 400] = chance.randbytes(min(400, len(file) - at))


def head(file, chance):
    file[chance.randrange(100)] ^= chance.randrange(1, 256)


def blank(file, chance):
    at = chance.randrange(len(file) // 4096) * 4096
    file[at : at + 4096] = bytes(4096)


def swap(file, chance):
    one, other = (4096 * at for at in chance.sample(range(len(file) // 4096), 2))
    file[one : one + 4096], file[other : other + 4096] = (
        file[other : other + 4096],
        file[one : one + 4096],
    )


def cut(file, chance):
    del file[chance.randrange(len(file)) :]


def digit(file, chance):
    """A digit or a letter of a text is another one: the database's structure stays whole."""
    letters = [at for at, byte in enumerate(file) if chr(byte).isalnum() and byte < 128]
    file[chance.choice(letters)] = ord(chance.choice("0123456789abcxyz"))


HARMS = [flip, overwrite, head, blank, swap, cut, digit, digit]


@pytest.mark.parametrize("seed", range(PLACES))
def test_what_is_shown_of_a_damaged_ledger_is_right(whole, tmp_path, seed):
    chance = random.Random(seed)
    home, right = whole["with log" if seed % 3 == 0 else "plain"]
    damaged = shutil.copytree(home, tmp_path / "home")
    name = "ledger.db-wal" if seed % 6 == 0 else "ledger.db"
    file = bytearray((damaged / name).read_bytes())
    HARMS[seed % len(HARMS)](file, chance)
    (damaged / name).write_bytes(file)
    for command, said in answers(damaged).items():
        if not isinstance(said, BackendError):
            assert said == right[command], command


@pytest.mark.parametrize("table", ["event", "study", "trial", "epoch", "device"])
def test_a_value_that_has_changed_in_a_row_is_refused_by_name(whole, tmp_path, table):
    home = shutil.copytree(whole["plain"][0], tmp_path / "home")
    column = {"event": "body", "study": "message", "trial": "params", "epoch": "metrics"}
    change = f"UPDATE {table} SET {column.get(table, 'reason')} = 'x' WHERE rowid = 3"
    if table == "study":
        change = "UPDATE study SET message = 'x'"
    with sqlite3.connect(home / "ledger.db") as connection:
        assert connection.execute(change.replace("rowid = 3", "rowid = 1")).rowcount
    connection.close()
    with pytest.raises(LedgerDamaged, match=r"ledger.db is damaged: .*penstock restore") as error:
        SqlLedger.open(url_of(home))
    assert table in str(error.value)
    reader = Reader(url_of(home))
    asked = {
        "event": lambda: list(reader.replay()),
        "study": reader.studies,
        "trial": lambda: reader.trials("digits-1a2b"),
        "epoch": lambda: reader.epochs("digits-1a2b"),
        "device": reader.devices,
    }
    with pytest.raises(LedgerDamaged, match=table):
        asked[table]()


def test_how_an_attempt_ended_and_which_files_are_in_use_is_not_read_from_damaged_rows(tmp_path):
    home = tmp_path / "home"
    make_study(home, study_spec(n_trials=2))
    with sqlite3.connect(home / "ledger.db") as connection:
        of_last = "seq = (SELECT max(seq) FROM event WHERE kind = 'EpochReported')"
        connection.execute(f"UPDATE event SET kind = 'EpochRaported' WHERE {of_last}")
        row = "('digits-1a2b-0000', 1, 'h', 'file:///elsewhere', 1.0, 0)"
        connection.execute(f"INSERT OR REPLACE INTO durable VALUES {row}")
    connection.close()
    reader = Reader(url_of(home))
    with pytest.raises(LedgerDamaged, match="event"):
        reader.last_attempts("digits-1a2b", 0, 9)
    with pytest.raises(LedgerDamaged, match="row digits-1a2b-0000, 1 of table durable"):
        garbage_in(f"file://{tmp_path}", reader, 0.0)


def test_an_event_that_is_missing_is_refused(whole, tmp_path):
    home = shutil.copytree(whole["plain"][0], tmp_path / "home")
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("DELETE FROM event WHERE seq = 7")
    connection.close()
    with pytest.raises(LedgerDamaged, match="event 7 is missing"):
        SqlLedger.open(url_of(home))
    with pytest.raises(LedgerDamaged, match="event 7 is missing"):
        list(Reader(url_of(home)).replay())


def test_a_log_that_was_lost_is_noticed(whole, tmp_path):
    home = shutil.copytree(whole["with log"][0], tmp_path / "home")
    (home / "ledger.db-wal").unlink()
    for ask in (lambda: SqlLedger.open(url_of(home)), Reader(url_of(home)).studies):
        with pytest.raises(LedgerDamaged, match="was written to it and is not there"):
            ask()


def test_damage_in_the_words_that_sqlite_quotes_is_damage_as_any_other(whole, tmp_path):
    home = shutil.copytree(whole["plain"][0], tmp_path / "home")
    file = home / "ledger.db"
    file.write_bytes(file.read_bytes().replace(b"CREATE TABLE trial", b"CREATE TA\xd2LE trial"))
    for ask in (lambda: SqlLedger.open(url_of(home)), Reader(url_of(home)).studies):
        with pytest.raises(LedgerDamaged, match="penstock restore"):
            ask()
