"""Files of checkpoints are deleted when nothing names them, and not before."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers.ledger_batches import first_batch
from patience import until
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.writes import Batch
from penstock.app.server.services.janitor import SWEEP_AGE, Janitor
from penstock.scheduler.model.decisions import Parent
from penstock.scheduler.model.study import Code, StrategySpec, StudyRecord, trial_id
from worlds.drive_world import spec

TRIALS = [trial_id("digits-1", number) for number in range(2)]


@pytest.fixture
def ledger(tmp_path):
    ledger = SqlLedger.open(f"sqlite:///{tmp_path}/ledger.db")
    ledger.commit(first_batch(2))
    yield ledger
    ledger.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def janitor(ledger, folder, tmp_path):
    folder.mkdir()
    return Janitor(f"file://{folder}", Reader(f"sqlite:///{tmp_path}/ledger.db"))


def written(folder, letter, suffix=".pt", age=0.0):
    """The URI of a file that is called as a checkpoint is."""
    path = folder / (2 * letter) / (64 * letter + suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (time.time() - age,) * 2)
    return f"file://{path}"


def files(folder):
    return sorted(path.name[0] for path in folder.rglob("*") if path.is_file())


def name(ledger, trial, epoch, uri):
    ledger.commit(Batch(durables=[(TRIALS[trial], Parent(epoch, uri, "h"), 5.0)]))


def test_what_is_discarded_is_deleted_and_nothing_else(janitor, folder):
    gone, _ = written(folder, "a"), written(folder, "b")
    janitor.discard([gone])
    janitor.delete_due()
    assert files(folder) == ["b"]
    janitor.discard([gone])
    janitor.delete_due()  # a second time is harmless


def test_a_file_that_another_durable_state_names_stays_until_that_one_goes_too(
    janitor, folder, ledger
):
    shared = written(folder, "a")
    name(ledger, 0, 2, shared)
    name(ledger, 1, 2, shared)
    ledger.commit(Batch(discarded=[(TRIALS[0], 2)]))
    janitor.discard([shared])
    janitor.delete_due()
    assert files(folder) == ["a"]
    ledger.commit(Batch(discarded=[(TRIALS[1], 2)]))
    janitor.discard([shared])
    janitor.delete_due()
    assert files(folder) == []


def test_a_sweep_finds_what_was_forgotten_once_it_is_old(janitor, folder, ledger):
    """Discarded right before a crash; written and never reported; left by a killed writer."""
    old = SWEEP_AGE + 60
    name(ledger, 0, 1, written(folder, "a", age=old))
    written(folder, "b", age=old)
    written(folder, "c", age=SWEEP_AGE - 60)
    written(folder, "d", suffix=".1234.tmp", age=old)
    (folder / "notes.txt").touch()
    os.utime(folder / "notes.txt", (0, 0))
    janitor.sweep()
    assert files(folder) == ["a", "c", "n"]


def by_value(folder, letter, age):
    """The file of code by value, and a study of it."""
    path = folder / "code" / (64 * letter)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (time.time() - age,) * 2)
    return spec(id=letter, name=letter, code=Code("pickle:train:f", "/", 64 * letter))


def test_code_goes_when_no_study_needs_it_and_none_can_be_extended(janitor, folder, ledger):
    old = SWEEP_AGE + 60
    running, complete, failed, pbt, _unheard_of = (by_value(folder, c, old) for c in "abcde")
    by_value(folder, "f", SWEEP_AGE - 60)  # its study may be accepted at this moment
    population = replace(pbt, contract="epochs", strategy=StrategySpec("pbt", max_epochs=9))
    for study, status in (
        (running, "running"),
        (complete, "complete"),
        (failed, "failed"),
        (population, "complete"),
    ):
        ended = None if status == "running" else 2.0
        ledger.commit(Batch(studies=[StudyRecord(study, status, 1.0, ended)]))
    janitor.sweep()
    assert files(folder) == ["a", "b", "f"]
    newer = replace(complete, code=replace(complete.code, digest=64 * "1"))
    ledger.commit(Batch(studies=[StudyRecord(newer, "running", 1.0)]))
    janitor.sweep()
    assert files(folder) == ["a", "f"], "it was extended with newer code"


def test_what_is_no_checkpoint_by_its_name_is_not_deleted_whoever_says_so(janitor, tmp_path):
    precious = tmp_path / "precious.pt"
    precious.touch()
    janitor.discard([f"file://{precious}"])
    janitor.delete_due()
    assert precious.exists()


def test_a_file_that_cannot_be_deleted_holds_no_other_up(janitor, folder):
    stuck = folder / "ee" / ("e" * 64 + ".pt")
    stuck.mkdir(parents=True)
    janitor.discard([f"file://{stuck}", written(folder, "a"), written(folder, "b")])
    with pytest.raises(OSError, match="directory"):
        janitor.delete_due()
    with pytest.raises(OSError, match="directory"):
        janitor.delete_due()
    assert files(folder) == []


def test_a_store_that_is_away_is_tried_again_and_nobody_waits_for_it(janitor, folder, monkeypatch):
    uri = written(folder, "a")
    path = Path(uri.removeprefix("file://"))
    path.unlink()
    path.mkdir()  # as little to be deleted as a file of a store that is away
    janitor.discard([uri])
    with pytest.raises(OSError, match="directory"):
        janitor.delete_due()
    path.rmdir()
    path.touch()
    janitor.start()
    until(lambda: not path.exists())
