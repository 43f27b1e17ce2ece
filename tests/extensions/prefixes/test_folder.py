"""A state folder that 0.2 left while trials waited for epochs that others trained."""

from __future__ import annotations

from penstock.app.ledger.codec import state_to_json
from penstock.app.ledger.ledger import SqlLedger
from penstock.app.ledger.reader import Reader
from penstock.app.ledger.restore import restore
from penstock.extensions.prefixes.common import prefixes_of
from penstock.extensions.prefixes.state import known_of
from recording.make_homes import FEATURE_FOLDER, unpack


def test_who_waits_is_known(tmp_path):
    url = f"sqlite:///{unpack(FEATURE_FOLDER / 'prefixes.tar.gz', tmp_path) / 'ledger.db'}"
    ledger = SqlLedger.open(url)
    try:
        engine = restore(ledger)
    finally:
        ledger.close()
    [(name, known)] = known_of(engine.state).studies.items()
    assert name.startswith("halfway")
    waiting = [engine.state.trials[each] for each in known.companions]
    assert waiting
    # To look at it changes nothing.
    before = state_to_json(engine.state)
    assert engine.aside().keys() <= {trial.id for trial in waiting}
    assert state_to_json(engine.state) == before
    reader = Reader(url)
    found = prefixes_of(reader, reader.study("halfway"))
    assert found.taken > 0
    assert {each.trial for each in found.companions} <= {trial.number for trial in waiting}
