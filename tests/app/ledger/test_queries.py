"""Readers: what was committed is read back equal, and a ledger that is not there is told apart."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ledgers.ledger_batches import SPEC, as_newer, epoch_batch, first_batch, trials
from penstock.app.ledger import codec
from penstock.app.ledger.databases.schema import HEAD
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.rows import Work
from penstock.app.ledger.writes import Batch
from penstock.base.errors import BackendError, IllegalTransition, UsageError
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.decisions import Member
from penstock.scheduler.model.study import StudyRecord
from penstock.scheduler.model.trial import AcceptedEpoch, Failure, Trial, TrialState
from penstock.scheduler.state.state import DeviceRecord
from sqlalchemy import text


@pytest.fixture
def ledger(url):
    opened = SqlLedger.open(url)
    yield opened
    opened.close()


def unique(values):
    """Values by distinct names: parameters and metrics are mappings."""
    return st.dictionaries(st.text(), values, max_size=3).map(lambda d: tuple(d.items()))


scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
numbers = st.floats(allow_nan=False)
small = st.integers(0, 2**62)
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"))


TRIALS = st.builds(
    Trial,
    id=st.just("s-0000"),
    study=st.just(SPEC.id),
    number=small,
    params=unique(scalars),
    created_at=numbers,
    state=st.sampled_from(TrialState),
    target=small,
    epoch=small,
    value=st.none() | numbers,
    members=st.tuples(st.builds(Member, words, small)),
    failure=st.none() | st.builds(Failure, words, words, words),
    finished_at=st.none() | numbers,
)
EPOCHS = st.builds(
    AcceptedEpoch,
    trial=st.just("s-0000"),
    epoch=small,
    value=numbers,
    metrics=unique(numbers),
    state_hash=words,
    signature=words,
    seconds=numbers,
    device=words,
    slot=small,
    fence=small,
    members=st.tuples(st.builds(Member, words, small)),
    at=numbers,
)
DEVICES = st.builds(
    DeviceRecord,
    device=st.builds(
        Device,
        name=words,
        node=words,
        kind=words,
        cores=st.lists(small, max_size=3).map(tuple),
        memory=st.none() | small,
        slots=small,
        uuid=st.none() | words,
        model=words,
    ),
    incarnation=words,
    state=words,
    at=numbers,
    reason=words,
)
STUDIES = st.builds(StudyRecord, st.just(SPEC), words, numbers, st.none() | numbers, words)


def emptied(ledger):
    """The same ledger without a row: cheaper than another one."""
    for table in ("epoch", "trial", "study", "device"):
        ledger._driver.execute(f"DELETE FROM {table}")
    return ledger


@given(STUDIES, TRIALS, EPOCHS, DEVICES)
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_committed_is_read_back_equal(ledger, url, record, trial, epoch, device):
    emptied(ledger).commit(
        Batch(studies=[record], trials=[trial], epochs=[epoch], devices=[device])
    )
    reader = Reader(url)
    studies, devices = reader.studies(), reader.devices()
    trials, epochs = reader.trials(SPEC.id), reader.epochs(SPEC.id)

    [row] = trials
    for name in ("id", "number", "epoch", "target", "value", "device", "slot", "created_at"):
        assert getattr(row, name) == getattr(trial, name)
    assert (row.state, row.finished_at) == (trial.state, trial.finished_at)
    assert repr(row.params) == repr(dict(trial.params))
    failure = None
    if row.failure_kind is not None:
        failure = Failure(row.failure_kind, row.failure_message, row.failure_traceback)
    assert failure == trial.failure
    [row] = epochs
    assert row.members == tuple((member.device, member.slot) for member in epoch.members)
    assert replace(epoch, metrics=row.metrics, members=row.members) == AcceptedEpoch(
        **{name: getattr(row, name) for name in AcceptedEpoch.__slots__}
    )
    assert row.metrics == dict(epoch.metrics)
    assert devices == [device]
    [row] = studies
    assert record == StudyRecord(
        codec.spec_from_json(row.spec_json),
        row.status,
        row.created_at,
        row.finished_at,
        row.message,
    )


def test_a_study_says_what_its_spec_says(ledger, url):
    ledger.commit(first_batch(1))
    row = Reader(url).study("digits")
    assert (row.metric, row.direction, row.n_trials, row.strategy, row.sampler, row.max_epochs) == (
        "accuracy",
        "maximize",
        27,
        "full",
        "random",
        None,
    )


def test_a_metric_that_is_not_a_number_is_read_back_as_one(ledger, url):
    ledger.commit(first_batch(1))
    batch = epoch_batch(1, first_seq=2, epoch=1)
    nan = replace(batch.epochs[0], value=float("nan"), metrics=(("loss", float("nan")),))
    ledger.commit(replace(batch, epochs=[nan]))
    [row] = Reader(url).epochs(SPEC.id)
    assert repr((row.value, row.metrics)) == "(nan, {'loss': nan})"


def test_what_one_database_cannot_hold_is_the_same_on_both(ledger, url):
    """NaN, NUL, a lone surrogate, the largest numbers, and names in the order of code points."""
    ledger.commit(first_batch(1))
    failure = Failure("exception", "a\0b \udcff é", "\0")
    [trial] = trials(1)
    largest = 2**63 - 1
    ledger.commit(
        Batch(
            trials=[replace(trial, value=math.nan, epoch=largest, failure=failure)],
            devices=[
                DeviceRecord(Device(name, "n\0", "cpu", (), largest), "1", "joined", 0.0)
                for name in ("b", "B", "a-b", "ab", "é")
            ],
        )
    )
    reader = Reader(url)
    [row] = reader.trials(SPEC.id)
    assert (row.value, row.epoch) == (None, largest)
    assert (row.failure_message, row.failure_traceback) == ("a?b ? é", "?")
    found = [(each.device.name, each.device.node, each.device.memory) for each in reader.devices()]
    assert found == [(name, "n?", largest) for name in ("B", "a-b", "ab", "b", "é")]


def test_a_number_that_no_column_holds_is_refused_with_its_whole_batch(ledger, url):
    [trial] = trials(1)
    first = first_batch(1)
    with pytest.raises(IllegalTransition):
        ledger.commit(replace(first, trials=[replace(trial, epoch=2**63)]))
    assert Reader(url).studies() == []
    ledger.commit(first)


def test_epochs_are_read_in_the_order_of_acceptance_and_only_the_new_ones(ledger, url):
    other = replace(SPEC, id="other-1", name="other")
    ledger.commit(first_batch(2))
    ledger.commit(Batch(studies=[StudyRecord(other, "running", 2.0)]))
    ledger.commit(epoch_batch(2, first_seq=2, epoch=1))
    reader = Reader(url)
    first = reader.epochs(SPEC.id)
    ledger.commit(epoch_batch(2, first_seq=4, epoch=2))
    assert [row.epoch for row in first] == [1, 1]
    assert [row.epoch for row in reader.epochs(SPEC.id, after_rowid=first[-1].rowid)] == [2, 2]
    assert reader.epochs(other.id) == []


def test_the_story_of_a_trial_holds_its_own_events_only(ledger, url):
    ledger.commit(first_batch(2))
    batch = epoch_batch(2, first_seq=2, epoch=1)
    ledger.commit(batch)
    assert Reader(url).events(trials(2)[1].id) == [batch.events[1]]


def test_a_study_is_found_by_id_and_the_newest_by_name(ledger, url):
    later = replace(SPEC, id="digits-2")
    ledger.commit(
        Batch(studies=[StudyRecord(later, "running", 5.0), StudyRecord(SPEC, "complete", 1.0)])
    )
    reader = Reader(url)
    assert [study.id for study in reader.studies()] == ["digits-1", "digits-2"]
    assert reader.study("digits").id == "digits-2"
    assert reader.study("digits-1").id == "digits-1"


def refused(reader, name):
    with pytest.raises(UsageError) as refusal:
        reader.study(name)
    return str(refusal.value)


def test_an_absent_study_is_refused_with_those_that_are_there(ledger, url):
    """Near names first, then the newest, five in all."""
    reader = Reader(url)
    assert refused(reader, "digits") == "there is no study 'digits': there are no studies yet"
    ledger.commit(Batch(studies=[StudyRecord(SPEC, "complete", 1.0)]))
    assert refused(reader, "nix") == "there is no study 'nix'; there is: digits"
    names = ("a", "b", "c", "d", "e")
    others = [replace(SPEC, id=f"{name}-2", name=name) for name in names]
    ledger.commit(
        Batch(studies=[StudyRecord(s, "complete", 2.0 + n) for n, s in enumerate(others)])
    )
    assert refused(reader, "digts") == (
        "there is no study 'digts'; there are: digits, e, d, c, b and 1 more (penstock ls)"
    )


def test_a_ledger_that_is_not_there_yet_says_that_nothing_has_run_and_is_not_made(url, tmp_path):
    reader = Reader(url)
    assert reader.is_empty()
    with pytest.raises(BackendError, match="nothing has run here yet"):
        reader.studies()
    assert list(tmp_path.iterdir()) == []
    SqlLedger.open(url).close()
    assert reader.studies() == []
    assert not reader.is_empty()


def test_a_ledger_that_is_being_made_says_that_nothing_has_run(sqlite_url, tmp_path):
    (tmp_path / "ledger.db").touch()
    with pytest.raises(BackendError, match="nothing has run here yet"):
        Reader(sqlite_url).studies()


def test_a_ledger_of_a_newer_version_says_who_wrote_it_and_to_upgrade(ledger, url):
    as_newer(ledger)
    wanted = rf"written by Penstock 99.0.0 \(schema 9999\).* \(reads up to {int(HEAD)}\): upgrade"
    with pytest.raises(BackendError, match=wanted):
        Reader(url).studies()


def test_a_ledger_of_an_older_version_says_to_start_its_scheduler(ledger, url):
    ledger._driver.execute("DROP TABLE writer")
    ledger._driver.execute("UPDATE alembic_version SET version_num = '0008'")
    with pytest.raises(BackendError, match=r"older Penstock \(schema 8, .*\): .*penstock up"):
        Reader(url).studies()


def test_a_reader_writes_nothing_even_when_asked_to(ledger, url):
    reader = Reader(url)
    with pytest.raises(BackendError, match="read-only"):
        reader._rows(text("DELETE FROM event"))


def test_a_reader_does_not_wait_for_a_transaction_that_is_open(ledger, url):
    ledger.commit(first_batch(1))
    [(statement, rows)] = ledger._writes.of(Batch(studies=[StudyRecord(SPEC, "failed", 1.0)]))
    with ledger._database.transaction(ledger._driver) as cursor:
        cursor.executemany(statement, rows)
        assert Reader(url).study("digits").status == "running"
    assert Reader(url).study("digits").status == "failed"


def test_parameters_are_kept_as_plain_json(ledger, url):
    ledger.commit(first_batch(3))
    [body] = ledger._driver.execute("SELECT params FROM trial WHERE number = 2").fetchone()
    assert json.loads(body) == {"lr": 0.1, "layers": 2}


def test_what_runs_is_found_by_device_and_slot(ledger, url):
    trial = Trial(
        id=f"{SPEC.id}-0007",
        study=SPEC.id,
        number=7,
        params=(),
        created_at=0.0,
        state=TrialState.RUNNING,
        epoch=2,
        members=(Member("cpu.a.0", 1),),
        dispatched_at=5.5,
    )
    waiting = replace(trial, id=f"{SPEC.id}-0008", number=8, state=TrialState.WAITING)
    ledger.commit(Batch(studies=[StudyRecord(SPEC, "running", 0.0)], trials=[trial, waiting]))
    work = Work(SPEC.name, trial.id, 7, epoch=3, since=5.5)
    assert Reader(url).running() == {("cpu.a.0", 1): work}
