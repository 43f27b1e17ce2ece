"""Rebuilds an engine from the ledger: the newest snapshot and the events after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...profiling.base.errors import IllegalTransition, LedgerRefused, UsageError
from ...scheduler.engine.engine import Engine, Refused
from .codec import state_from_json

if TYPE_CHECKING:
    from .event_log import EventLog
    from .ledger import Ledger


def restore(ledger: Ledger | EventLog) -> Engine:
    """An engine with the newest snapshot and the events after it.

    Raises LedgerRefused when this version's engine cannot handle the events.
    """
    found = ledger.latest_snapshot()
    engine = Engine(state_from_json(found[1]) if found else None)
    follow(engine, ledger)
    return engine


def follow(engine: Engine, ledger: Ledger | EventLog) -> None:
    """Let a restored engine handle the events since then. Raises the errors of ``restore``."""
    for seq, event in ledger.replay(engine.state.seq):
        try:
            engine.handle(event)
        except (Refused, IllegalTransition, UsageError) as error:  # the last: a policy that is gone
            raise LedgerRefused(
                f"event {seq} of the ledger does not fit this version of Penstock: {error}. "
                "Use the version that wrote it, or start with another PENSTOCK_HOME"
            ) from error
        if engine.state.seq != seq:
            raise LedgerRefused(f"event {seq} of the ledger follows {engine.state.seq - 1}")
    engine.take_changes()
