"""A ledger of many studies: one that the real runner wrote under simulated time, and its copies."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from penstock.app.common.clock import SimulatedClock
from penstock.app.ledger.databases.digests import seal
from penstock.app.ledger.databases.row_digest import NONE
from penstock.app.ledger.databases.sqlite import SqliteDatabase
from penstock.app.ledger.databases.tables import DURABLE, EPOCH, EVENT, SNAPSHOT, STUDY, TRIAL
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.restore import restore
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.runner import Runner
from penstock.extensions.simulation.devices.transport import SimulatedTransport
from penstock.profiling.devices.device import Device
from penstock.scheduler.model.events import StudySubmitted
from sqlalchemy import Connection, delete, func, insert, select

from .ledger import Curves, spec_of

#: The id of the study that is copied. Those of its copies have as many characters.
FIRST = "copied-00000"
#: Tables whose rows are copied, in an order that references allow.
COPIED = (STUDY, TRIAL, EVENT, EPOCH, DURABLE)
DEVICES = 8

_Rows = dict[str, list[dict[str, Any]]]


def write(home: Path, studies: int, trials: int) -> int:
    """Write ``studies`` studies of ``trials`` trials, which are over, into ``home/ledger.db``.

    Returns the number of events: some 18 for each trial.
    """
    home.mkdir(parents=True, exist_ok=True)
    url = f"sqlite:///{home / 'ledger.db'}"
    over = _run(url, trials)
    with SqliteDatabase(url).writer().connect() as connection, connection.begin():
        connection.execute(delete(SNAPSHOT))
        for number in range(1, studies):
            _copy(connection, over, number)
        events = connection.execute(select(func.count(EVENT.c.seq))).scalar_one()
    SqlLedger.open(url).close()  # checks all of it, and notes its newest event
    return int(events)


def add_open(home: Path, number: int, begun: int) -> None:
    """Add study ``number``, which goes on: ``begun`` of its trials, half of all, have begun."""
    url = f"sqlite:///{home / 'ledger.db'}"
    middle = _run(f"sqlite:///{home / 'going.db'}", 2 * begun, begun)
    with SqliteDatabase(url).writer().connect() as connection, connection.begin():
        _copy(connection, middle, number)
    SqlLedger.open(url).close()


def _run(url: str, trials: int, begun: int | None = None) -> _Rows:
    """Run the study that is copied, to its end or until trials have begun: the ledger's rows."""
    ledger = SqlLedger.open(url)
    clock = SimulatedClock(time.time() - 1e6)
    devices = [Device(f"gpu.node.{k}", "node", "cpu", (k,), None) for k in range(DEVICES)]
    transport = SimulatedTransport(clock, devices, Curves())
    runner = Runner(restore(ledger), ledger, transport, SamplerHost(), clock)
    runner.start(StudySubmitted(at=clock.now(), study=spec_of(FIRST, trials)))
    state = runner.engine.state
    while state.studies and (begun is None or len(state.trials) < begun):
        runner.turn(1.0)
    ledger.close()
    return _rows(url)


def _rows(url: str) -> _Rows:
    with SqliteDatabase(url).reader().connect() as connection:
        return {
            table.name: [row._asdict() for row in connection.execute(select(table))]
            for table in COPIED
        }


def _copy(connection: Connection, rows: _Rows, number: int) -> None:
    """Write ``rows`` once more, as those of study ``number``."""
    name = f"{FIRST[:-5]}{number:05d}"
    newest = select(EVENT.c.seq, EVENT.c.digest).order_by(EVENT.c.seq.desc()).limit(1)
    seq, digest = connection.execute(newest).one()
    epochs = connection.execute(select(func.max(EPOCH.c.id))).scalar_one()
    for table in COPIED:
        copies = [
            {
                column: value.replace(FIRST, name) if isinstance(value, str) else value
                for column, value in row.items()
            }
            for row in rows[table.name]
        ]
        if table is EVENT:
            # Those about devices are there already.
            copies = [row for row in copies if row["study"] is not None]
        for place, row in enumerate(copies, 1):
            if table is EVENT:
                row["seq"] = seq + place
            elif table is EPOCH:
                row["id"] = epochs + place
            elif table is STUDY:
                row["created_at"] += number
                row["finished_at"] = row["finished_at"] and row["finished_at"] + number
        if copies:
            seal(table, copies, digest if table is EVENT else NONE)
            connection.execute(insert(table), copies)
