"""Ledgers of real studies that older code wrote are read as they were, and taken up."""

from __future__ import annotations

import gzip
import json

import pytest
from penstock.app.common.clock import SimulatedClock
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.restore import restore
from penstock.app.server.optuna_bridge.samplers import SamplerHost
from penstock.app.server.runner.runner import Runner
from recording.engine_record import Sequence
from recording.make_ledgers import FOLDER, KINDS, reading, replayed, taken_up, unpack
from worlds.desk import Curve
from worlds.plain_devices import PlainDevices


def needs(kind):
    """Return the extensions that a kind's studies had, which are not followed without them."""
    if kind in ("objectives", "ask_tell"):
        return ()
    return ("memory", "system_tuning") if kind == "packing" else ("system_tuning",)


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.extension(*needs(kind))) for kind in sorted(KINDS)]
)
def kind(request):
    return request.param


@pytest.fixture
def recorded(kind):
    return json.loads(gzip.decompress((FOLDER / f"{kind}.json.gz").read_bytes()))


def test_a_ledger_reads_as_it_did(kind, recorded, tmp_path):
    assert reading(unpack(kind, tmp_path)) == recorded["reading"]


def test_its_events_come_to_the_same_decisions_changes_and_state(kind, recorded, tmp_path):
    was, now = Sequence(**recorded["replay"]), replayed(unpack(kind, tmp_path))
    assert len(now.digests) == len(was.digests)
    differ = [n for n in range(len(was.digests) // 12) if was.digest(n) != now.digest(n)]
    assert not differ, f"the engine does another thing at event {differ[0]} of {kind}"
    assert [[*each] for each in now.checkpoints] == [[*each] for each in was.checkpoints]


def test_a_scheduler_takes_it_up(kind, recorded, tmp_path):
    """From the snapshot, or where there is none from all events; then it runs and writes."""
    url = unpack(kind, tmp_path)
    [_, replayed_state, *_] = recorded["replay"]["checkpoints"][-1]
    assert taken_up(url) == recorded.get("taken_up", replayed_state)
    ledger = SqlLedger.open(url)
    try:
        engine = restore(ledger)
        seq, clock = engine.state.seq, SimulatedClock(engine.state.planned_at or 0.0)
        runner = Runner(engine, ledger, PlainDevices(clock, [], Curve()), SamplerHost(), clock)
        runner.start()
        runner.turn(0.0)
        assert engine.state.seq >= seq
    finally:
        ledger.close()
