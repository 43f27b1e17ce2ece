"""Batches as a scheduler would write them, for the tests of ledger and readers."""

from __future__ import annotations

from penstock.app.ledger.databases.digests import seal
from penstock.app.ledger.databases.row_digest import NONE
from penstock.app.ledger.databases.tables import WRITER
from penstock.app.ledger.writes import Batch
from penstock.scheduler.model.events import EpochReported, StudySubmitted
from penstock.scheduler.model.study import Code, StudyRecord, StudySpec, trial_id
from penstock.scheduler.model.trial import AcceptedEpoch, Trial

SPEC = StudySpec(
    id="digits-1",
    name="digits",
    contract="torch",
    code=Code(target="digits:Digits", path="/p", digest="d"),
    metric="accuracy",
    direction="maximize",
    n_trials=27,
    space=None,
)


def trials(n, epoch=0):
    return [
        Trial(
            id=trial_id(SPEC.id, number),
            study=SPEC.id,
            number=number,
            params=(("lr", 0.1), ("layers", number)),
            created_at=1.0,
            epoch=epoch,
            value=0.5 if epoch else None,
        )
        for number in range(n)
    ]


def first_batch(n):
    """The study and its ``n`` trials, as event 1."""
    return Batch(
        events=[(1, StudySubmitted(at=1.0, study=SPEC))],
        studies=[StudyRecord(SPEC, "running", 1.0)],
        trials=trials(n),
    )


def epoch_batch(n, *, first_seq, epoch, with_trials=True):
    """``epoch`` of the first ``n`` trials, as events from ``first_seq`` on."""
    at, metrics = float(first_seq), (("accuracy", 0.5), ("loss", 1.25))
    members = trials(n, epoch)
    return Batch(
        events=[
            (
                first_seq + trial.number,
                EpochReported(
                    at=at,
                    trial=trial.id,
                    fence=1,
                    epoch=epoch,
                    metrics=metrics,
                    state_hash="h" * 64,
                    signature="S1",
                    seconds=0.25,
                    closes=True,
                ),
            )
            for trial in members
        ],
        trials=members if with_trials else (),
        epochs=[
            AcceptedEpoch(
                trial=trial.id,
                epoch=epoch,
                value=0.5,
                metrics=metrics,
                state_hash="h" * 64,
                signature="S1",
                seconds=0.25,
                device="cpu.a.0",
                slot=0,
                fence=1,
                at=at,
            )
            for trial in members
        ],
    )


def as_newer(ledger):
    """Make ``ledger`` one that Penstock 99.0.0 has brought to schema 9999."""
    row = {"version": "99.0.0", "schema": "9999"}
    seal(WRITER, [row], NONE)
    values = f"schema = '9999', version = '99.0.0', digest = {row['digest']}"
    ledger._driver.execute(f"UPDATE writer SET {values}")
    ledger._driver.execute("UPDATE alembic_version SET version_num = '9999'")
